//! Cgroups (v2) of processes, as the kernel shows them to this process.

use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};
use vcuda_region::process;

/// Name of the kernel's first cgroup namespace (`PROC_CGROUP_INIT_INO`, include/linux/proc_ns.h).
const FIRST_NAMESPACE: &str = "cgroup:[4026531835]";

/// A cgroup by its directory. Another one that is made there later has another inode.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Cgroup {
    pub(super) path: PathBuf,
    inode: u64,
}

impl Cgroup {
    fn at(path: PathBuf) -> Option<Self> {
        let inode = path.symlink_metadata().ok()?.ino();
        Some(Self { path, inode })
    }

    pub(super) fn exists(&self) -> bool {
        Cgroup::at(self.path.clone()).as_ref() == Some(self)
    }

    /// Host PIDs of its processes; 0 for one that cannot be seen from here.
    pub(super) fn processes(&self) -> io::Result<Vec<u32>> {
        let text = fs::read_to_string(self.path.join("cgroup.procs"))?;
        Ok(text.lines().map(|line| line.parse().unwrap_or(0)).collect())
    }

    /// Whether there are cgroups below it.
    pub(super) fn has_children(&self) -> bool {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
    }
}

/// The hierarchy of cgroup v2.
#[derive(Debug)]
pub(super) struct Hierarchy {
    /// Where its root is mounted; `None`: it is not.
    mount: Option<PathBuf>,
    /// This process's PID namespace.
    pid_namespace: Option<PathBuf>,
}

impl Hierarchy {
    /// As the kernel sees it, if this process may: in a container's own cgroup namespace the cgroups of others have no path. The calling
    /// thread alone sees it so, also afterwards.
    pub(super) fn new() -> Self {
        enter_first_namespace();
        let mounts = fs::read_to_string(process::own_file("mountinfo")).unwrap_or_default();
        Self {
            mount: mounts.lines().find_map(mount_of).map(PathBuf::from),
            pid_namespace: fs::read_link(process::own_file("ns/pid")).ok(),
        }
    }

    /// Whether this process sees the hierarchy.
    pub(super) fn is_seen(&self) -> bool {
        self.mount.is_some()
    }

    /// The cgroup of a process; `None` if it cannot be seen from here.
    pub(super) fn cgroup_of(&self, host_pid: u32) -> Option<Cgroup> {
        let text = fs::read_to_string(process::folder_of(host_pid).join("cgroup")).ok()?;
        let own = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
        // Of a process above the root of this one's cgroup namespace.
        if own.split('/').any(|part| part == "..") {
            return None;
        }
        Cgroup::at(self.mount.as_ref()?.join(own))
    }

    /// Whether the process is certainly in another PID namespace than this one: in a container.
    pub(super) fn is_elsewhere(&self, host_pid: u32) -> bool {
        let its = fs::read_link(process::folder_of(host_pid).join("ns/pid")).ok();
        self.pid_namespace.is_some() && its.is_some() && its != self.pid_namespace
    }
}

/// Has this thread see cgroups from the kernel's first cgroup namespace, which the node's first process (1) has, or the kernel's own (2).
/// Without the power for it all stays as it is.
fn enter_first_namespace() {
    let first = ["/proc/1/ns/cgroup", "/proc/2/ns/cgroup"]
        .into_iter()
        .find(|path| fs::read_link(path).is_ok_and(|name| name.as_os_str() == FIRST_NAMESPACE));
    if let Some(Ok(namespace)) = first.map(fs::File::open) {
        let _ = move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::ControlGroup));
    }
}

/// The mount point of a line of `mountinfo`, if it is of the root of cgroup v2.
fn mount_of(line: &str) -> Option<&str> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let mut words = mount.split(' ').skip(3);
    let (root, point) = (words.next()?, words.next()?);
    (root == "/" && filesystem.starts_with("cgroup2 ")).then_some(point)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_of_the_whole_hierarchy_is_found() {
        let line =
            |root, kind| format!("30 24 0:26 {root} /sys/fs/cgroup rw,nosuid shared:4 - {kind} cgroup rw");
        assert_eq!(mount_of(&line("/", "cgroup2")), Some("/sys/fs/cgroup"));
        assert_eq!(mount_of(&line("/pod", "cgroup2")), None);
        assert_eq!(mount_of(&line("/", "cgroup")), None);
    }
}
