//! Whether a directory is in use: by a lock, by a process whose environment names it, or by a slot.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::ENV_DIRECTORY;
use crate::process::{Identity, ProcessView, environment};
use crate::usage_reader::UsageReader;

/// Whether `path` still names the directory that is open as `lock`.
pub(super) fn is_linked(path: &Path, lock: &File) -> bool {
    let same = |a: fs::Metadata, b: fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    fs::symlink_metadata(path).is_ok_and(|named| lock.metadata().is_ok_and(|open| same(named, open)))
}

/// Directories that processes other than the calling one were started with, by their environments. A daemon closes inherited
/// descriptors, and may use a GPU only later.
pub(super) fn named_by_environments() -> BTreeSet<PathBuf> {
    let is_process = |name: &OsStr| name.as_bytes().iter().all(u8::is_ascii_digit);
    let me = std::process::id().to_string();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let others = entries.filter(|entry| is_process(&entry.file_name()) && entry.file_name() != me.as_str());
    // Another user's environment is not shown, nor that of a process that has just ended.
    let environments = others.filter_map(|entry| environment(&entry.path()).ok());
    let name = [ENV_DIRECTORY.as_bytes(), b"="].concat();
    let named = |variables: Vec<u8>| {
        let values = variables.split(|byte| *byte == 0).filter_map(|one| one.strip_prefix(&*name));
        values.map(|value| PathBuf::from(OsStr::from_bytes(value))).collect::<Vec<_>>()
    };
    environments.flat_map(named).collect()
}

/// Whether a slot of `usage` belongs to a living process. A `usage` that cannot be read has no slots: its processes,
/// if they live, have only harmed themselves. One of another version may have some: it is left to a program that can
/// read it.
pub(super) fn has_living_slots(path: &Path, me: &Identity) -> bool {
    match UsageReader::open(path) {
        Ok(usage) => usage.has_living(&ProcessView::new(*me)).unwrap_or(false),
        Err(error) => error.is_of_another_version(),
    }
}
