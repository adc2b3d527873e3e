//! The debt of GPU time of a dead run, with which the next run of the same name starts (docs/design.md, I16).

use std::path::Path;

use crate::GpuUuid;
use crate::limits::{Limits, LimitsWriter, WriteError};
use crate::usage_reader::UsageReader;
use vcuda_limiter::token_bucket::Pace;

/// Largest debt that a new run of a name inherits (ns of GPU time).
const MOST_NS: i64 = 2_000_000_000;

/// Debts of a directory's run at `now_ns` (`CLOCK_MONOTONIC`), by GPU (ns of GPU time). A directory that cannot be
/// read has none.
pub(super) fn read(path: &Path, now_ns: u64) -> Vec<(GpuUuid, i64)> {
    let (Ok(limits), Ok(usage)) = (Limits::read(path), UsageReader::open(path)) else {
        return Vec::new();
    };
    let debt = |device, uuid| {
        let pace = limits.pace(device).ok().filter(|pace| pace.metered)?;
        let level_ns = usage.bucket(device).ok()?.level_ns;
        let debt_ns = level_ns.saturating_sub(pace.credit_at(now_ns));
        (debt_ns > 0).then_some((uuid, debt_ns.min(MOST_NS)))
    };
    limits.devices().filter_map(|(device, uuid)| debt(device, uuid)).collect()
}

/// Charges these debts to the run of a new directory.
///
/// # Errors
/// Its `limits` cannot be written.
pub(super) fn write(path: &Path, debts: &[(GpuUuid, i64)]) -> Result<(), WriteError> {
    if debts.is_empty() {
        return Ok(());
    }
    let mut writer = LimitsWriter::open(path).map_err(WriteError::Open)?;
    let devices: Vec<_> = writer.limits().devices().collect();
    for (device, uuid) in devices {
        let owed_ns: i64 = debts.iter().filter(|(gpu, _)| *gpu == uuid).map(|(_, ns)| ns).sum();
        let Ok(pace) = writer.limits().pace(device) else {
            continue;
        };
        let credit_ns = pace.credit_ns.saturating_sub(owed_ns);
        writer.set_pace(device, &Pace { credit_ns, ..pace })?;
    }
    Ok(())
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;
    use crate::directory::{Directory, Tenant};
    use crate::process::Identity;
    use crate::slots::Usage;
    use vcuda_quota::DeviceConfig;

    #[test]
    fn a_run_owes_what_the_dead_one_of_its_name_did() {
        const GPU: GpuUuid = GpuUuid::from_bytes([1; 16]);
        let root = tempfile::tempdir().unwrap();
        let tenant = |name: &str| Tenant {
            name: name.to_owned(),
            devices: vec![(GPU, DeviceConfig::new(1 << 30, 100))],
            is_suspendable: false,
            memory_wait_ms: None,
        };
        let me = Identity::current().unwrap();
        let dead = Identity { start_ticks: me.start_ticks + 1, ..me };
        let start =
            |name, now_ns| Directory::create_or_join(root.path(), &tenant(name), &dead, now_ns).unwrap().0;
        let owes = |directory: &Directory, now_ns| read(directory.path(), now_ns);
        let first = start("a", 1000);
        let device = Limits::read(first.path()).unwrap().devices().next().unwrap().0;
        assert_eq!(owes(&first, 1000), []);
        Usage::open(first.path()).unwrap().bucket(device).charge(5_000_000);
        let path = first.path().to_owned();
        drop(first);
        // The tenant's share is a tenth of the time: so much is paid back.
        let second = start("a", 10_001_000);
        assert_eq!(second.path(), path);
        assert_eq!(owes(&second, 10_001_000), [(GPU, 4_000_000)]);
        assert_eq!(owes(&start("b", 10_001_000), 10_001_000), []);
        Usage::open(second.path()).unwrap().bucket(device).charge(i64::MAX / 2);
        drop(second);
        assert_eq!(owes(&start("a", 10_001_000), 10_001_000), [(GPU, MOST_NS)]);
    }
}
