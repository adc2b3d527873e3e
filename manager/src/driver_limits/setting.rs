//! One limit: what the driver tells of it, and whether another one is to be set.

use std::collections::BTreeMap;
use std::path::Path;

use vcuda_driver_api::NvmlError;
use vcuda_driver_open::MemoryLimits;
use vcuda_region::GpuUuid;

use super::record::{Limit, Record};
use crate::inventory::{Limited, ProcessesError};
use crate::observe::DriverLimit;

/// Question to NVML: the limits of a cgroup, after these were set, if any.
pub(crate) type Ask = dyn Fn(&GpuUuid, &Path, Option<MemoryLimits>) -> Result<Limited, ProcessesError> + Send;

/// Units to which a driver may round; the real one's is not documented (bytes).
const UNITS: [u64; 4] = [1, 4 << 10, 64 << 10, 2 << 20];

/// The reason why all questions to NVML end for now.
#[derive(Debug)]
pub(super) enum Rest {
    /// The driver has no such limits, or this manager may not set them. What is shown of each tenant.
    Long(DriverLimit),
    /// NVML does not answer now.
    Short,
}

/// The reason why the driver does not hold a cgroup to the quota.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// NVML's answer.
    Nvml(NvmlError),
    /// The GPU takes no limits now (MIG): nothing is refused.
    NotThere,
    /// Anything else, a clause.
    Other(String),
}

pub(super) struct Setting {
    pub(super) ask: Box<Ask>,
    pub(super) record: Record,
    /// Quota for which a limit was set, and what the driver made of it (bytes).
    rounded: BTreeMap<Limit, (u64, u64)>,
}

impl Setting {
    pub(super) fn new(ask: Box<Ask>, record: Record) -> Self {
        Self { ask, record, rounded: BTreeMap::new() }
    }

    /// Has the driver hold a cgroup to the quota. Another program's limit stays if it is no wider, or guarantees memory.
    pub(super) fn hold(&mut self, limit: &Limit, quota_bytes: u64) -> Result<Result<(), Refusal>, Rest> {
        let found = match self.ask(limit, None)? {
            Ok(found) => found,
            Err(Refusal::NotThere) => return Ok(Err(Refusal::NotThere)),
            // Also of a cgroup without a limit: setting one tells more.
            Err(_) => MemoryLimits::NONE,
        };
        let is_ours = self.record.limits().contains(limit);
        if !is_ours && found.hard_bytes <= most(quota_bytes) {
            return Ok(Ok(()));
        }
        if !is_ours && found.soft_bytes > 0 {
            let why = "another program has set a limit with a guarantee for its cgroup";
            return Ok(Err(Refusal::Other(why.to_owned())));
        }
        if is_ours && self.is_right(limit, quota_bytes, found) {
            return Ok(Ok(()));
        }
        if let Err(error) = self.record.add(limit) {
            let why = format!("the record of the driver's limits cannot be written: {error}");
            return Ok(Err(Refusal::Other(why)));
        }
        let set = self.set(limit, quota_bytes)?;
        if set.is_err() && !is_ours {
            self.record.remove(limit);
        }
        Ok(set)
    }

    /// Takes a limit back. Returns the refusal, after which it is tried again.
    pub(super) fn take_back(&mut self, limit: &Limit) -> Result<Option<Refusal>, Rest> {
        let refusal = match limit.cgroup.exists() {
            true => self.ask(limit, Some(MemoryLimits::NONE))?.err(),
            false => None,
        };
        // Its cgroup has just ended.
        let refusal = refusal.filter(|_| limit.cgroup.exists());
        if refusal.is_none() {
            self.record.remove(limit);
            self.rounded.remove(limit);
        }
        Ok(refusal)
    }

    fn is_right(&self, limit: &Limit, quota_bytes: u64, found: MemoryLimits) -> bool {
        let hard_bytes = found.hard_bytes;
        let is_rounded = self.rounded.get(limit) == Some(&(quota_bytes, hard_bytes));
        found.soft_bytes == 0 && (is_rounded || (quota_bytes..=most(quota_bytes)).contains(&hard_bytes))
    }

    /// Sets the least limit that is not below the quota once the driver has rounded it.
    fn set(&mut self, limit: &Limit, quota_bytes: u64) -> Result<Result<(), Refusal>, Rest> {
        for unit in UNITS {
            let hard_bytes = up(quota_bytes, unit);
            match self.ask(limit, Some(MemoryLimits { soft_bytes: 0, hard_bytes }))? {
                Ok(found) => {
                    self.rounded.insert(limit.clone(), (quota_bytes, found.hard_bytes));
                    if found.hard_bytes >= quota_bytes {
                        break;
                    }
                }
                Err(refusal) => return Ok(Err(refusal)),
            }
        }
        Ok(Ok(()))
    }

