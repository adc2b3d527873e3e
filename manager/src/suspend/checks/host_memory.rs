//! Room in host memory: what is on the GPU becomes memory of the process itself, so it counts in its memory cgroups.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use vcuda_quota::MemorySize;

use super::{Check, Places, Resident};

/// A cgroup with a limit, and the processes' memory in it.
struct Limited {
    path: PathBuf,
    /// Memory that may still be added (bytes).
    room_bytes: u64,
    /// Memory of the processes below it that would be moved (bytes).
    needed_bytes: u64,
}

/// Whether the memory cgroups of the processes, and those above, have room. Only cgroup v2 is known.
pub(super) fn cgroups(places: &Places, processes: &[Resident]) -> Check {
    let mut all: BTreeMap<(u64, u64), Limited> = BTreeMap::new();
    for process in processes {
        for (path, room_bytes) in limited(places, process.pid) {
            // By its inode: each process may see a cgroup under another path.
            let Ok(metadata) = path.metadata() else { continue };
            let limited = all.entry((metadata.dev(), metadata.ino())).or_insert(Limited {
                path,
                room_bytes,
                needed_bytes: 0,
            });
            limited.needed_bytes = limited.needed_bytes.saturating_add(process.bytes);
        }
    }
    let full = all.values().find(|one| one.needed_bytes > one.room_bytes);
    match (full, all.values().map(|one| one.room_bytes).min()) {
        (Some(full), _) => Check::refused(
            "memory cgroup",
            format!(
                "its {} do not fit into the memory cgroup {}, which has room for {}",
                MemorySize(full.needed_bytes),
                full.path.display(),
                MemorySize(full.room_bytes)
            ),
            "raise its memory.max (limits.memory of the container), or free host memory in it",
        ),
        (None, Some(least)) => Check::passed("memory cgroup", format!("room for {}", MemorySize(least))),
        (None, None) => Check::passed("memory cgroup", "no limit is seen"),
    }
}

/// Whether the node has memory for all of it.
pub(super) fn node(places: &Places, processes: &[Resident]) -> Check {
    let needed: u64 = processes.iter().map(|process| process.bytes).sum();
    match available(&places.procfs) {
        Some(free) if free < needed => Check::refused(
            "host memory",
            format!(
                "its {} do not fit into host memory, of which {} are available",
                MemorySize(needed),
                MemorySize(free)
            ),
            "free host memory",
        ),
        Some(free) => {
            Check::passed("host memory", format!("{} for its {}", MemorySize(free), MemorySize(needed)))
        }
        None => Check::refused(
            "host memory",
            format!("{}/meminfo does not tell how much is available", places.procfs.display()),
            "give the manager a /proc",
        ),
    }
}

