//! Every byte of the two files, changed while they are in use. Readers, writers and the processes themselves answer,
//! and none panics, hangs or takes a wrong limit for a right one. `VCUDA_SOAK` changes each bit.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test fails by panicking, or says where it hung"
)]

use std::fs::{self, OpenOptions};
use std::mem::offset_of;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use vcuda_limiter::token_bucket::TokenBucket;
use vcuda_quota::DeviceConfig;
use vcuda_region::clock::now_ns;
use vcuda_region::layout::{DeviceLimits, IdentityRecord, LimitsFile, SlotDevice, UsageFile};
use vcuda_region::limits::{Limits, LimitsWriter};
use vcuda_region::process::{Identity, ProcessView};
use vcuda_region::shared::{ObjectKey, ObjectRecord};
use vcuda_region::slots::{Slot, Usage};
use vcuda_region::usage_reader::UsageReader;
use vcuda_region::{DeviceIndex, GpuUuid};

use crate::made;

const LIMIT: u64 = 1 << 30;
const CAP: u32 = 300;
/// Name and place of the bytes changed.
type Part = (&'static str, Range<usize>);

/// Masks by which a byte is changed: `few` in a commit's run.
fn masks(few: &[u8]) -> Vec<u8> {
    match std::env::var_os("VCUDA_SOAK") {
        None => few.to_vec(),
        Some(_) => (0..8).map(|bit| 1 << bit).chain([0xff]).collect(),
    }
}

/// Calls `look` once for each changed byte, with the file as it was before each. One look has ten seconds.
fn each_changed(path: &Path, parts: &[Part], few: &[u8], mut look: impl FnMut(&str, usize) + Send) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    let sound = fs::read(path).unwrap();
    let (sender, at) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (name, range) in parts {
                for (offset, mask) in
                    range.clone().flat_map(|at| masks(few).into_iter().map(move |mask| (at, mask)))
                {
                    sender.send((*name, offset, mask)).unwrap();
                    file.write_all_at(&[sound[offset] ^ mask], offset as u64).unwrap();
                    look(name, offset);
                    file.write_all_at(&sound, 0).unwrap();
                }
            }
        });
        let mut last = None;
        loop {
            match at.recv_timeout(Duration::from_secs(10)) {
                Ok(place) => last = Some(place),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                // The thread cannot be ended, so the test is.
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    eprintln!("no answer after {last:?} was changed");
                    std::process::abort();
                }
            }
        }
    });
}

/// Whatever is written in `usage` while two processes use one device.
fn parts_of_usage() -> [Part; 6] {
    let slots = 2;
    let identities = offset_of!(UsageFile, identities);
    let lines = offset_of!(UsageFile, devices);
    let bucket = offset_of!(UsageFile, buckets);
    let (states, objects) = (offset_of!(UsageFile, object_states), offset_of!(UsageFile, objects));
    [
        ("the header", 0..identities),
        ("the identities", identities..identities + slots * size_of::<IdentityRecord>()),
        ("the records", lines..lines + slots * size_of::<SlotDevice>()),
        // The busy map behind it is 32 KiB of the same word.
        ("the bucket", bucket..bucket + offset_of!(TokenBucket, busy) + 16),
        ("the states", states..states + 16),
        ("the objects", objects..objects + 2 * size_of::<ObjectRecord>()),
    ]
}

#[test]
fn every_byte_of_usage() {
    let me = Identity::current().unwrap();
    let (_root, directory) = made(DeviceConfig::new(LIMIT, CAP));
    let device = DeviceIndex::new(0).unwrap();
    let usage = Usage::open(directory.path()).unwrap();
    let slot = usage.claim(&me).unwrap();
    slot.reserve(device, 8 << 20, LIMIT).unwrap().commit();
    slot.set_overhead(device, 4096);
    // A neighbour that lives, with memory, and memory that both hold.
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    let of_child = Identity::of(child.id()).unwrap();
    let neighbour = usage.claim(&of_child).unwrap();
    neighbour.reserve(device, 1 << 20, LIMIT).unwrap().commit();
    let key = ObjectKey::of(b"shared");
    let theirs = neighbour.join_foreign(key, device, 1 << 20, LIMIT).unwrap();
    let ours = slot.join(key).unwrap();
    let reader = UsageReader::open(directory.path()).unwrap();
    let view = ProcessView::new(me);

    let mut looks = 0;
    let (path, parts) = (directory.path().join("usage"), parts_of_usage());
    each_changed(&path, &parts, &[0xff], |name, offset| {
        from_outside(&reader, directory.path(), &view);
        use_slot(&slot, device);
        let _ = (usage.used_bytes(device), usage.unpaid_bytes(device), usage.in_flight(device, now_ns()));
        usage.reap_dead_and_wait(&view);
        // A newcomer finds a slot, or is told that there is none.
        let newcomer = Identity { start_ticks: 1, ..me };
        if let Ok(slot) = usage.claim(&newcomer) {
            use_slot(&slot, device);
            slot.leave();
        }
        match Usage::open(directory.path()) {
            Ok(usage) => _ = usage.used_bytes(device),
            // The header: an opener may be refused, never misled.
            Err(error) => assert!(offset < 24, "{name}, {offset}: {error}"),
        }
        looks += 1;
    });
    assert!(looks > 1000, "{looks}");
    // Put right again, all is as it was.
    assert_eq!(usage.used_bytes(device), (8 << 20) + 4096 + (1 << 20) + (1 << 20));
    slot.part(ours);
    neighbour.part(theirs);
    assert_eq!(usage.used_bytes(device), (8 << 20) + 4096 + (1 << 20));
    child.kill().unwrap();
    child.wait().unwrap();
    usage.reap_dead_and_wait(&view);
    assert_eq!(usage.used_bytes(device), (8 << 20) + 4096);
}

