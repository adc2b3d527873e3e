//! Whether a descriptor that cannot be opened anew, of a dma-buf, is still open anywhere.
//!
//! An epoll instance lists a description until its last descriptor is closed, in whatever process or message, or in the
//! kernel, and does not keep it open (epoll(7), question 6). It is asked for no event and never waited for. The kernel
//! shows the list in `/proc/self/fdinfo` (proc_pid_fdinfo(5)). The instance carries a key of its own (`ofd_key.rs`), as
//! a program may close it and get its number for another file.

use core::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use vcuda_region::shared::{ObjectKey, Outlives};

use crate::runtime::ofd_key;

/// An epoll instance, with its key. It is never closed: its number may be another file's.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) epoll: c_int,
    key: ObjectKey,
}

impl Watch {
    pub(super) fn new() -> Option<Self> {
        // SAFETY: makes a descriptor.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        // SAFETY: it has just been made, and nothing else owns it.
        let epoll = (epoll >= 0).then(|| unsafe { OwnedFd::from_raw_fd(epoll) })?;
        let key = ofd_key::assign(epoll.as_raw_fd(), None, 0, false)?.key;
        Some(Self { epoll: epoll.into_raw_fd(), key })
    }

    /// The word that names what this watch alone can tell.
    pub(super) fn keeper(&self) -> Outlives {
        Outlives::watched(self.key)
    }

    /// Adds a descriptor of memory with `key`. `None` if it cannot be polled, or if there are too many.
    pub(super) fn add(&self, file: c_int, key: ObjectKey) -> Option<Outlives> {
        let mut nothing = libc::epoll_event { events: 0, u64: key.lock_offset() };
        // SAFETY: the kernel reads the event; the descriptors may be any numbers.
        let added = unsafe { libc::epoll_ctl(self.epoll, libc::EPOLL_CTL_ADD, file, &raw mut nothing) };
        (added == 0).then(|| self.keeper())
    }

    /// Whether a descriptor that was added with `key` is open anywhere; `None` if the list cannot be read.
    pub(super) fn is_open(&self, key: ObjectKey) -> Option<bool> {
        // `tfd:        3 events:       18 data: 4000000000000005  pos:0 ino:9ec18f sdev:fe00000`
        let entry = format!("data: {:x} ", key.lock_offset());
        Some(self.list()?.contains(&entry))
    }

    /// Whether its number was closed, or is another file's. What cannot be read (`EMFILE`) may be there.
    pub(super) fn is_gone(&self) -> bool {
        // SAFETY: reads flags; the descriptor may be any number.
        let is_closed = unsafe { libc::fcntl(self.epoll, libc::F_GETFD) } < 0;
        is_closed || ofd_key::is_without(self.epoll, self.key)
    }

    fn list(&self) -> Option<String> {
        let (found, list) = ofd_key::read_all(self.epoll)?;
        (found.key == self.key).then_some(list)
    }
}
