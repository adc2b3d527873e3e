//! A post that one process of this user holds: a lock that the kernel drops when its holder ends, and a beat by which
//! others see that the holder is not stopped.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// After so many looks without a beat, a holder that is stopped is dismissed.
const STOPPED_MISSED: u32 = 3;
/// After so many, any.
const HUNG_MISSED: u32 = 60;

/// One of the arbiter's posts, held or not.
#[derive(Debug)]
pub struct Post {
    file: File,
    /// The holder's beat as it was last seen, and in how many looks since it has not changed.
    seen: (u64, u32),
}

impl Post {
    /// Opens the post of this name under `root`, without taking it. Who has taken a post must not open it a second
    /// time: the lock goes with the first descriptor of the file that the process closes (fcntl(2)).
    ///
    /// # Errors
    /// The file cannot be made or opened.
    pub fn open(root: &Path, name: &str) -> io::Result<Self> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(root.join(name))?;
        Ok(Self { file, seen: (0, 0) })
    }

    /// Takes it unless another process holds it. It falls free with the process that has taken it, or when this is dropped.
    ///
    /// # Errors
    /// The file system has no locks.
    pub fn take(&self) -> io::Result<bool> {
        match fcntl(&self.file, FcntlArg::F_SETLK(&whole_file(libc::F_WRLCK))) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives it up.
    pub fn leave(&self) {
        // What cannot be unlocked is unlocked when the process ends.
        let _ = fcntl(&self.file, FcntlArg::F_SETLK(&whole_file(libc::F_UNLCK)));
    }

    /// The other process that holds it: 0 if that is of another PID namespace.
    ///
    /// # Errors
    /// The file system has no locks.
    pub fn holder(&self) -> io::Result<Option<i32>> {
        let mut found = whole_file(libc::F_WRLCK);
        fcntl(&self.file, FcntlArg::F_GETLK(&mut found))?;
        Ok((i32::from(found.l_type) != libc::F_UNLCK).then_some(found.l_pid))
    }

    /// Says that the holder is at work.
    pub fn beat(&self, now_ns: u64) {
        // A full disk must not end the arbiter; who looks then takes it for stopped, and takes its place.
        let _ = self.file.write_all_at(&now_ns.to_ne_bytes(), 0);
    }

    /// In how many looks in a row the holder has not beaten. Counted in looks, not in time: if all processes are stopped
    /// for a while, nobody is to blame.
    fn missed(&mut self) -> u32 {
        let mut beat = [0; 8];
        let read = self.file.read_exact_at(&mut beat, 0).is_ok();
        let beat = if read { u64::from_ne_bytes(beat) } else { 0 };
        let missed = if beat == self.seen.0 {
            self.seen.1.saturating_add(1)
        } else {
            0
        };
        self.seen = (beat, missed);
        missed
    }

    /// Ends a holder that does not beat: one that is stopped after [`STOPPED_MISSED`] looks, any other, that may just be
    /// short of processor time, after [`HUNG_MISSED`].
    ///
    /// # Errors
    /// As [`Post::holder`].
    pub fn dismiss_if_idle(&mut self) -> io::Result<()> {
        let missed = self.missed();
        if missed < STOPPED_MISSED {
            return Ok(());
        }
        // It does not go on by itself, so its number is not another's between the question and the signal.
        if let Some(pid) = self.holder()?.filter(|pid| *pid > 0)
            && (missed >= HUNG_MISSED || is_stopped(pid))
        {
            // One that may not be killed keeps the post; it is tried again.
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
    fn a_beat_that_does_not_change_is_missed() {
        let root = tempfile::tempdir().unwrap();
        let mut post = Post::open(root.path(), "post").unwrap();
        assert!(post.take().unwrap());
        // Of its own lock, a process is not told.
        assert_eq!(post.holder().unwrap(), None);
        post.beat(7);
        assert_eq!([post.missed(), post.missed(), post.missed()], [0, 1, 2]);
        post.beat(8);
        assert_eq!([post.missed(), post.missed()], [0, 1]);
        assert!(!is_stopped(i32::try_from(std::process::id()).unwrap()));
        post.leave();
    }
}
