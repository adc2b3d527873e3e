//! Sleep until `faults.toml` is replaced.

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::time::TimeSpec;

use crate::sys::monotonic_ns;

/// An inotify(7) watch of a machine's directory, in which [`super::Faults::write`] replaces `faults.toml`.
#[derive(Debug)]
pub struct FaultsWatch(Inotify);

impl FaultsWatch {
    /// Watches the machine in `dir` from now on. Error: the system has no inotify instance left, or `dir` cannot be
    /// read.
    pub fn new(dir: &Path) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let kinds = AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_DELETE;
        inotify.add_watch(dir, kinds)?;
        Ok(Self(inotify))
    }

    /// Sleeps until a file of the directory was replaced, written or removed since the last call, a signal arrives, or `timeout` is over.
    /// Returns what is left of `timeout`.
    pub fn wait(&self, timeout: Duration) -> Duration {
        let began_ns = monotonic_ns();
        let mut polled = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        // A failed wait returns early: the caller reads the file once more than needed.
        let _ = ppoll(&mut polled, Some(TimeSpec::from_duration(timeout)), None);
        // What is read here was news of this call. No event is left: that is fine.
        let _ = self.0.read_events();
        timeout.saturating_sub(Duration::from_nanos(monotonic_ns().saturating_sub(began_ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Faults;
    use super::*;

    #[test]
    fn a_wait_ends_once_for_each_change_and_else_with_the_time() {
        let dir = std::env::temp_dir().join(format!("vcuda-faults-watch-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let watch = FaultsWatch::new(&dir).unwrap();
        Faults::default().write(&dir).unwrap();
        assert!(!watch.wait(Duration::from_secs(1000)).is_zero());
        assert_eq!(watch.wait(Duration::from_millis(20)), Duration::ZERO);
        std::fs::write(dir.join("faults.toml"), "").unwrap();
        assert!(!watch.wait(Duration::from_secs(1000)).is_zero());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
