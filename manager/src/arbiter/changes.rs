//! Sleep until a tenant's files or the folder of the tenants change.
//!
//! inotify(7) reports which tenant's `usage` was touched or written, and changes of the folder. Writes to mapped memory are not
//! reported. So a process touches the file when it begins to use GPU time after a pause ([`vcuda_region::slots::Usage::touch`]).
//! Processes of other releases may not touch it: each tenant is read every few seconds, whatever was reported.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use nix::sys::time::TimeSpec;
use vcuda_region::clock;

/// Least time between two reports (ns): a tenant that touches its file all the time costs no more.
const REPORT_INTERVAL_NS: u64 = 5_000_000;
/// Number of reads in a row: together they hold more than the kernel's queue.
const READS: usize = 128;

#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// The tenants whose `usage` was touched or written.
    pub(crate) tenants: BTreeSet<WatchDescriptor>,
    /// A tenant was added or removed.
    pub(crate) folder: bool,
    /// The kernel dropped reports: anything may have changed.
    pub(crate) lost: bool,
}

impl Changes {
    pub(crate) fn are_any(&self) -> bool {
        !self.tenants.is_empty() || self.folder || self.lost
    }
}

/// Watches the tenants' files. It reports nothing if the system has no inotify instance left.
#[derive(Debug)]
pub(crate) struct ChangeWatch {
    inotify: Option<Inotify>,
    folder: Option<WatchDescriptor>,
    reported_ns: u64,
}

impl Default for ChangeWatch {
    fn default() -> Self {
        Self {
            inotify: Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok(),
            folder: None,
            reported_ns: 0,
        }
    }
}

impl ChangeWatch {
    /// Watches a tenant's `usage` from now on. `None` if the system refuses: the tenant has to be read again and again.
    pub(crate) fn watch(&self, directory: &Path) -> Option<WatchDescriptor> {
        let kinds = AddWatchFlags::IN_ATTRIB | AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_DONT_FOLLOW;
        let inotify = self.inotify.as_ref()?;
        inotify.add_watch(&directory.join("usage"), kinds).ok()
    }

    /// Ends the watch of a tenant.
    pub(crate) fn unwatch(&self, watch: WatchDescriptor) {
        if let Some(inotify) = &self.inotify {
            // If the file is gone, the kernel has ended the watch itself.
            let _ = inotify.rm_watch(watch);
        }
    }

    /// Watches the folder of the tenants, which may be made later than the arbiter. Returns whether it is watched.
    pub(crate) fn watch_folder(&mut self, root: &Path) -> bool {
        let kinds = AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_ONLYDIR;
        let inotify = self.inotify.as_ref();
        // A second watch of the same folder is the first one again.
        self.folder = inotify.and_then(|inotify| inotify.add_watch(&root.join("containers"), kinds).ok());
        self.folder.is_some()
    }

    /// Takes the changes reported since the last time.
    pub(crate) fn drain(&mut self) -> Changes {
        let mut changes = Changes::default();
        let Some(inotify) = &self.inotify else {
            return changes;
        };
        // The end: nothing more was reported, or it cannot be read. Readings that are due by the clock go on.
        for _ in 0..READS {
            let Ok(events) = inotify.read_events() else { break };
            for event in events {
                changes.lost |= event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW);
                if Some(event.wd) == self.folder {
                    changes.folder = true;
                } else if !event.mask.contains(AddWatchFlags::IN_IGNORED) {
                    changes.tenants.insert(event.wd);
                }
            }
        }
        if changes.are_any() {
            self.reported_ns = clock::now_ns();
        }
        changes
    }

    /// Sleeps for `pause`, until a change is reported, or until `waker` ends it.
    pub(crate) fn sleep(&self, waker: &Waker, pause: Duration) {
        let since_ns = clock::now_ns().saturating_sub(self.reported_ns);
        let unreported = Duration::from_nanos(REPORT_INTERVAL_NS.saturating_sub(since_ns)).min(pause);
        if !unreported.is_zero() && waker.sleep(None, unreported) {
            return;
        }
        waker.sleep(self.inotify.as_ref(), pause.saturating_sub(unreported));
    }
}

/// Ends the sleep of a [`crate::arbiter::Runner`], from any thread.
#[derive(Debug, Clone)]
pub struct Waker(Arc<EventFd>);

impl Waker {
    /// A waker that has ended no sleep yet.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(Arc::new(EventFd::from_value_and_flags(0, flags)?)))
    }

    /// Ends the present sleep and all later ones: the runner then asks its `step`, which is to break.
    pub fn wake(&self) {
        // It fails only after 2^64 calls.
        let _ = self.0.write(1);
    }

    /// Sleeps until it is woken, `other` can be read, or the time is over. Returns whether it was woken.
    pub(crate) fn sleep(&self, other: Option<&Inotify>, pause: Duration) -> bool {
        let mut polled = vec![PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        polled.extend(other.map(|other| PollFd::new(other.as_fd(), PollFlags::POLLIN)));
        match ppoll(&mut polled, Some(TimeSpec::from_duration(pause)), None) {
            Ok(_) => polled.first().and_then(PollFd::any) == Some(true),
            Err(Errno::EINTR) => false,
            Err(_) => {
                // The system has no memory left: the clock alone tells what is due.
                std::thread::sleep(pause);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_touched_file_and_a_new_tenant_are_reported_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let tenant = root.path().join("containers/a");
        std::fs::create_dir_all(&tenant).unwrap();
        let usage = std::fs::File::create(tenant.join("usage")).unwrap();
        let mut watch = ChangeWatch::default();
        let descriptor = watch.watch(&tenant).unwrap();
        assert!(watch.watch_folder(root.path()) && watch.watch_folder(root.path()));
        std::fs::read(tenant.join("usage")).unwrap();
        assert!(!watch.drain().are_any());
        usage.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        let changes = watch.drain();
        assert!(changes.tenants == BTreeSet::from([descriptor]) && !changes.folder);
        std::fs::create_dir(root.path().join("containers/b")).unwrap();
        let changes = watch.drain();
        assert!(changes.tenants.is_empty() && changes.folder);
        watch.unwatch(descriptor);
        watch.drain();
        usage.set_len(1).unwrap();
        assert!(!watch.drain().are_any());
    }

    #[test]
    fn the_waker_ends_a_sleep_and_so_does_a_change() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("containers")).unwrap();
        let (mut watch, waker) = (ChangeWatch::default(), Waker::new().unwrap());
        watch.watch_folder(root.path());
        std::fs::create_dir(root.path().join("containers/a")).unwrap();
        // The change was reported before: this returns at once.
        watch.sleep(&waker, Duration::from_secs(1000));
        assert!(watch.drain().folder);
        waker.wake();
        watch.sleep(&waker, Duration::from_secs(1000));
    }
}
