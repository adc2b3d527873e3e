//! Files in which a tenant has scribbled: whoever reads them gets figures or an error, never a panic, a hang or a fault.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::OpenOptions;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::Path;

use proptest::prelude::*;
use vcuda_quota::DeviceConfig;
use vcuda_region::clock::now_ns;
use vcuda_region::directory;
use vcuda_region::layout::UsageFile;
use vcuda_region::limits::{Limits, LimitsWriter};
use vcuda_region::process::{Identity, ProcessView};
use vcuda_region::shared::ObjectKey;
use vcuda_region::slots::{Slot, Usage};
use vcuda_region::usage_reader::UsageReader;
use vcuda_region::{DeviceIndex, GpuUuid};

use crate::made;

fn scribble(path: &Path, at: f64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    let size = file.metadata().unwrap().len();
    // The first 24 bytes decide whether the file is opened at all; that has its own tests.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a position in a file of some MiB"
    )]
    let offset = 24 + (at * (size - 24 - bytes.len() as u64) as f64) as u64;
    file.write_all_at(bytes, offset).unwrap();
}

/// Operations of a process on its slot, with a shared object of this key among others.
fn use_slot(slot: Slot<'_>, maybe_left: ObjectKey) {
    let device = DeviceIndex::new(0).unwrap();
    if let Ok(reservation) = slot.reserve(device, 4096, 1 << 30) {
        reservation.commit();
        slot.release(device, 4096);
    }
    slot.set_overhead(device, 7);
    let key = ObjectKey::of(b"key");
    let objects = [
        slot.share(key, device, 100),
        slot.join(key),
        slot.join_foreign(ObjectKey::of(b"other"), device, 100, 1 << 30).ok(),
        slot.join(maybe_left),
    ];
    let usage = slot.usage();
    let _ = usage.unpaid_bytes(device);
    for object in objects.into_iter().flatten() {
        slot.part(object);
    }
    let _ = (usage.in_flight(device, now_ns()), slot.meter(device).launches(), usage.bucket(device).denied());
    slot.leave();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_in_the_files_readers_answer(
        usage_scribbles in proptest::collection::vec((0.0..1.0_f64, proptest::collection::vec(any::<u8>(), 1..4096)), 0..20),
        head in proptest::collection::vec(any::<u8>(), 112..2000),
        objects in proptest::collection::vec(any::<u8>(), 0..20_000),
        limits_scribbles in proptest::collection::vec((0.0..1.0_f64, proptest::collection::vec(any::<u8>(), 1..40)), 0..3),
    ) {
        let me = Identity::current().unwrap();
        let (_root, directory) = made(DeviceConfig::new(1 << 30, 300));
        let path = directory.path();
        let view = ProcessView::new(me);
        for (at, bytes) in &usage_scribbles {
            scribble(&path.join("usage"), *at, bytes);
        }
        // Always the number of slots and the first identities.
        scribble(&path.join("usage"), 0.0, &head);
        // And the objects.
        let first_object = offset_of!(UsageFile, object_states) as f64 / size_of::<UsageFile>() as f64;
        scribble(&path.join("usage"), first_object, &objects);
        for (at, bytes) in &limits_scribbles {
            scribble(&path.join("limits"), *at, bytes);
        }
        let reader = UsageReader::open(path).unwrap();
        let processes = reader.processes(16, &view).unwrap();
        prop_assert!(processes.len() <= 512);
        for device in DeviceIndex::all() {
            reader.bucket(device).unwrap();
            reader.memory(device).unwrap();
            reader.busy(device, 1_000_000, 1_005_000).unwrap();
        }
        let usage = Usage::open(path).unwrap();
        usage.reap_dead_and_wait(&view);
        if let Ok(slot) = usage.claim(&me) {
            // A name and an amount that the scribbles may have left there.
            use_slot(slot, ObjectKey::from_parts(u64::from_ne_bytes([head[0]; 8]), 0));
        }
        if let Ok(limits) = Limits::open(path) {
            // What passes is what was written.
            let device = limits.find(&GpuUuid::from_bytes([1; 16])).unwrap();
            prop_assert_eq!(limits.memory_limit_bytes(device), Ok(1 << 30));
            prop_assert_eq!(limits.config(device).unwrap().cap_permille, 300);
        }
        let path = path.to_owned();
        drop(directory);
        directory::lock_unused(std::slice::from_ref(&path), &me);
    }
}

#[test]
fn a_truncated_usage_is_an_error_to_those_who_only_look() {
    let me = Identity::current().unwrap();
    let (_root, directory) = made(DeviceConfig::new(1 << 30, 300));
    Usage::open(directory.path()).unwrap().claim(&me).unwrap();
    let reader = UsageReader::open(directory.path()).unwrap();
    OpenOptions::new().write(true).open(directory.path().join("usage")).unwrap().set_len(100).unwrap();
    assert!(reader.processes(1, &ProcessView::new(me)).is_err());
    assert!(reader.bucket(DeviceIndex::new(0).unwrap()).is_err());
}

#[test]
fn limits_that_are_cut_under_a_running_process_are_a_limit_of_nothing() {
    let (_root, directory) = made(DeviceConfig::new(1 << 30, 1000));
    let path = directory.path().join("limits");
    let limits = Limits::open(directory.path()).unwrap();
    let mut writer = LimitsWriter::open(directory.path()).unwrap();
    let device = DeviceIndex::new(0).unwrap();
    let config = limits.config(device).unwrap();
    let sound = std::fs::read(&path).unwrap();
    for size in [0, 1, 100, 255, 4000] {
        // What is left is what was there, or nothing.
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(size).unwrap();
        assert!(limits.follow(now_ns()));
        // What is short of a page still reads as zeros to its end.
        let is_gone = limits.memory_limit_bytes(device).is_err();
        assert!(is_gone && limits.config(device).is_err() && limits.pace(device).is_err(), "{size}");
        assert!(limits.is_metered(device));
        assert!(writer.set_config(device, &config, now_ns()).is_err());
        assert!(writer.refresh().is_err());
        assert_eq!(file.metadata().unwrap().len(), size, "no reader makes it longer");
        file.write_all_at(&sound, 0).unwrap();
        assert!(limits.follow(now_ns()));
        assert_eq!(limits.config(device), Ok(config));
        assert!(!limits.is_metered(device));
    }
}
