//! Health of a GPU by its errors (XIDs) and answers: rules without NVML.
//!
//! An XID is a number that the driver writes for an error of a GPU (NVIDIA, "XID Errors"). Some are an application's
//! mistakes: they end the application and say nothing about the GPU. They are always ignored, as one tenant could otherwise
//! take a GPU from all. Any other XID, or a look that fails, makes the GPU unhealthy until enough looks in a row were
//! answered.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// XIDs that applications cause: 13 graphics engine exception, 31 memory page fault, 43 GPU stopped processing, 45
/// preemptive cleanup, 68 video processor exception, 109 context switch timeout.
pub const OF_APPLICATIONS: [u64; 6] = [13, 31, 43, 45, 68, 109];

/// Conditions that make a GPU unhealthy, and for how long: table `[health]` of the configuration. `fatal_xids` last until the GPU was
/// away (a reset, a reload of the driver), all others until `clean_probes` looks in a row were answered.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// XIDs that are ignored beside [`OF_APPLICATIONS`].
    pub ignored_xids: BTreeSet<u64>,
    /// XIDs that only a reset ends.
    pub fatal_xids: BTreeSet<u64>,
    /// Number of answered looks that end any other trouble.
    pub clean_probes: u32,
}

/// A contradiction in the policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// An XID of [`OF_APPLICATIONS`] is configured as fatal.
    #[error(
        "XID {0} is an application's error: one tenant could take the GPU from all with it; leave it out of fatal_xids"
    )]
    OfApplications(u64),
    /// An XID is configured as ignored and fatal.
    #[error("XID {0} is in ignored_xids and in fatal_xids: leave it out of one")]
    Both(u64),
    /// Zero clean looks: a GPU would never be unhealthy.
    #[error("clean_probes = 0: write 1 or more")]
    NoLooks,
}

impl Default for Policy {
    fn default() -> Self {
        Self { ignored_xids: BTreeSet::new(), fatal_xids: BTreeSet::new(), clean_probes: 30 }
    }
}

impl Policy {
    /// Checks that the values do not contradict each other.
    pub fn check(&self) -> Result<(), PolicyError> {
        if let Some(xid) = self.fatal_xids.iter().find(|xid| OF_APPLICATIONS.contains(xid)) {
            return Err(PolicyError::OfApplications(*xid));
        }
        if let Some(xid) = self.fatal_xids.intersection(&self.ignored_xids).next() {
            return Err(PolicyError::Both(*xid));
        }
        if self.clean_probes == 0 { Err(PolicyError::NoLooks) } else { Ok(()) }
    }

    fn is_ignored(&self, xid: u64) -> bool {
        OF_APPLICATIONS.contains(&xid) || self.ignored_xids.contains(&xid)
    }
}

/// Past trouble of a GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct History {
    trouble: Option<Trouble>,
    /// Number of occurrences of each XID.
    xids: BTreeMap<u64, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Trouble {
    reason: String,
    /// The XID that caused it, if one did.
    xid: Option<u64>,
    /// Number of looks in a row that were answered since.
    clean: u32,
    /// Whether clean looks do not end it.
    is_fatal: bool,
}

/// Part of a GPU's trouble that is kept for the next manager.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kept {
    pub(crate) reason: String,
    pub(crate) xid: Option<u64>,
    pub(crate) is_fatal: bool,
}

/// Effect of an observation on the health.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing to report.
    None,
    /// The GPU became unhealthy, or is so for another reason than before.
    Unhealthy(String),
    /// The GPU can be granted again, with the reason why it could not be.
    Recovered(String),
}

