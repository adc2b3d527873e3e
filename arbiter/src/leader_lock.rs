//! The leader lock: a file under the root that one process of this user has locked. The kernel drops the lock when that
//! process ends, and the process writes a beat there, by which others see that it is not stopped.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// After so many looks without a beat, an owner that is stopped is ended.
const STOPPED_MISSED: u32 = 3;
/// After so many, any owner.
const HUNG_MISSED: u32 = 60;

/// Mode of a lock's file: who can open a file can lock it.
const OWNER_ONLY: u32 = 0o600;

/// Which of the locks under a root. Arbiters of other releases use the same files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Lock of the process that arbitrates.
    Leader,
    /// Lock of the process that takes over from it.
    Standby,
    /// Lock of the manager, held as long as it lives. Other arbiters of the root end as soon as they see it.
    Manager,
}

impl Kind {
    fn file(self) -> &'static str {
        match self {
            Self::Leader => "arbiter.lock",
            Self::Standby => "arbiter.second.lock",
            Self::Manager => "arbiter.manager.lock",
        }
    }
}

/// One of the locks, owned by this process or not.
#[derive(Debug)]
pub struct LeaderLock {
    file: File,
    /// The owner's beat as it was last seen, and in how many looks since it has not changed.
    seen: (u64, u32),
}

impl LeaderLock {
    /// Opens the lock of this kind under `root`, without acquiring it. A process that owns a lock must not open it a second
    /// time: the lock goes with the first descriptor of the file that the process closes (fcntl(2)).
    ///
    /// # Errors
    /// The file cannot be made or opened.
    pub fn open(root: &Path, kind: Kind) -> io::Result<Self> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(OWNER_ONLY)
            .open(root.join(kind.file()))?;
        // Releases before made it with the umask's mode: any user could lock it, and keep all arbiters out.
        file.set_permissions(Permissions::from_mode(OWNER_ONLY))?;
        Ok(Self { file, seen: (0, 0) })
    }

    /// Acquires it unless another process owns it: whether this process does now. It is released when the process ends, or
    /// when this is dropped.
    ///
    /// # Errors
    /// The file system has no locks.
    pub fn try_acquire(&self) -> io::Result<bool> {
        match fcntl(&self.file, FcntlArg::F_SETLK(&whole_file(libc::F_WRLCK))) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Releases it.
    pub fn release(&self) {
        // What cannot be unlocked is unlocked when the process ends.
        let _ = fcntl(&self.file, FcntlArg::F_SETLK(&whole_file(libc::F_UNLCK)));
    }

    /// The PID of the other process that owns it: 0 if that is of another PID namespace.
    ///
    /// # Errors
    /// The file system has no locks.
    pub fn owner(&self) -> io::Result<Option<i32>> {
        let mut found = whole_file(libc::F_WRLCK);
        fcntl(&self.file, FcntlArg::F_GETLK(&mut found))?;
        Ok((i32::from(found.l_type) != libc::F_UNLCK).then_some(found.l_pid))
    }

    /// Says that this process, which owns it, is at work.
    pub fn beat(&self, now_ns: u64) {
        // A full disk must not end the arbiter: a process that looks then takes it for stopped, and replaces it.
        let _ = self.file.write_all_at(&now_ns.to_ne_bytes(), 0);
    }

    /// In how many looks in a row the owner has not beaten. Counted in looks, not in time: if all processes are stopped
    /// for a while, the owner is not to blame.
    fn missed(&mut self) -> u32 {
        let mut beat = [0; 8];
        let read = self.file.read_exact_at(&mut beat, 0).is_ok();
        let beat = if read { u64::from_ne_bytes(beat) } else { 0 };
        let missed = if beat == self.seen.0 { self.seen.1.saturating_add(1) } else { 0 };
        self.seen = (beat, missed);
        missed
    }

    /// Ends an owner that does not beat: one that is stopped after [`STOPPED_MISSED`] looks, any other, that may just be
    /// short of processor time, after [`HUNG_MISSED`].
    pub fn end_silent_owner(&mut self) -> io::Result<()> {
        let missed = self.missed();
        if missed < STOPPED_MISSED {
            return Ok(());
        }
        // It does not go on by itself, so its number is not another's between the question and the signal.
        if let Some(pid) = self.owner()?.filter(|pid| *pid > 0)
            && (missed >= HUNG_MISSED || is_stopped(pid))
        {
            // One that may not be killed keeps the lock; it is tried again.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        Ok(())
    }
}

/// A lock of `kind` on all of a file (fcntl(2)).
fn whole_file(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: libc::c_short::try_from(kind).unwrap_or_default(),
        l_whence: 0,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Whether a signal or a debugger has stopped the process (proc_pid_stat(5)).
fn is_stopped(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    matches!(state, Some('T' | 't'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_user_can_open_a_lock_whether_it_is_new_or_not() {
        let root = tempfile::tempdir().unwrap();
        for kind in [Kind::Leader, Kind::Standby, Kind::Manager] {
            let path = root.path().join(kind.file());
            let mode = || path.metadata().unwrap().permissions().mode() & 0o777;
            drop(LeaderLock::open(root.path(), kind).unwrap());
            assert_eq!(mode(), 0o600);
            std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
            drop(LeaderLock::open(root.path(), kind).unwrap());
            assert_eq!(mode(), 0o600);
        }
    }

    #[test]
    fn a_beat_that_does_not_change_is_missed() {
        let root = tempfile::tempdir().unwrap();
        let mut lock = LeaderLock::open(root.path(), Kind::Standby).unwrap();
        assert!(lock.try_acquire().unwrap());
        // Of its own lock, a process is not told.
        assert_eq!(lock.owner().unwrap(), None);
        lock.beat(7);
        assert_eq!([lock.missed(), lock.missed(), lock.missed()], [0, 1, 2]);
        lock.beat(8);
        assert_eq!([lock.missed(), lock.missed()], [0, 1]);
        assert!(!is_stopped(i32::try_from(std::process::id()).unwrap()));
        lock.release();
    }
}
