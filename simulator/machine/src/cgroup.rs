//! Control groups (cgroup v2) as the kernel's driver knows them: by number.
//!
//! A cgroup's number is the inode of its directory, which the kernel gives to no other one (cgroups(7) does not promise
//! it; kernfs does so). A process's cgroup is the line `0::` of `/proc/PID/cgroup`, under the cgroup2 mount of the reader.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A cgroup in a chain of ancestors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) id: u64,
    /// Whether it has the files of a controller that is not threaded, as `dmem` ("Control Group v2", "Threads").
    pub(crate) has_files: bool,
}

/// A cgroup and its ancestors, without the root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cgroup {
    /// From the cgroup itself to the uppermost; none: the root.
    pub(crate) levels: Vec<Level>,
}

impl Cgroup {
    /// The cgroup of a directory; `None` if it is not the directory of a cgroup, or the root's.
    pub fn at(path: &Path) -> Option<Cgroup> {
        let path = path.canonicalize().ok()?;
        let levels: Vec<Level> = path.ancestors().map_while(level).collect();
        (!levels.is_empty()).then_some(Cgroup { levels })
    }

    /// The cgroup of a process, by its PID here or "self"; `None` if this process cannot see it.
    pub(crate) fn of_process(pid: &str) -> Option<Cgroup> {
        let path = path_of_process(pid)?;
        if !path.is_dir() {
            return None;
        }
        Some(Cgroup::at(&path).unwrap_or_default())
    }
}

/// The directory as a level; `None` for the root and for what is no cgroup, neither of which has a type.
fn level(directory: &Path) -> Option<Level> {
    let kind = fs::read_to_string(directory.join("cgroup.type")).ok()?;
    Some(Level { id: fs::metadata(directory).ok()?.ino(), has_files: kind.starts_with("domain") })
}

fn path_of_process(pid: &str) -> Option<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    let (root, point) = mount()?;
    Some(point.join(Path::new(path).strip_prefix(root).ok()?))
}

/// Root within the hierarchy and mount point of this process's cgroup2 file system (proc_pid_mountinfo(5)).
fn mount() -> Option<(PathBuf, PathBuf)> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    let mut fields = line.split(' ').skip(3);
    Some((fields.next()?.into(), fields.next()?.into()))
}

/// Numbers of all cgroups that this process can see.
pub(crate) fn living() -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    let mut left: Vec<PathBuf> = mount().map(|(_, point)| point).into_iter().collect();
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                found.extend(entry.metadata().map(|about| about.ino()));
                left.push(entry.path());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_directories_are_no_cgroups() {
        assert_eq!(Cgroup::at(Path::new("/proc")), None);
        assert_eq!(Cgroup::at(Path::new("/missing")), None);
        // The root has no limits of its own.
        assert_eq!(mount().and_then(|(_, point)| Cgroup::at(&point)), None);
    }
}
