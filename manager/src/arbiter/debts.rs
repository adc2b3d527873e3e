//! Debts of tenants that are gone: a program that is run again under the same name starts with them (I16).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use vcuda_region::GpuUuid;

use crate::arbiter::unsettled::LONGEST_NS;

/// Less than this is forgotten (ns of GPU time): a tenant swings by so much whenever it runs.
const LEAST_NS: i64 = 10_000_000;

/// The debts by directory, with the time until which they are remembered (`CLOCK_MONOTONIC`, ns).
#[derive(Debug, Default)]
pub(crate) struct Debts {
    by_path: BTreeMap<PathBuf, (u64, Vec<(GpuUuid, i64)>)>,
}

impl Debts {
    /// Remembers for [`LONGEST_NS`] what the tenant of `path` owed when it ended (ns of GPU time), at most as much.
    pub(crate) fn remember(&mut self, path: PathBuf, debts: Vec<(GpuUuid, i64)>, now_ns: u64) {
        let most_ns = LONGEST_NS.cast_signed();
        let debts: Vec<_> = debts
            .into_iter()
            .filter(|(_, ns)| *ns >= LEAST_NS)
            .map(|(gpu, ns)| (gpu, ns.min(most_ns)))
            .collect();
        if !debts.is_empty() {
            self.by_path.insert(path, (now_ns + LONGEST_NS, debts));
        }
    }

    /// Forgets what has been remembered for long enough.
    pub(crate) fn forget(&mut self, now_ns: u64) {
        self.by_path.retain(|_, (until_ns, _)| now_ns < *until_ns);
    }

    /// Debt with which the next tenant of `path` starts; it is then forgotten.
    pub(crate) fn take(&mut self, path: &Path) -> Vec<(GpuUuid, i64)> {
        self.by_path.remove(path).map_or_else(Vec::new, |(_, debts)| debts)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_path.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_debt_for_two_seconds_once() {
        let gpu = GpuUuid::from_bytes([1; 16]);
        let mut debts = Debts::default();
        let path = Path::new("a");
        debts.remember(path.to_owned(), vec![(gpu, LEAST_NS - 1)], 7);
        assert!(debts.is_empty(), "too little");
        debts.remember(path.to_owned(), vec![(gpu, i64::MAX)], 7);
        debts.forget(LONGEST_NS + 6);
        assert_eq!(debts.take(Path::new("b")), []);
        assert_eq!(debts.take(path), [(gpu, LONGEST_NS.cast_signed())]);
        assert_eq!(debts.take(path), []);
        debts.remember(path.to_owned(), vec![(gpu, LEAST_NS)], 7);
        debts.forget(LONGEST_NS + 7);
        assert!(debts.is_empty());
    }
}