    fn ask(&self, limit: &Limit, set: Option<MemoryLimits>) -> Result<Result<MemoryLimits, Refusal>, Rest> {
        match (self.ask)(&limit.gpu, &limit.cgroup.path, set) {
            Ok(Ok(found)) => Ok(Ok(found)),
            Ok(Err(NvmlError::FUNCTION_NOT_FOUND)) => Err(Rest::Long(DriverLimit::None)),
            Ok(Err(NvmlError::NOT_SUPPORTED)) if set.is_some() => Ok(Err(Refusal::NotThere)),
            Ok(Err(error)) => Ok(Err(Refusal::Nvml(error))),
            Err(ProcessesError::NoGpu(_)) => {
                Ok(Err(Refusal::Other(format!("NVML does not list {}", limit.gpu))))
            }
            Err(_) => Err(Rest::Short),
        }
    }
}

/// The highest limit that counts as one of the quota.
fn most(quota_bytes: u64) -> u64 {
    UNITS.iter().map(|unit| up(quota_bytes, *unit)).max().unwrap_or(quota_bytes)
}

fn up(bytes: u64, unit: u64) -> u64 {
    bytes.checked_next_multiple_of(unit).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::super::cgroups::Cgroup;
    use super::*;

    const QUOTA: u64 = (3 << 30) + 1000;

    /// What is set, and each hard limit that was asked for.
    type Driver = Arc<Mutex<(MemoryLimits, Vec<u64>)>>;

    /// A driver that rounds to this unit, up or down.
    fn driver(unit: u64, is_up: bool) -> (Driver, Box<Ask>) {
        let state = Arc::new(Mutex::new((MemoryLimits::NONE, Vec::new())));
        let kept = Arc::clone(&state);
        let ask = move |_: &GpuUuid, _: &Path, set: Option<MemoryLimits>| {
            let mut state = kept.lock();
            if let Some(asked) = set {
                let down = asked.hard_bytes - asked.hard_bytes % unit;
                let hard_bytes = if is_up { up(asked.hard_bytes, unit) } else { down };
                state.0 = MemoryLimits { hard_bytes, ..asked };
                state.1.push(asked.hard_bytes);
            }
            Ok(Ok(state.0))
        };
        (state, Box::new(ask))
    }

    fn limit(place: &Path) -> Limit {
        let cgroup: Cgroup = serde_json::from_value(serde_json::json!({"path": place, "inode": 1})).unwrap();
        Limit { tenant: "a".to_owned(), cgroup, gpu: GpuUuid::from_bytes([1; 16]) }
    }

    #[test]
    fn the_limit_is_the_quota_rounded_up_to_what_the_driver_takes() {
        for (unit, is_up) in
            [(1, false), (4096, false), (64 << 10, false), (64 << 10, true), (2 << 20, false)]
        {
            let place = tempfile::tempdir().unwrap();
            let (state, ask) = driver(unit, is_up);
            let (mut setting, limit) = (Setting::new(ask, Record::open(place.path())), limit(place.path()));
            for _ in 0..2 {
                assert!(setting.hold(&limit, QUOTA).unwrap().is_ok());
                assert_eq!(state.lock().0, MemoryLimits { soft_bytes: 0, hard_bytes: up(QUOTA, unit) });
            }
            let calls = state.lock().1.len();
            assert!(setting.hold(&limit, QUOTA).unwrap().is_ok());
            assert_eq!(state.lock().1.len(), calls, "what is right is not set again");
            assert!(Record::open(place.path()).limits().contains(&limit));
        }
    }

    #[test]
    fn what_another_program_has_set_stays_if_it_is_tighter_or_a_guarantee() {
        let place = tempfile::tempdir().unwrap();
        let (state, ask) = driver(1, false);
        let (mut setting, limit) = (Setting::new(ask, Record::open(place.path())), limit(place.path()));
        for (soft_bytes, hard_bytes, is_held) in
            [(0, QUOTA - 1, true), (0, QUOTA + 5, true), (5, QUOTA - 1, true), (5, 2 * QUOTA, false)]
        {
            state.lock().0 = MemoryLimits { soft_bytes, hard_bytes };
            assert_eq!(setting.hold(&limit, QUOTA).unwrap().is_ok(), is_held);
            assert_eq!((state.lock().1.len(), setting.record.limits().len()), (0, 0));
        }
        state.lock().0 = MemoryLimits { soft_bytes: 0, hard_bytes: 2 * QUOTA };
        assert!(setting.hold(&limit, QUOTA).unwrap().is_ok());
        assert_eq!(state.lock().0.hard_bytes, QUOTA);
        assert!(setting.hold(&limit, 2 * QUOTA).unwrap().is_ok(), "its own follows");
        assert_eq!(state.lock().0.hard_bytes, 2 * QUOTA);
    }
}
