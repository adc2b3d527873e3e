//! Values of labels: what callers and tenants named, made short and printable. The encoder escapes them.

use std::borrow::Cow;
use std::collections::BTreeSet;

/// Most bytes of a value: a Kubernetes name has at most 253.
const LONGEST: usize = 253;

/// At most [`LONGEST`] bytes, without control characters.
pub(super) fn bounded(text: &str) -> Cow<'_, str> {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let short = text.get(..end).unwrap_or_default();
    if short.contains(char::is_control) {
        Cow::Owned(short.replace(char::is_control, "?"))
    } else {
        Cow::Borrowed(short)
    }
}

/// Owner of a series.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Whose {
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) container: String,
}

/// Tells tenants of the same names apart: two series of one set of labels would spoil the whole scrape.
#[derive(Debug, Default)]
pub(super) struct Taken(BTreeSet<Whose>);

impl Taken {
    /// These names; if they are taken, the tenant's with its id, and in the end a number.
    pub(super) fn take(&mut self, namespace: &str, pod: &str, container: &str, id: &str) -> Whose {
        let [namespace, pod, plain] = [namespace, pod, container].map(|text| bounded(text).into_owned());
        let with_id = format!("{} ({})", short(container), short(id));
        let numbered = (2_u64..).map(|number| format!("{} ({number})", short(id)));
        let names = [plain, bounded(&with_id).into_owned()]
            .into_iter()
            .chain(numbered);
        for container in names {
            let whose = Whose {
                namespace: namespace.clone(),
                pod: pod.clone(),
                container,
            };
            if self.0.insert(whose.clone()) {
                return whose;
            }
        }
        // The numbers do not end.
        Whose {
            namespace,
            pod,
            container: String::new(),
        }
    }
}

/// So much that two fit into one value.
fn short(text: &str) -> String {
    bounded(text).chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_short_and_printable() {
        assert_eq!(bounded("pod-1"), "pod-1");
        assert_eq!(bounded("a\n\u{7}b\"\\"), "a??b\"\\");
        let long = "ü".repeat(200);
        assert_eq!(bounded(&long).len(), 252);
    }

    #[test]
    fn no_two_containers_have_the_same_labels() {
        let mut taken = Taken::default();
        let mut take = |container: &str, id: &str| taken.take("n", "p", container, id).container;
        assert_eq!(take("c", "x-1"), "c");
        assert_eq!(take("c", "x-2"), "c (x-2)");
        assert_eq!(take("c", "x-2"), "x-2 (2)");
        let long = "y".repeat(300);
        let names: BTreeSet<String> = (0..5).map(|_| take(&long, &long)).collect();
        assert_eq!(names.len(), 5);
        assert!(names.iter().all(|name| name.len() <= LONGEST));
    }
}
