//! Callers of a user's own manager, which ends when it has no tenant. Each locks a file shared while it is connected, and the manager locks
//! it alone before it ends. So it never ends under a caller, and one that comes meanwhile waits for its end and starts the next one.

use core::time::Duration;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::sys::{self, Lock};

/// File under the manager's root that its callers lock.
const FILE: &str = "callers.lock";
/// Time for which a caller waits for the end of a manager.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// The callers of the manager under a root.
#[derive(Debug)]
pub struct Callers(PathBuf);

/// A caller, for as long as this lives, or a manager that takes none any more.
#[derive(Debug)]
pub struct CallersLock(#[expect(dead_code, reason = "the kernel's lock lasts while it is open")] File);

impl Callers {
    /// Makes the file, which has to be there before the manager listens.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn of(root: &Path) -> io::Result<Self> {
        let path = root.join(FILE);
        OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
        Ok(Self(path))
    }

    /// Takes no callers while the result lives; `None` if there are some.
    ///
    /// # Errors
    /// The file is gone.
    pub fn shut(&self) -> io::Result<Option<CallersLock>> {
        let file = open(&self.0)?;
        Ok(sys::try_lock(&file, Lock::Exclusive)?.then_some(CallersLock(file)))
    }
}

/// Locks the file for a caller who has seen that a manager listens, and now connects. `None` if the manager is no user's own, or hangs as
/// it ends.
pub fn call(root: &Path) -> Option<CallersLock> {
    let file = open(&root.join(FILE)).ok()?;
    let is_locked = sys::lock_within(&file, Lock::Shared, ENDS_WITHIN).unwrap_or(false);
    is_locked.then_some(CallersLock(file))
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_ends_under_no_caller() {
        let root = tempfile::tempdir().unwrap();
        assert!(call(root.path()).is_none(), "no user's own manager");
        let callers = Callers::of(root.path()).unwrap();
        let (one, two) = (call(root.path()), call(root.path()));
        assert!(one.is_some() && two.is_some());
        drop(one);
        assert!(callers.shut().unwrap().is_none());
        drop(two);
        let shut = callers.shut().unwrap();
        assert!(shut.is_some());
        std::thread::scope(|scope| {
            let late = scope.spawn(|| call(root.path()));
            std::thread::sleep(Duration::from_millis(50));
            assert!(!late.is_finished());
            drop(shut);
            assert!(late.join().unwrap().is_some());
        });
    }
}
