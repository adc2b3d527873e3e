//! Programs of another release: until there is one, those of this build with other numbers in place of
//! [`vcuda_region::release`].

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::Path;
use std::sync::LazyLock;

use tempfile::TempDir;
use vcuda_region::release::{MAGIC, NUMBER};

use crate::release_dir;

/// Files of a release that contain its version numbers.
const STAMPED: [&str; 3] = ["vcuda", "vcuda-manager", "libvcuda_shim.so"];
/// Offset of the version numbers in each of these files, searched once: the programs have tens of megabytes.
static STAMPS: LazyLock<[u64; STAMPED.len()]> = LazyLock::new(|| STAMPED.map(stamp_of));
const SHARED: [&str; 2] = ["libvcuda_simulator_cuda.so", "libvcuda_simulator_nvml.so"];

/// Versions that a release supports, the oldest and the newest of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speaks {
    /// Layouts of `limits` and `usage`.
    pub layouts: (u32, u32),
    /// Versions of registration.
    pub protocols: (u32, u32),
    /// Number of patch versions by which it is later than this one.
    pub later: i32,
}

/// A folder with `vcuda`, `vcuda-manager` and the shim of another release.
#[derive(Debug)]
pub struct Programs(TempDir);

impl Programs {
    /// Makes the folder.
    pub fn new(speaks: Speaks) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let words = [
            speaks.layouts.1,
            speaks.layouts.0,
            speaks.protocols.1,
            speaks.protocols.0,
            NUMBER.checked_add_signed(speaks.later).unwrap(),
        ];
        for (name, offset) in STAMPED.into_iter().zip(*STAMPS) {
            let to = folder.path().join(name);
            fs::copy(release_dir().join(name), &to).unwrap();
            let file = OpenOptions::new().write(true).open(&to).unwrap();
            file.write_all_at(&words.map(u32::to_ne_bytes).concat(), offset).unwrap();
        }
        for name in SHARED {
            symlink(release_dir().join(name), folder.path().join(name)).unwrap();
        }
        Self(folder)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.0.path()
    }
}

/// Offset of the version numbers in this file of the build under test.
fn stamp_of(name: &str) -> u64 {
    let bytes = fs::read(release_dir().join(name)).unwrap();
    let found: Vec<usize> =
        (0..bytes.len()).filter(|at| bytes[*at] == MAGIC[0] && bytes[*at..].starts_with(&MAGIC)).collect();
    assert_eq!(found.len(), 1, "{name} says in one place what it speaks");
    (found[0] + MAGIC.len()) as u64
}
