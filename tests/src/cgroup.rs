//! Control groups (cgroup v2) of a test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::{Fixture, skip, soon};

/// A cgroup and those below it, removed on drop, once their processes have ended.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// An empty one below the root. `None`, with a skip message, if there is no cgroup2 hierarchy or it cannot be written.
    pub fn new() -> Option<Cgroup> {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = mounts.lines().find(|line| line.contains(" - cgroup2 "));
        let point = line.and_then(|line| line.split(' ').nth(4)).map(Path::new);
        point.into_iter().for_each(remove_left);
        let path = point.map(|point| point.join(format!("vcuda-test-{}-{number}", std::process::id())));
        match path.filter(|path| std::fs::create_dir(path).is_ok()) {
            Some(path) => Some(Cgroup { path }),
            None => {
                skip("memory limits of cgroups: no cgroup2 hierarchy that can be written");
                None
            }
        }
    }

    /// Its directory.
    pub fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// A cgroup below it.
    pub fn child(&self, name: &str) -> Cgroup {
        let path = self.path.join(name);
        std::fs::create_dir(&path).unwrap();
        Cgroup { path }
    }

    /// Makes it a threaded one, which has no files of `dmem` ("Control Group v2", "Threads").
    pub fn make_threaded(&self) {
        std::fs::write(self.path.join("cgroup.type"), "threaded").unwrap();
    }

    /// Makes a command of this fixture run `program` in the cgroup: the command's own program must be a shell.
    pub fn wrap(&self, command: &mut Command, program: &Path) {
        command.args(["-c", "echo 0 >\"$0/cgroup.procs\" && exec \"$@\"", self.path()]).arg(program);
    }

    /// The program in this cgroup, without the shim.
    pub fn bare(&self, fixture: &Fixture, program: &Path) -> Command {
        let mut command = fixture.bare("/bin/sh");
        self.wrap(&mut command, program);
        command
    }

    /// The program in this cgroup, as a tenant.
    pub fn tenant(&self, fixture: &Fixture, quota: &[&str], program: &Path) -> Command {
        let mut command = fixture.tenant(quota, "/bin/sh");
        self.wrap(&mut command, program);
        command
    }
}

/// Age from which a cgroup without processes is what a failed test has left.
const LEFT_AFTER: Duration = Duration::from_secs(3600);

/// Removes the cgroups below `point` that failed tests, or the containers in them, have left. The kernel keeps those with processes.
fn remove_left(point: &Path) {
    let is_old = |path: &PathBuf| {
        let changed = path.metadata().and_then(|found| found.modified());
        changed.is_ok_and(|time| time.elapsed().is_ok_and(|age| age >= LEFT_AFTER))
    };
    let below =
        |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_tests = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        name.starts_with(b"vcuda-test-") || name.starts_with(b"vcuda-tmp")
    };
    for path in below(point).filter(|path| is_tests(path) && is_old(path)) {
        below(&path).chain([path.clone()]).for_each(|path| drop(std::fs::remove_dir(path)));
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if self.path.exists() && !std::thread::panicking() {
            soon("its processes have ended", || std::fs::remove_dir(&self.path).is_ok());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failed_test_has_left_is_removed_an_hour_later() {
        let point = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = point.path().join(name);
            std::fs::create_dir_all(path.join("child")).unwrap();
            path
        };
        let [left, new, other] = ["vcuda-test-1-0", "vcuda-test-2-0", "vcuda"].map(make);
        for old in [&left, &other] {
            let before = std::time::SystemTime::now() - LEFT_AFTER;
            std::fs::File::open(old).unwrap().set_modified(before).unwrap();
        }
        remove_left(point.path());
        assert_eq!([left, new, other].map(|path| path.exists()), [false, true, true]);
    }
}
