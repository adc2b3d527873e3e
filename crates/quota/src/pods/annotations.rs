//! Quota changes by a pod's annotations. They lower the pod's request, set its policy, priority and weight, or let it be
//! suspended. The manager bounds them by namespace.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::{CoreShare, MemorySize, ParseError, QuotaChange, parse_weight};

/// Beginning of the names of our annotations.
pub const DOMAIN: &str = "vcuda.io/";

/// An annotation is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AnnotationError {
    /// Its name is unknown. If it were ignored, a misspelt name would mean a missing limit.
    #[error(
        "annotation {0}: there is none of this name; there are vcuda.io/policy, priority, cores-max, weight, memory, cores \
         and suspendable, each also for one container, such as vcuda.io/policy.main"
    )]
    Unknown(String),
    /// It names a container that the pod does not have, or that has no share of a GPU.
    #[error("annotation {key}: the pod has no container of this name with a share of a GPU; it has {names}")]
    Container {
        /// Name of the annotation.
        key: String,
        /// Names of the pod's containers that have a share.
        names: String,
    },
    /// Its value is wrong.
    #[error("annotation {key} \"{value}\": {problem}")]
    Value {
        /// Name of the annotation.
        key: String,
        /// Value of the annotation.
        value: String,
        /// The fault, with an example of a right value.
        problem: ParseError,
    },
}

/// The quota change of `annotations` for `container`. An annotation for this container wins over one for all containers.
/// `names` are those of all containers of the pod that have a share; empty if they are not known.
///
/// # Errors
/// The first wrong annotation, even if it is for another container.
pub fn quota_change(
    annotations: &BTreeMap<String, String>,
    container: &str,
    names: &BTreeSet<String>,
) -> Result<QuotaChange, AnnotationError> {
    let mut change = QuotaChange::default();
    let ours = || annotations.iter().filter_map(|(key, value)| Some((key, key.strip_prefix(DOMAIN)?, value)));
    let names_container = |word: &str| word.contains('.');
    let (all, one): (Vec<_>, Vec<_>) = ours().partition(|(_, word, _)| !names_container(word));
    for (key, word, value) in all.into_iter().chain(one) {
        let (word, named) = word.split_once('.').map_or((word, None), |(word, named)| (word, Some(named)));
        // An annotation for another container is checked as well, so that all containers refuse a wrong pod.
        let mut unused = QuotaChange::default();
        let target = match named {
            Some(named) if named != container => &mut unused,
            _ => &mut change,
        };
        set(target, word, value)
            .ok_or_else(|| AnnotationError::Unknown(key.clone()))?
            .map_err(|problem| AnnotationError::Value { key: key.clone(), value: value.clone(), problem })?;
        if named.is_some_and(|named| !names.is_empty() && !names.contains(named)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            return Err(AnnotationError::Container { key: key.clone(), names: names.join(", ") });
        }
    }
    Ok(change)
}

/// Sets the field that `word` names. Returns `None` if there is no such word.
fn set(change: &mut QuotaChange, word: &str, value: &str) -> Option<Result<(), ParseError>> {
    let share = || value.parse::<CoreShare>().map(|share| share.0);
    Some(match word {
        "policy" => value.parse().map(|policy| change.policy = Some(policy)),
        "priority" => value.parse().map(|priority| change.priority = Some(priority)),
        "cores-max" => share().map(|share| change.cores_max_permille = Some(share)),
        "weight" => parse_weight(value).map(|weight| change.weight = Some(weight)),
        // A number without a unit is bytes, as everywhere in Kubernetes, and of chunks or MiB that would be next to nothing.
        "memory" => match value.parse() {
            Ok(MemorySize(bytes)) if bytes < 1 << 20 => Err(ParseError::NoMemory),
            parsed => parsed.map(|MemorySize(bytes)| change.memory_bytes = Some(bytes)),
        },
        "suspendable" => truth(value).map(|is_suspendable| change.suspendable = Some(is_suspendable)),
        "cores" => share().map(|share| change.cores_permille = Some(share)),
        _ => return None,
    })
}

