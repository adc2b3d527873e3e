//! Values of labels: names given by callers and tenants, shortened and made printable. The encoder escapes them.

use std::borrow::Cow;
use std::collections::BTreeSet;

/// Maximum length of a value (bytes), that of a Kubernetes name.
const LONGEST: usize = 253;

/// The text without control characters, cut to [`LONGEST`] bytes.
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

/// Labels that identify a container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ContainerLabels {
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) container: String,
}

/// Labels already used in a scrape. They must be unique, as duplicate series would invalidate it.
#[derive(Debug, Default)]
pub(super) struct UsedLabels(BTreeSet<ContainerLabels>);

impl UsedLabels {
    /// Reserves labels with these names; if used already, with the tenant's id, and at last with a number.
    pub(super) fn reserve(
        &mut self,
        namespace: &str,
        pod: &str,
        container: &str,
        id: &str,
    ) -> ContainerLabels {
        let [namespace, pod, plain] = [namespace, pod, container].map(|text| bounded(text).into_owned());
        let with_id = format!("{} ({})", short(container), short(id));
        let numbered = (2_u64..).map(|number| format!("{} ({number})", short(id)));
        let names = [plain, bounded(&with_id).into_owned()].into_iter().chain(numbered);
        for container in names {
            let labels = ContainerLabels { namespace: namespace.clone(), pod: pod.clone(), container };
            if self.0.insert(labels.clone()) {
                return labels;
            }
        }
        // Never reached, as the numbers do not end.
        ContainerLabels { namespace, pod, container: String::new() }
    }
}

/// The text cut so that two fit into one value.
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
        let mut used = UsedLabels::default();
        let mut reserve = |container: &str, id: &str| used.reserve("n", "p", container, id).container;
        assert_eq!(reserve("c", "x-1"), "c");
        assert_eq!(reserve("c", "x-2"), "c (x-2)");
        assert_eq!(reserve("c", "x-2"), "x-2 (2)");
        let long = "y".repeat(300);
        let names: BTreeSet<String> = (0..5).map(|_| reserve(&long, &long)).collect();
        assert_eq!(names.len(), 5);
        assert!(names.iter().all(|name| name.len() <= LONGEST));
    }
}
