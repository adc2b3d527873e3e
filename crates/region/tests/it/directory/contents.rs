//! A new directory, the limits in it, and the runs that share it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use vcuda_limiter::token_bucket::Pace;
use vcuda_quota::{DeviceConfig, Policy};
use vcuda_region::clock::now_ns;
use vcuda_region::directory;
use vcuda_region::limits::{Limits, LimitsWriter, WriteError};
use vcuda_region::process::{Identity, ProcessView};
use vcuda_region::shared::ObjectKey;
use vcuda_region::slots::Usage;
use vcuda_region::usage_reader::UsageReader;

use super::{GIB, Sleeper, device, make, root, soon, uuid};

#[test]
fn a_new_directory_says_what_it_was_given() {
    let root = root();
    let directory = make(root.path(), "a");
    assert_eq!(directory.path(), root.path().join("containers/a"));
    // Any user of a tenant may read and count; on the host the path to it is closed.
    let mode = |path: PathBuf| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(root.path().join("containers")), 0o700);
    assert_eq!(mode(directory.path().to_owned()), 0o755);
    for (file, expected) in [("limits", 0o644), ("usage", 0o666)] {
        let metadata = fs::metadata(directory.path().join(file)).unwrap();
        assert_eq!(metadata.mode() & 0o777, expected);
        assert!(metadata.blocks() * 512 >= metadata.len(), "the space of {file} is reserved");
    }
    let limits = Limits::open(directory.path()).unwrap();
    assert_eq!(limits.name(), "a");
    assert_eq!(limits.devices().map(|(_, uuid)| uuid).collect::<Vec<_>>(), [uuid(1), uuid(2)]);
    assert_eq!(limits.find(&uuid(2)), Some(device(1)));
    assert_eq!(limits.find(&uuid(3)), None);
    assert_eq!(limits.memory_limit_bytes(device(1)), Ok(8 * GIB));
    assert!(limits.is_metered(device(0)) && !limits.is_metered(device(1)));
    assert_eq!(limits.config(device(0)).unwrap(), DeviceConfig::new(4 * GIB, 300));
    assert_eq!(directory::list(root.path()).unwrap(), [("a".to_owned(), directory.path().to_owned())]);
}

#[test]
fn a_change_is_seen_by_who_has_the_limits_open() {
    let root = root();
    let directory = make(root.path(), "a");
    let limits = Limits::open(directory.path()).unwrap();
    let mut writer = LimitsWriter::open(directory.path()).unwrap();
    let usage = Usage::open(directory.path()).unwrap();
    let told = usage.limits_notice().load(Ordering::Relaxed);
    let before = limits.pace(device(0)).unwrap();
    let config = DeviceConfig { policy: Policy::Burst, ..DeviceConfig::new(GIB, 500) };
    writer.set_config(device(0), &config, before.epoch_ns + 1_000_000).unwrap();
    let told_again = usage.limits_notice().load(Ordering::Relaxed);
    assert_ne!(told_again, told, "it is told to look");
    assert_eq!(limits.memory_limit_bytes(device(0)), Ok(4 * GIB), "until it looks");
    assert!(limits.follow(now_ns()));
    assert_eq!(limits.memory_limit_bytes(device(0)), Ok(GIB));
    assert_eq!(limits.config(device(0)), Ok(config));
    assert_eq!(limits.generation(), 1);
    let after = limits.pace(device(0)).unwrap();
    assert_eq!((after.rate_permille, after.credit_ns), (500, 300_000));
    writer.set_config(device(0), &DeviceConfig::new(GIB, 1000), now_ns()).unwrap();
    let now = now_ns();
    assert!(limits.follow(now) && !limits.are_older(10, now + 9) && limits.are_older(10, now + 11));
    assert!(!limits.is_metered(device(0)));
    // Of its pace it is told only if launches are metered from now on, or not any more.
    let notice = || usage.limits_notice().load(Ordering::Relaxed);
    let (told, pace) = (notice(), limits.pace(device(0)).unwrap());
    let scaled = Pace { scale_permille: 900, ..pace };
    writer.set_pace(device(0), &scaled).unwrap();
    assert_eq!(notice(), told);
    let metered = Pace { metered: true, ..scaled };
    writer.set_pace(device(0), &metered).unwrap();
    assert_ne!(notice(), told);
    let wrong = DeviceConfig { cap_permille: 1001, ..config };
    assert!(matches!(writer.set_config(device(0), &wrong, 0), Err(WriteError::OutOfRange)));
}

#[test]
fn the_processes_of_a_directory_share_its_memory() {
    let root = root();
    let first = make(root.path(), "a");
    let other = Sleeper::new();
    let usage = Usage::open(first.path()).unwrap();
    let theirs = Usage::open(first.path()).unwrap();
    let slot = theirs.claim(&other.identity).unwrap();
    slot.reserve(device(0), 3 * GIB, 4 * GIB).unwrap().commit();
    let mine = usage.claim(&Identity::current().unwrap()).unwrap();
    let denied = mine.reserve(device(0), 2 * GIB, 4 * GIB).unwrap_err();
    assert_eq!(denied.used_bytes, 3 * GIB);
    mine.count_denied(device(0), &denied);
    mine.reserve(device(0), GIB, 4 * GIB).unwrap().commit();
    assert_eq!(usage.used_bytes(device(0)), 4 * GIB);

    let reader = UsageReader::open(first.path()).unwrap();
    let view = ProcessView::new(Identity::current().unwrap());
    let seen = reader.processes(2, &view).unwrap();
    let used: Vec<_> = seen.iter().map(|process| process.devices[0].used_bytes).collect();
    assert_eq!(used.iter().sum::<u64>(), 4 * GIB);
    let bucket = reader.bucket(device(0)).unwrap();
    assert_eq!((bucket.denied, bucket.denied_bytes), (1, 2 * GIB));
    let memory = reader.memory(device(0)).unwrap();
    assert_eq!((memory.used_bytes, memory.shared_bytes), (4 * GIB, 0));
    // What is shared is seen once, with its payer or without.
    let key = ObjectKey::of(b"exported");
    let _exported = slot.share(key, device(0), 2 * GIB).unwrap();
    let imported = mine.join(key).unwrap();
    let memory = reader.memory(device(0)).unwrap();
    assert_eq!((memory.used_bytes, memory.shared_bytes), (4 * GIB, 0));

    // Killed: out of sight at once, and its bytes are free after the next look for the dead.
    other.kill();
    // A process that another test starts has a copy of the descriptor until it runs its program.
    drop(theirs);
    soon(|| {
        let seen = reader.processes(2, &view).unwrap();
        let used = seen.iter().map(|process| process.devices[0].used_bytes);
        used.sum::<u64>() == GIB
    });
    soon(|| usage.reap_dead_and_wait(&view).cleared == 1);
    // What it exported stays counted for as long as the other holds it.
    let memory = reader.memory(device(0)).unwrap();
    assert_eq!((memory.used_bytes, memory.shared_bytes), (3 * GIB, 2 * GIB));
    assert_eq!(usage.used_bytes(device(0)), 3 * GIB);
    mine.part(imported);
    assert_eq!(usage.used_bytes(device(0)), GIB);
    assert_eq!(reader.memory(device(0)).unwrap().used_bytes, GIB);
    mine.reserve(device(0), 3 * GIB, 4 * GIB).unwrap().commit();
}