/// Memory that can be had without swapping (bytes).
fn available(procfs: &Path) -> Option<u64> {
    let text = fs::read_to_string(procfs.join("meminfo")).ok()?;
    let mut lines = text.lines();
    let figure = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = figure.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The cgroups of a process that have a limit, with their room (bytes).
fn limited(places: &Places, pid: u32) -> Vec<(PathBuf, u64)> {
    let Some((root, own)) = cgroup(places, pid) else {
        return Vec::new();
    };
    let within = own.ancestors().take_while(|path| path.starts_with(&root));
    within.filter_map(|path| Some((path.to_owned(), room(path)?))).collect()
}

/// Root of the hierarchy, and the process's cgroup in it; `None` if there is none, or the process has ended. A manager in a
/// container does not see the cgroups of others under `/sys/fs/cgroup`, but the process's own mount shows its container's.
fn cgroup(places: &Places, pid: u32) -> Option<(PathBuf, PathBuf)> {
    let text = fs::read_to_string(places.procfs.join(format!("{pid}/cgroup"))).ok()?;
    let own = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let path = places.cgroups.join(own);
    if !own.split('/').any(|part| part == "..") && path.join("cgroup.procs").exists() {
        return Some((places.cgroups.clone(), path));
    }
    let seen = places.procfs.join(format!("{pid}/root/sys/fs/cgroup"));
    seen.join("cgroup.procs").exists().then(|| (seen.clone(), seen))
}

/// Memory that a cgroup may still take (bytes); `None` if it has no limit. Pages of files that were not used lately are given up
/// first, so they count as room.
fn room(cgroup: &Path) -> Option<u64> {
    let figure = |name: &str| {
        let text = fs::read_to_string(cgroup.join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let limit = figure("memory.max")?;
    let used = figure("memory.current")?;
    let statistics = fs::read_to_string(cgroup.join("memory.stat")).unwrap_or_default();
    let mut lines = statistics.lines();
    let reclaimable = lines.find_map(|line| line.strip_prefix("inactive_file ")?.parse::<u64>().ok());
    Some(limit.saturating_sub(used.saturating_sub(reclaimable.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(files: &[(&str, String)]) -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            for (path, text) in files {
                let path = tree.0.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            tree
        }

        fn places(&self) -> Places {
            Places { procfs: self.0.path().join("proc"), cgroups: self.0.path().join("cgroup") }
        }
    }

    fn group(path: &str, max: &str, current: u64, inactive: u64) -> Vec<(String, String)> {
        vec![
            (format!("{path}/cgroup.procs"), String::new()),
            (format!("{path}/memory.max"), format!("{max}\n")),
            (format!("{path}/memory.current"), format!("{current}\n")),
            (format!("{path}/memory.stat"), format!("anon 1\ninactive_file {inactive}\n")),
        ]
    }

    fn tree(groups: &[Vec<(String, String)>], of: &[(u32, &str)]) -> Tree {
        let mut files: Vec<(String, String)> = groups.iter().flatten().cloned().collect();
        for (pid, path) in of {
            files.push((format!("proc/{pid}/cgroup"), format!("1:name=systemd:/x\n0::{path}\n")));
        }
        let files: Vec<(&str, String)> =
            files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
        Tree::new(&files)
    }

    fn resident(pid: u32, bytes: u64) -> Resident {
        Resident { pid, bytes }
    }

    #[test]
    fn a_full_cgroup_is_refused_and_cold_pages_of_files_are_room() {
        let limit = (4 * GIB).to_string();
        let tree = tree(&[group("cgroup/pod/c", &limit, 3 * GIB, GIB)], &[(7, "/pod/c")]);
        let check = cgroups(&tree.places(), &[resident(7, 2 * GIB)]);
        assert_eq!(check, Check::passed("memory cgroup", "room for 2 GiB"));
        let refusal = cgroups(&tree.places(), &[resident(7, 2 * GIB + 1)]).outcome.unwrap_err();
        assert!(
            refusal.why.contains("cgroup/pod/c") && refusal.why.ends_with("room for 2 GiB"),
            "{refusal:?}"
        );
    }

    #[test]
    fn processes_of_two_containers_share_the_room_of_their_pod() {
        let limit = (4 * GIB).to_string();
        let groups = [
            group("cgroup/pod", &limit, GIB, 0),
            group("cgroup/pod/a", "max", GIB, 0),
            group("cgroup/pod/b", "max", 0, 0),
        ];
        let tree = tree(&groups, &[(7, "/pod/a"), (8, "/pod/b")]);
        let two = |each| cgroups(&tree.places(), &[resident(7, each), resident(8, each)]).outcome;
        assert!(two(GIB).is_ok());
        assert!(two(2 * GIB).unwrap_err().why.contains("its 4 GiB"));
    }

    /// As from a manager in a container of its own.
    #[test]
    fn a_cgroup_that_lies_elsewhere_is_seen_through_the_process() {
        let limit = GIB.to_string();
        let tree = tree(&[group("proc/7/root/sys/fs/cgroup", &limit, 0, 0)], &[(7, "/../../pod/c")]);
        assert!(cgroups(&tree.places(), &[resident(7, GIB)]).outcome.is_ok());
        assert!(cgroups(&tree.places(), &[resident(7, GIB + 1)]).outcome.is_err());
    }

    #[test]
    fn without_a_limit_or_a_hierarchy_nothing_is_refused() {
        let tree = tree(&[group("cgroup/free", "max", GIB, 0)], &[(7, "/free"), (8, "/")]);
        let check = cgroups(&tree.places(), &[resident(7, GIB), resident(8, GIB), resident(9, GIB)]);
        assert_eq!(check, Check::passed("memory cgroup", "no limit is seen"));
    }

    #[test]
    fn the_node_needs_memory_for_all_processes_together() {
        let text = "MemTotal:       9 kB\nMemAvailable:   3145728 kB\n".to_owned();
        let tree = Tree::new(&[("proc/meminfo", text)]);
        let check = |each| node(&tree.places(), &[resident(7, each), resident(8, each)]).outcome;
        assert_eq!(check(GIB), Ok("3 GiB for its 2 GiB".to_owned()));
        assert!(check(2 * GIB).unwrap_err().why.contains("of which 3 GiB are available"));
        assert!(node(&Tree::new(&[]).places(), &[]).outcome.is_err());
    }
}