/// Questions of `vcuda smi` and the arbiter.
fn from_outside(reader: &UsageReader, path: &Path, view: &ProcessView) {
    assert!(reader.processes(2, view).unwrap().len() <= 512);
    for device in DeviceIndex::all().take(2) {
        reader.bucket(device).unwrap();
        reader.memory(device).unwrap();
        reader.busy(device, 1_000_000, 1_005_000).unwrap();
    }
    reader.bypasses(0).unwrap();
    assert_eq!(Limits::read(path).unwrap().name(), "a");
}

/// Operations of a process on its slot.
fn use_slot(slot: &Slot<'_>, device: DeviceIndex) {
    if let Ok(reservation) = slot.reserve(device, 4096, LIMIT) {
        reservation.commit();
        slot.release(device, 4096);
    }
    if let Err(denied) = slot.reserve(device, 2 * LIMIT, LIMIT) {
        slot.count_denied(device, &denied);
    }
    slot.charge_overhead(device, 64);
    slot.release_overhead(device, 64);
    let _ = slot.amounts(device);
    for object in [
        slot.join(ObjectKey::of(b"shared")),
        slot.join_foreign(ObjectKey::of(b"another"), device, 4096, LIMIT).ok(),
    ]
    .into_iter()
    .flatten()
    {
        slot.part(object);
    }
    let meter = slot.meter(device);
    if !meter.spend(10) {
        meter.take(slot.usage().bucket(device), 10);
    }
    meter.finish(10, 1);
}

#[test]
fn every_byte_of_limits() {
    let (_root, directory) = made(DeviceConfig::new(LIMIT, CAP));
    let (device, uuid) = (DeviceIndex::new(0).unwrap(), GpuUuid::from_bytes([1; 16]));
    let mapped = Limits::open(directory.path()).unwrap();
    let pace = mapped.pace(device).unwrap();
    let header = offset_of!(LimitsFile, devices);
    let parts: [Part; 2] =
        [("the header", 0..header), ("the device", header..header + size_of::<DeviceLimits>())];
    let mut refused = 0;
    let is_right = |limits: &Limits| {
        let limit = limits.memory_limit_bytes(device);
        let config = limits.config(device);
        (limit.is_err() || limit == Ok(LIMIT))
            && (config.is_err() || config == Ok(DeviceConfig::new(LIMIT, CAP)))
            && (limits.pace(device).is_err() || limits.pace(device) == Ok(pace))
            && limits.is_metered(device)
    };
    each_changed(&directory.path().join("limits"), &parts, &[0x01, 0x80, 0xff], |name, offset| {
        assert!(mapped.follow(now_ns()));
        assert!(is_right(&mapped), "mapped, {name}, {offset}");
        let limit = mapped.memory_limit_bytes(device).unwrap_or(0);
        assert_eq!(mapped.followed_limit_bytes(device), limit, "{name}, {offset}");
        let read = Limits::read(directory.path());
        if let Ok(read) = &read {
            assert!(is_right(read) && read.find(&uuid) == Some(device), "read, {name}, {offset}");
            assert_eq!(read.config(device).unwrap().memory_limit_bytes, LIMIT);
        } else {
            refused += 1;
        }
        // A writer refuses too, or writes what was asked for.
        if let Ok(mut writer) = LimitsWriter::open(directory.path()) {
            let config = DeviceConfig::new(LIMIT / 2, CAP);
            if writer.set_config(device, &config, now_ns()).is_ok() {
                let read = Limits::read(directory.path()).unwrap();
                assert_eq!(read.config(device), Ok(config), "written, {name}, {offset}");
            }
        } else {
            assert!(read.is_err(), "{name}, {offset}");
        }
    });
    assert!(refused > 150, "{refused}");
    assert!(mapped.follow(now_ns()));
    assert_eq!(mapped.memory_limit_bytes(device), Ok(LIMIT));
    assert_eq!(mapped.followed_limit_bytes(device), LIMIT);
}
