//! Memory that was exported as descriptors and that no process of the tenant holds any more. The question is whether a
//! descriptor of it is still open anywhere, as the driver then keeps it (I18).
//!
//! The proof is the kernel's own answer about that object. The exported description carries a read lock at an offset
//! that is the object's key (`ofd_key.rs`). This process opens another description of the same inode for itself. It
//! asks whether that one could have a write lock there (`F_OFD_GETLK`, fcntl(2)): yes means that the last descriptor
//! is closed. A real driver's exported descriptors are openings of its control device. So are other descriptors that
//! the driver has open in every process, and each process can open that inode anew (docs/hardware.md, "exported
//! descriptors"). If no such description can be opened, nothing is proved, and the memory stays counted.
//!
//! A dma-buf is no file that could be opened anew. The process that made it watches it (`exported/watch.rs`). What such a
//! process leaves behind is released once one process is left, and the kernel lists no lock of the object.
//!
//! The kernel drops the lock before the driver has released the memory. So the bytes are free for other allocations
//! only [`RELEASED_AFTER_NS`] after the answer was first "closed".

use core::ffi::c_int;
use std::os::fd::IntoRawFd;

use parking_lot::Mutex;
use vcuda_region::clock;
use vcuda_region::shared::descriptors::{inode_of, is_listed, is_locked, open};
use vcuda_region::shared::{ObjectKey, Outlives, Unheld};
use vcuda_region::slots::{RELEASED_AFTER_NS, Usage};

use watch::Watch;

/// The state of an object's descriptors, by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Descriptors {
    /// At least one is open somewhere.
    Open,
    /// None is open.
    Closed,
    /// The kernel could not be asked.
    Unknown,
}

/// This process's means to ask about exported memory.
#[derive(Debug, Default)]
pub(crate) struct Exported(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// This process's own description of each inode, as a descriptor.
    descriptions: Vec<(Outlives, c_int)>,
    /// Where this process watches descriptors that no process can open anew.
    watch: Option<Watch>,
    /// Objects without an open descriptor, and the time since which that is known (ns).
    closed: Vec<(ObjectKey, u64)>,
}

impl Exported {
    /// What keeps the memory of an exported descriptor `file`, which carries `key`: its inode, of which a description is
    /// opened now, while it can be reached, or what a watch sees.
    pub(crate) fn keeper(&self, file: c_int, key: ObjectKey) -> Outlives {
        let mut state = self.0.lock();
        match inode_of(file) {
            Some(keeper) => {
                state.description_of(keeper);
                keeper
            }
            None => state.watch(file, key).unwrap_or(Outlives::UNPROVABLE),
        }
    }

    /// Ends objects whose release is proved. If `may_wait`, it waits for objects that were closed a moment ago, for
    /// at most [`RELEASED_AFTER_NS`]. Called before an answer about memory, and before a refusal.
    pub(crate) fn settle(&self, usage: &Usage, may_wait: bool) {
        if usage.unheld().next().is_none() {
            return;
        }
        let waits_ns = self.0.lock().end_released(usage, clock::now_ns());
        if may_wait && waits_ns > 0 {
            std::thread::sleep(core::time::Duration::from_nanos(waits_ns));
            self.0.lock().end_released(usage, clock::now_ns());
        }
    }
}

impl State {
    /// Ends objects whose release is proved. Returns the time until all that are closed now can be ended (ns).
    fn end_released(&mut self, usage: &Usage, now_ns: u64) -> u64 {
        let unheld: Vec<_> = usage.unheld().collect();
        self.closed.retain(|(key, _)| unheld.iter().any(|object| object.key == *key));
        let mut waits_ns = 0;
        for object in &unheld {
            if self.descriptors_of(object, usage) != Descriptors::Closed {
                self.closed.retain(|(key, _)| *key != object.key);
                continue;
            }
            let mut known = self.closed.iter().filter(|(key, _)| *key == object.key);
            let since_ns = known.next().map(|(_, since_ns)| *since_ns).unwrap_or_else(|| {
                self.closed.push((object.key, now_ns));
                now_ns
            });
            let left_ns = (since_ns + RELEASED_AFTER_NS).saturating_sub(now_ns);
            if left_ns == 0 {
                usage.end_released(object);
            }
            waits_ns = waits_ns.max(left_ns);
        }
        waits_ns
    }

    fn descriptors_of(&mut self, object: &Unheld, usage: &Usage) -> Descriptors {
        let first = object.key.lock_offset();
        let watch = self.watch.as_ref().filter(|watch| watch.keeper() == object.outlives);
        let is_open = if object.outlives.is_of_inode() {
            self.description_of(object.outlives).and_then(|description| is_locked(description, first))
        } else if let Some(is_open) = watch.and_then(|watch| watch.is_open(object.key)) {
            Some(is_open)
        } else {
            // Unknown while another process lives, which may have a descriptor. The list of locks may miss one.
            let is_alone = usage.processes().nth(1).is_none();
            is_listed(first).filter(|is_listed| *is_listed || is_alone)
        };
        match is_open {
            Some(true) => Descriptors::Open,
            Some(false) => Descriptors::Closed,
            None => Descriptors::Unknown,
        }
    }

    /// Watches a descriptor with `key` from now on. `None` if the kernel cannot.
    fn watch(&mut self, file: c_int, key: ObjectKey) -> Option<Outlives> {
        // A program that closes all descriptors closes the watch too: what it saw stays counted.
        self.watch = self.watch.take().filter(|watch| !watch.is_gone()).or_else(Watch::new);
        self.watch.as_ref()?.add(file, key)
    }

    /// This process's own description of an inode.
    fn description_of(&mut self, inode: Outlives) -> Option<c_int> {
        // A program that closes all descriptors closes these too, and their numbers become other files'.
        self.descriptions.retain(|(of, descriptor)| inode_of(*descriptor) == Some(*of));
        let known = self.descriptions.iter().find(|(of, _)| *of == inode);
        if let Some((_, descriptor)) = known {
            return Some(*descriptor);
        }
        let opened = open(inode)?.into_raw_fd();
        self.descriptions.push((inode, opened));
        Some(opened)
    }
}

mod watch;

#[cfg(test)]
mod tests;
