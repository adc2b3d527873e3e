//! Sleep until something changes.
//!
//! The kernel tells by inotify(7) which tenant's `usage` was touched or written, and when the folder of the tenants has
//! changed. A process of a tenant writes mapped memory, which the kernel does not tell: so it touches the file when it begins to
//! use GPU time after a rest ([`vcuda_region::slots::Usage::touch`]). Processes of other releases may not, so each tenant is
//! looked at every few seconds whatever was heard.

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

/// Between two times that notices are heard, at least (ns): a tenant that touches its file all the time costs no more.
const DEAF_NS: u64 = 5_000_000;
/// Reads at once: more than the kernel keeps in its queue.
const READS: usize = 128;

/// What was heard.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// The tenants whose `usage` was touched or written.
    pub(crate) tenants: BTreeSet<WatchDescriptor>,
    /// A tenant came or went.
    pub(crate) folder: bool,
    /// Notices were lost: anything may have changed.
    pub(crate) lost: bool,
}

impl Heard {
    /// Whether it is anything.
    pub(crate) fn is_any(&self) -> bool {
        !self.tenants.is_empty() || self.folder || self.lost
    }
}

/// The ear for notices; deaf if the system gives no inotify instance.
#[derive(Debug)]
pub(crate) struct Notices {
    inotify: Option<Inotify>,
    folder: Option<WatchDescriptor>,
    heard_ns: u64,
}

impl Default for Notices {
    fn default() -> Self {
        Self {
            inotify: Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok(),
            folder: None,
            heard_ns: 0,
        }
    }
}

impl Notices {
    /// Listens to a tenant's `usage` from now on. `None` if that cannot be: the tenant has to be asked again and again.
    pub(crate) fn watch(&self, directory: &Path) -> Option<WatchDescriptor> {
        let kinds = AddWatchFlags::IN_ATTRIB | AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_DONT_FOLLOW;
        let inotify = self.inotify.as_ref()?;
        inotify.add_watch(&directory.join("usage"), kinds).ok()
    }

    /// Listens no longer.
    pub(crate) fn forget(&self, watch: WatchDescriptor) {
        if let Some(inotify) = &self.inotify {
            // The kernel has forgotten it if the file is gone.
            let _ = inotify.rm_watch(watch);
        }
    }

    /// Listens to the folder of the tenants, which may be made later than the arbiter. Whether it does.
    pub(crate) fn watch_folder(&mut self, root: &Path) -> bool {
        let kinds = AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_ONLYDIR;
        let inotify = self.inotify.as_ref();
        // Adding it again changes nothing.
        self.folder = inotify.and_then(|inotify| inotify.add_watch(&root.join("containers"), kinds).ok());
        self.folder.is_some()
    }

    /// What was heard since the last time.
    pub(crate) fn take(&mut self) -> Heard {
        let mut heard = Heard::default();
        let Some(inotify) = &self.inotify else {
            return heard;
        };
        // Nothing more is there, or it cannot be read: looks that are due by the clock go on.
        for _ in 0..READS {
            let Ok(events) = inotify.read_events() else { break };
            for event in events {
                heard.lost |= event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW);
                if Some(event.wd) == self.folder {
                    heard.folder = true;
                } else if !event.mask.contains(AddWatchFlags::IN_IGNORED) {
                    heard.tenants.insert(event.wd);
                }
            }
        }
        if heard.is_any() {
            self.heard_ns = clock::now_ns();
        }
        heard
    }

    /// Sleeps for `pause`, until something is heard, or until it is woken.
    pub(crate) fn sleep(&self, alarm: &Alarm, pause: Duration) {
        let since_ns = clock::now_ns().saturating_sub(self.heard_ns);
        let deaf = Duration::from_nanos(DEAF_NS.saturating_sub(since_ns)).min(pause);
        if !deaf.is_zero() && alarm.sleep(None, deaf) {
            return;
        }
        alarm.sleep(self.inotify.as_ref(), pause.saturating_sub(deaf));
    }
}

/// Ends the sleep of a [`crate::Runner`], from any thread.
#[derive(Debug, Clone)]
pub struct Alarm(Arc<EventFd>);

impl Alarm {
    /// One that has not rung.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(Arc::new(EventFd::from_value_and_flags(0, flags)?)))
    }

    /// Ends the sleep, now and for ever: the runner looks what it is to do.
    pub fn ring(&self) {
        // It cannot fail before it has rung 2^64 times.
        let _ = self.0.write(1);
    }

    /// Sleeps until it rings, something can be read from `other`, or the time is over. Returns whether it rang.
    pub(crate) fn sleep(&self, other: Option<&Inotify>, pause: Duration) -> bool {
        let mut polled = vec![PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        polled.extend(other.map(|other| PollFd::new(other.as_fd(), PollFlags::POLLIN)));
        match ppoll(&mut polled, Some(TimeSpec::from_duration(pause)), None) {
            Ok(_) => polled.first().and_then(PollFd::any) == Some(true),
            Err(Errno::EINTR) => false,
            Err(_) => {
                // The system has no memory: what is due by the clock is done on time.
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
    fn a_touched_file_and_a_new_tenant_are_heard_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let tenant = root.path().join("containers/a");
        std::fs::create_dir_all(&tenant).unwrap();
        let usage = std::fs::File::create(tenant.join("usage")).unwrap();
        let mut notices = Notices::default();
        let watch = notices.watch(&tenant).unwrap();
        assert!(notices.watch_folder(root.path()) && notices.watch_folder(root.path()));
        std::fs::read(tenant.join("usage")).unwrap();
        assert!(!notices.take().is_any());
        usage.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        let heard = notices.take();
        assert!(heard.tenants == BTreeSet::from([watch]) && !heard.folder);
        std::fs::create_dir(root.path().join("containers/b")).unwrap();
        let heard = notices.take();
        assert!(heard.tenants.is_empty() && heard.folder);
        notices.forget(watch);
        notices.take();
        usage.set_len(1).unwrap();
        assert!(!notices.take().is_any());
    }

    #[test]
    fn the_alarm_ends_a_sleep_that_something_heard_would_not() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("containers")).unwrap();
        let (mut notices, alarm) = (Notices::default(), Alarm::new().unwrap());
        notices.watch_folder(root.path());
        std::fs::create_dir(root.path().join("containers/a")).unwrap();
        // Heard: returns at once.
        notices.sleep(&alarm, Duration::from_secs(1000));
        assert!(notices.take().folder);
        alarm.ring();
        notices.sleep(&alarm, Duration::from_secs(1000));
    }
}
