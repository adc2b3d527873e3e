//! Choices of a pod's annotations for its containers. They lower the pod's request to kubelet, or choose how it
//! competes;
//! how far that goes for a namespace is the manager's to say.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::{CoreShare, MemorySize, ParseError, QuotaChange, parse_weight};

/// Annotations of ours begin with it.
pub const DOMAIN: &str = "vcuda.io/";

/// An annotation that cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AnnotationError {
    /// A misspelt key would otherwise be a limit that is not there.
    #[error(
        "annotation {0}: there is none of this name; there are vcuda.io/policy, priority, cores-max, weight, memory and \
         cores, each also for one container, such as vcuda.io/policy.main"
    )]
    Unknown(String),
    /// It is for a container that the pod does not have, or that has no share.
    #[error("annotation {key}: the pod has no container of this name with a share of a GPU; it has {names}")]
    Container {
        /// Name of the annotation.
        key: String,
        /// Names of the pod's containers.
        names: String,
    },
    /// Its value.
    #[error("annotation {key} \"{value}\": {problem}")]
    Value {
        /// Name of the annotation.
        key: String,
        /// Value of the annotation.
        value: String,
        /// The fault, and the value to write instead.
        problem: ParseError,
    },
}

/// Choices of `annotations` for `container`: keys that name it win over those that name none. `names` are those of all
/// containers of the pod that have a share; empty if they are not known.
///
/// # Errors
/// The first that is wrong, also one for another container.
pub fn choice(
    annotations: &BTreeMap<String, String>,
    container: &str,
    names: &BTreeSet<String>,
) -> Result<QuotaChange, AnnotationError> {
    let mut choice = QuotaChange::default();
    let ours = || {
        annotations
            .iter()
            .filter_map(|(key, value)| Some((key, key.strip_prefix(DOMAIN)?, value)))
    };
    let is_for_one = |word: &str| word.contains('.');
    let (all, one): (Vec<_>, Vec<_>) = ours().partition(|(_, word, _)| !is_for_one(word));
    for (key, word, value) in all.into_iter().chain(one) {
        let (word, whose) = word
            .split_once('.')
            .map_or((word, None), |(word, whose)| (word, Some(whose)));
        // An annotation for another container is checked all the same: it will be wrong there.
        let mut elsewhere = QuotaChange::default();
        let target = match whose {
            Some(whose) if whose != container => &mut elsewhere,
            _ => &mut choice,
        };
        set(target, word, value)
            .ok_or_else(|| AnnotationError::Unknown(key.clone()))?
            .map_err(|problem| AnnotationError::Value {
                key: key.clone(),
                value: value.clone(),
                problem,
            })?;
        if whose.is_some_and(|whose| !names.is_empty() && !names.contains(whose)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            return Err(AnnotationError::Container {
                key: key.clone(),
                names: names.join(", "),
            });
        }
    }
    Ok(choice)
}

/// Puts one value in. None: there is no such word.
fn set(choice: &mut QuotaChange, word: &str, value: &str) -> Option<Result<(), ParseError>> {
    let share = || value.parse::<CoreShare>().map(|share| share.0);
    Some(match word {
        "policy" => value.parse().map(|policy| choice.policy = Some(policy)),
        "priority" => value.parse().map(|priority| choice.priority = Some(priority)),
        "cores-max" => share().map(|share| choice.cores_max_permille = Some(share)),
        "weight" => parse_weight(value).map(|weight| choice.weight = Some(weight)),
        "memory" => value
            .parse()
            .map(|MemorySize(bytes)| choice.memory_bytes = Some(bytes)),
        "cores" => share().map(|share| choice.cores_permille = Some(share)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Policy, Priority};

    fn of(annotations: &[(&str, &str)], container: &str) -> Result<QuotaChange, String> {
        let annotations = annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        choice(&annotations, container, &BTreeSet::new()).map_err(|error| error.to_string())
    }

    #[test]
    fn those_of_others_mean_nothing_here() {
        let others = [
            ("kubernetes.io/policy", "loud"),
            ("vcuda.io", "x"),
            ("nvidia.com/vcuda.io/policy", "y"),
        ];
        assert_eq!(of(&others, "main").unwrap(), QuotaChange::default());
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
        ];
        let main = of(&annotations, "main").unwrap();
        assert_eq!(main.policy, Some(Policy::Burst));
        assert_eq!(main.priority, Some(Priority::Low));
        assert_eq!(main.weight, Some(70));
        assert_eq!(
            (main.memory_bytes, main.cores_permille),
            (Some(1 << 30), Some(125))
        );
        let batch = of(&annotations, "batch").unwrap();
        assert_eq!(batch.policy, Some(Policy::BestEffort));
        assert_eq!(batch.priority, None);
        assert_eq!(batch.memory_bytes, Some(2 << 30));
        // A container's name may have dots of its own; it does not here: it is a DNS label.
        let most = of(
            &[("vcuda.io/policy", "burst"), ("vcuda.io/cores-max.main", "80")],
            "main",
        )
        .unwrap();
        assert_eq!(most.cores_max_permille, Some(800));
    }

    #[test]
    fn a_container_that_there_is_not_is_named_with_those_there_are() {
        let annotations = [("vcuda.io/policy.mian".to_owned(), "burst".to_owned())].into();
        let names = ["init", "main"].map(str::to_owned).into();
        let error = choice(&annotations, "main", &names).unwrap_err().to_string();
        assert!(
            error.contains("vcuda.io/policy.mian") && error.ends_with("it has init, main"),
            "{error}"
        );
        choice(&annotations, "main", &BTreeSet::new()).unwrap();
        let right = [("vcuda.io/policy.init".to_owned(), "burst".to_owned())].into();
        choice(&right, "main", &names).unwrap();
    }

    #[test]
    fn what_is_wrong_is_named_with_what_to_write() {
        for (key, value, said) in [
            ("vcuda.io/polcy", "burst", "vcuda.io/polcy: there is none"),
            ("vcuda.io/", "burst", "vcuda.io/: there is none"),
            ("vcuda.io/policy", "Burst", "\"Burst\": write fixed, burst"),
            (
                "vcuda.io/policy.other",
                "Burst",
                "vcuda.io/policy.other \"Burst\"",
            ),
            ("vcuda.io/priority", "9", "write low, normal"),
            ("vcuda.io/weight", "0", "1 to 10000"),
            ("vcuda.io/weight", "-1", "1 to 10000"),
            ("vcuda.io/memory", "4Gib", "unknown unit 'Gib'"),
            ("vcuda.io/memory", "0", "without memory"),
            ("vcuda.io/cores", "101", "outside 0.1 to 100"),
        ] {
            let error = of(&[(key, value)], "main").unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
