//! Small file systems in memory.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::skip;

/// A tmpfs, unmounted on drop.
#[derive(Debug)]
pub struct Tmpfs {
    over: PathBuf,
    /// Removed after the file system is unmounted.
    own: Option<TempDir>,
}

impl Tmpfs {
    /// Mounts a tmpfs with these options over an empty directory of its own. `None`, with a skip message, if mounting is
    /// not permitted.
    pub fn new(options: &str) -> Option<Self> {
        let own = tempfile::tempdir().unwrap();
        let mut mounted = Self::over(own.path(), options)?;
        mounted.own = Some(own);
        Some(mounted)
    }

    /// As [`Tmpfs::new`], over this directory.
    pub fn over(directory: &Path, options: &str) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "vcuda-test"]).arg(directory);
        if mount.output().is_ok_and(|output| output.status.success()) {
            return Some(Tmpfs { over: directory.to_owned(), own: None });
        }
        skip("full and read-only disks: mounting a tmpfs is not permitted here");
        None
    }

    /// Path of the mount point.
    pub fn path(&self) -> &Path {
        &self.over
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazily, as a process of the test may not have ended yet.
        let _ = Command::new("umount").arg("-l").arg(&self.over).status();
    }
}
