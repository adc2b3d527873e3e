//! Files of the release before and of the release after, as those would make them: until there are releases, a header
//! changed by hand. A program goes together with both or says which two versions do not; a quota is never read wrong.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use vcuda_quota::DeviceConfig;
use vcuda_region::clock::now_ns;
use vcuda_region::directory::{self, Directory, Tenant};
use vcuda_region::layout::{OLDEST_VERSION, VERSION};
use vcuda_region::limits::{Limits, LimitsWriter, OpenError, WriteError};
use vcuda_region::process::Identity;
use vcuda_region::slots::Usage;
use vcuda_region::usage_reader::UsageReader;
use vcuda_region::{DeviceIndex, GpuUuid};

#[expect(unreachable_pub, reason = "the system tests have it in their library")]
#[path = "../../../../tests/src/release.rs"]
mod release;
use release::of_release;

const LIMIT: u64 = 1 << 30;
const APPENDED: usize = 4096;

fn tenant() -> Tenant {
    Tenant {
        name: "a".to_owned(),
        devices: vec![(GpuUuid::from_bytes([1; 16]), DeviceConfig::new(LIMIT, 300))],
        is_suspendable: false,
        memory_wait_ms: None,
    }
}

fn made(root: &Path, _me: &Identity) -> Directory {
    fs::set_permissions(root, PermissionsExt::from_mode(0o700)).unwrap();
    Directory::create(root, &tenant(), b"", None, now_ns()).unwrap()
}

#[test]
fn the_files_of_a_release_before_and_after_are_used_to_the_byte() {
    let me = Identity::current().unwrap();
    let device = DeviceIndex::new(0).unwrap();
    for (version, compatible, appended) in [
        (OLDEST_VERSION, OLDEST_VERSION, 0),
        (VERSION + 1, VERSION, APPENDED),
        (VERSION + 1, OLDEST_VERSION, 0),
        (VERSION + 7, VERSION, 8),
    ] {
        let root = tempfile::tempdir().unwrap();
        let directory = made(root.path(), &me);
        of_release(directory.path(), version, compatible, appended);
        let limits = Limits::open(directory.path()).unwrap();
        assert_eq!(limits.memory_limit_bytes(device), Ok(LIMIT));
        let mut writer = LimitsWriter::open(directory.path()).unwrap();
        writer.set_config(device, &DeviceConfig::new(LIMIT / 2, 300), now_ns()).unwrap();
        assert!(limits.follow(now_ns()));
        assert_eq!(limits.memory_limit_bytes(device), Ok(LIMIT / 2));
        assert_eq!(Limits::read(directory.path()).unwrap().memory_limit_bytes(device), Ok(LIMIT / 2));
        let usage = Usage::open(directory.path()).unwrap();
        let slot = usage.claim(&me).unwrap();
        slot.reserve(device, LIMIT / 2, LIMIT / 2).unwrap().commit();
        assert!(slot.reserve(device, 1, LIMIT / 2).is_err());
        let reader = UsageReader::open(directory.path()).unwrap();
        assert_eq!(reader.memory(device).unwrap().used_bytes, LIMIT / 2);
        assert!(Directory::enter(directory.path()).unwrap().is_some());
        for name in ["limits", "usage"] {
            let bytes = fs::read(directory.path().join(name)).unwrap();
            assert_eq!(bytes[8..12], version.to_ne_bytes(), "its maker's version");
            assert!(bytes[bytes.len() - appended..].iter().all(|byte| *byte == 0xab));
        }
    }
}

#[test]
fn the_files_of_a_release_that_does_not_go_together_are_refused_and_left_alone() {
    let me = Identity::current().unwrap();
    let device = DeviceIndex::new(0).unwrap();
    for (version, compatible, appended) in [
        (OLDEST_VERSION - 1, OLDEST_VERSION - 1, 0),
        (0, 0, 0),
        (VERSION + 1, VERSION + 1, 0),
        (VERSION + 1, VERSION + 1, APPENDED),
    ] {
        let root = tempfile::tempdir().unwrap();
        let directory = made(root.path(), &me);
        let mut writer = LimitsWriter::open(directory.path()).unwrap();
        of_release(directory.path(), version, compatible, appended);
        let before = fs::read(directory.path().join("limits")).unwrap();
        let errors = [
            Limits::open(directory.path()).unwrap_err(),
            Limits::read(directory.path()).unwrap_err(),
            LimitsWriter::open(directory.path()).unwrap_err(),
            Usage::open(directory.path()).unwrap_err(),
            UsageReader::open(directory.path()).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, OpenError::Version { found, .. } if found == version), "{error}");
            let words = error.to_string();
            assert!(words.contains(&format!("layout version {version}")), "{words}");
            assert!(words.contains(&format!("this program uses {OLDEST_VERSION} to {VERSION}")), "{words}");
            assert!(words.contains("; use the vcuda release that made it"), "{words}");
        }
        // A writer that had the file open before sees that it is another version's now.
        let change = writer.set_config(device, &DeviceConfig::new(1, 1), now_ns());
        assert!(matches!(change, Err(WriteError::Open(OpenError::Version { .. }))));
        assert!(writer.refresh().is_err());
        assert_eq!(fs::read(directory.path().join("limits")).unwrap(), before);
        // Whether its processes live cannot be told: it is not ours to remove, nor to give to another run.
        let path = directory.path().to_owned();
        drop(directory);
        assert!(directory::lock_unused(std::slice::from_ref(&path), &me)[0].is_none());
        assert_eq!(fs::read(path.join("limits")).unwrap(), before);
    }
}