fn truth(value: &str) -> Result<bool, ParseError> {
    value.parse().map_err(|_| ParseError::Truth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Policy, Priority};

    fn change_for(annotations: &[(&str, &str)], container: &str) -> Result<QuotaChange, String> {
        let annotations =
            annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        quota_change(&annotations, container, &BTreeSet::new()).map_err(|error| error.to_string())
    }

    #[test]
    fn annotations_of_other_domains_are_ignored() {
        let others =
            [("kubernetes.io/policy", "loud"), ("vcuda.io", "x"), ("nvidia.com/vcuda.io/policy", "y")];
        assert_eq!(change_for(&others, "main").unwrap(), QuotaChange::default());
    }

    #[test]
    fn a_key_for_the_container_wins() {
        let annotations = [
            ("vcuda.io/policy", "burst"),
            ("vcuda.io/policy.batch", "best-effort"),
            ("vcuda.io/priority.main", "low"),
            ("vcuda.io/memory", "2Gi"),
            ("vcuda.io/memory.main", "1Gi"),
            ("vcuda.io/cores", "12.5"),
            ("vcuda.io/weight", "70"),
            ("vcuda.io/suspendable", "true"),
            ("vcuda.io/suspendable.batch", "false"),
        ];
        let main = change_for(&annotations, "main").unwrap();
        assert_eq!(main.policy, Some(Policy::Burst));
        assert_eq!(main.priority, Some(Priority::Low));
        assert_eq!(main.weight, Some(70));
        assert_eq!(main.suspendable, Some(true));
        assert_eq!((main.memory_bytes, main.cores_permille), (Some(1 << 30), Some(125)));
        let batch = change_for(&annotations, "batch").unwrap();
        assert_eq!(batch.policy, Some(Policy::BestEffort));
        assert_eq!(batch.priority, None);
        assert_eq!(batch.suspendable, Some(false));
        assert_eq!(batch.memory_bytes, Some(2 << 30));
        // A container's name may have dots of its own; it does not here: it is a DNS label.
        let most =
            change_for(&[("vcuda.io/policy", "burst"), ("vcuda.io/cores-max.main", "80")], "main").unwrap();
        assert_eq!(most.cores_max_permille, Some(800));
    }

    #[test]
    fn an_unknown_container_is_named_with_the_known_ones() {
        let annotations = [("vcuda.io/policy.mian".to_owned(), "burst".to_owned())].into();
        let names = ["init", "main"].map(str::to_owned).into();
        let error = quota_change(&annotations, "main", &names).unwrap_err().to_string();
        assert!(error.contains("vcuda.io/policy.mian") && error.ends_with("it has init, main"), "{error}");
        quota_change(&annotations, "main", &BTreeSet::new()).unwrap();
        let right = [("vcuda.io/policy.init".to_owned(), "burst".to_owned())].into();
        quota_change(&right, "main", &names).unwrap();
    }

    #[test]
    fn an_error_names_the_annotation_and_a_right_value() {
        for (key, value, said) in [
            ("vcuda.io/polcy", "burst", "vcuda.io/polcy: there is none"),
            ("vcuda.io/", "burst", "vcuda.io/: there is none"),
            ("vcuda.io/policy", "Burst", "\"Burst\": write fixed, burst"),
            ("vcuda.io/policy.other", "Burst", "vcuda.io/policy.other \"Burst\""),
            ("vcuda.io/priority", "9", "write low, normal"),
            ("vcuda.io/suspendable", "yes", "write true or false"),
            ("vcuda.io/suspendable", "True", "write true or false"),
            ("vcuda.io/suspendable", "", "write true or false"),
            ("vcuda.io/weight", "0", "1 to 10000"),
            ("vcuda.io/weight", "-1", "1 to 10000"),
            ("vcuda.io/memory", "4Gib", "unknown unit 'Gib'"),
            ("vcuda.io/memory", "0", "without memory"),
            ("vcuda.io/memory", "512", "without memory"),
            ("vcuda.io/cores", "101", "outside 0.1 to 100"),
        ] {
            let error = change_for(&[(key, value)], "main").unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