impl History {
    /// The reason why the GPU cannot be granted; `None` if it can.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.trouble.as_ref().map(|trouble| trouble.reason.as_str())
    }

    /// The history of a GPU with trouble recorded by the previous manager. The trouble is fatal if it was fatal then and
    /// `policy` still says so.
    pub(crate) fn from_kept(policy: &Policy, kept: Kept) -> Self {
        let is_fatal = kept.is_fatal && kept.xid.is_some_and(|xid| policy.fatal_xids.contains(&xid));
        Self {
            trouble: Some(Trouble { reason: kept.reason, xid: kept.xid, clean: 0, is_fatal }),
            xids: BTreeMap::new(),
        }
    }

    /// The trouble to keep for the next manager.
    pub(crate) fn kept(&self) -> Option<Kept> {
        let trouble = self.trouble.as_ref()?;
        Some(Kept { reason: trouble.reason.clone(), xid: trouble.xid, is_fatal: trouble.is_fatal })
    }

    pub(crate) fn xids(&self) -> &BTreeMap<u64, u64> {
        &self.xids
    }

    pub(crate) fn xid(&mut self, policy: &Policy, xid: u64) -> Change {
        let count = self.xids.entry(xid).or_default();
        *count = count.saturating_add(1);
        if policy.is_ignored(xid) {
            return Change::None;
        }
        self.set_trouble(format!("XID {xid}"), Some(xid), policy.fatal_xids.contains(&xid))
    }

    /// Applies a look at the GPU; `answer` holds the failure, if it failed.
    pub(crate) fn look(&mut self, policy: &Policy, answer: Result<(), String>) -> Change {
        if let Err(reason) = answer {
            return self.set_trouble(reason, None, false);
        }
        let Some(trouble) = &mut self.trouble else {
            return Change::None;
        };
        trouble.clean = trouble.clean.saturating_add(1);
        if trouble.is_fatal || trouble.clean < policy.clean_probes {
            return Change::None;
        }
        self.trouble.take().map_or(Change::None, |trouble| Change::Recovered(trouble.reason))
    }

    /// Applies a reset (the driver was away, the GPU initialised anew): a fatal state ends after clean looks.
    pub(crate) fn was_reset(&mut self) {
        if let Some(trouble) = &mut self.trouble {
            trouble.is_fatal = false;
            trouble.clean = 0;
        }
    }

    fn set_trouble(&mut self, reason: String, xid: Option<u64>, is_fatal: bool) -> Change {
        let before = self.trouble.take();
        // A fatal error stays the reason, as later errors follow from it.
        if let Some(trouble) = before.as_ref().filter(|before| before.is_fatal && !is_fatal) {
            self.trouble = Some(Trouble { clean: 0, ..trouble.clone() });
            return Change::None;
        }
        let is_new = before.is_none_or(|before| before.reason != reason);
        self.trouble = Some(Trouble { reason: reason.clone(), xid, clean: 0, is_fatal });
        if is_new { Change::Unhealthy(reason) } else { Change::None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn policy_of(ignored: &[u64], fatal: &[u64], clean_probes: u32) -> Policy {
        let set = |xids: &[u64]| xids.iter().copied().collect();
        Policy { ignored_xids: set(ignored), fatal_xids: set(fatal), clean_probes }
    }

    fn policy() -> Policy {
        policy_of(&[63], &[48], 3)
    }

    #[test]
    fn a_policy_that_cannot_be_is_refused() {
        assert_eq!(policy_of(&[], &[79, 31], 3).check(), Err(PolicyError::OfApplications(31)));
        assert_eq!(policy_of(&[79], &[79], 3).check(), Err(PolicyError::Both(79)));
        assert_eq!(policy_of(&[], &[], 0).check(), Err(PolicyError::NoLooks));
        assert_eq!(policy().check(), Ok(()));
    }

    #[test]
    fn an_error_lasts_until_enough_clean_looks() {
        let (policy, mut gpu) = (policy(), History::default());
        assert_eq!(gpu.xid(&policy, 79), Change::Unhealthy("XID 79".to_owned()));
        assert_eq!(gpu.xid(&policy, 79), Change::None, "it is known");
        assert_eq!(gpu.look(&policy, Ok(())), Change::None);
        assert_eq!(gpu.look(&policy, Ok(())), Change::None);
        assert_eq!(gpu.look(&policy, Err("lost".to_owned())), Change::Unhealthy("lost".to_owned()));
        assert_eq!(
            [0; 3].map(|_| gpu.look(&policy, Ok(()))),
            [Change::None, Change::None, Change::Recovered("lost".to_owned())]
        );
        assert_eq!((gpu.reason(), gpu.xids().get(&79)), (None, Some(&2)));
    }

    #[test]
    fn what_is_fatal_ends_with_a_reset() {
        let (policy, mut gpu) = (policy(), History::default());
        gpu.xid(&policy, 48);
        assert_eq!(gpu.xid(&policy, 79), Change::None, "the first reason stays");
        for _ in 0..10 {
            assert_eq!(gpu.look(&policy, Ok(())), Change::None);
        }
        gpu.was_reset();
        let looks = [0; 3].map(|_| gpu.look(&policy, Ok(())));
        assert_eq!(looks.last(), Some(&Change::Recovered("XID 48".to_owned())));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Xid(u64),
        Look(bool),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            prop::sample::select(vec![13_u64, 31, 43, 45, 68, 109, 63, 48, 79, 94]).prop_map(Step::Xid),
            any::<bool>().prop_map(Step::Look),
            Just(Step::Look(true)),
        ]
    }

    proptest! {
        /// Compares with the documented rules, evaluated over the whole history each time.
        #[test]
        fn health_follows_the_words(steps in prop::collection::vec(step(), 0..60), looks in 1_u32..5) {
            let policy = policy_of(&[63], &[48], looks);
            let mut gpu = History::default();
            for (position, step) in steps.iter().enumerate() {
                let was = gpu.reason().is_some();
                let change = match step {
                    Step::Xid(xid) => gpu.xid(&policy, *xid),
                    Step::Look(true) => gpu.look(&policy, Ok(())),
                    Step::Look(false) => gpu.look(&policy, Err("no answer".to_owned())),
                };
                let past = &steps[..=position];
                let bad = |step: &Step| match step {
                    Step::Xid(xid) => ![13, 31, 43, 45, 68, 109, 63].contains(xid),
                    Step::Look(is_good) => !is_good,
                };
                let has_fatal = past.iter().any(|step| matches!(step, Step::Xid(48)));
                let since = past.iter().rev().take_while(|step| !bad(step));
                let clean = since.filter(|step| matches!(step, Step::Look(true))).count();
                let ill = has_fatal || (past.iter().any(bad) && clean < looks as usize);
                prop_assert_eq!(gpu.reason().is_some(), ill);
                match change {
                    Change::Unhealthy(_) => prop_assert!(ill),
                    Change::Recovered(_) => prop_assert!(was && !ill),
                    Change::None => prop_assert_eq!(was, ill),
                }
            }
            let raised = steps.iter().filter(|step| matches!(step, Step::Xid(_))).count();
            prop_assert_eq!(gpu.xids().values().sum::<u64>(), raised as u64);
        }
    }
}
