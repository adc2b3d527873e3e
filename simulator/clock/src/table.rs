//! The file that the processes of an experiment share. It consists of atomics only, initially zero.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::kernel;

/// Maximum number of threads of an experiment.
pub(crate) const THREADS: usize = 256;
const MAGIC: u64 = u64::from_be_bytes(*b"vcclock5");

/// Costs of operations (virtual ns).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// Reading the clock (ns); at least 1, so that a polling thread makes progress.
    pub look_ns: u64,
    /// Yielding (sched_yield(2)), or a futex call that does not sleep (ns).
    pub yield_ns: u64,
    /// Delay until a thread runs after a sleep or a wake-up (ns).
    pub late_ns: u64,
}

impl Default for Costs {
    /// Costs of an idle computer: a clock without a system call, and 20 us from an event to its waiter.
    fn default() -> Self {
        Costs { look_ns: 100, yield_ns: 1_000, late_ns: 20_000 }
    }
}

/// States of an entry.
pub(crate) mod state {
    /// No thread.
    pub(crate) const FREE: u32 = 0;
    /// Ready to run from `at_ns` on.
    pub(crate) const READY: u32 = 1;
    /// Waiting on a futex, at most until `at_ns`.
    pub(crate) const WAITING: u32 = 2;
    /// Running: has the turn.
    pub(crate) const RUNNING: u32 = 3;
    /// Waiting outside of virtual time.
    pub(crate) const OUTSIDE: u32 = 4;
}

/// Values of [`Table::turn`] other than a thread's position + 1.
pub(crate) mod turn {
    /// The world is paused until its owner continues it.
    pub(crate) const OWNER: u32 = 0;
    /// No thread can run until one returns from outside.
    pub(crate) const NONE: u32 = u32::MAX;
}

/// A time that never comes (ns).
pub(crate) const NEVER: u64 = u64::MAX;

/// Entry of a thread, changed under the table's lock.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Entry {
    pub(crate) state: AtomicU32,
    /// Futex word that changes when the thread gets the turn.
    pub(crate) go: AtomicU32,
    pub(crate) pid: AtomicU32,
    /// Whether the thread was woken before its wait ended.
    pub(crate) woken: AtomicU32,
    pub(crate) at_ns: AtomicU64,
    /// Order of arrival among ready threads.
    pub(crate) order: AtomicU64,
    pub(crate) key: [AtomicU64; 2],
    pub(crate) mask: AtomicU32,
    /// 1 if the process is stopped, so that the thread gets no turn.
    pub(crate) stopped: AtomicU32,
    /// Signal that interrupts the thread's next wait; 0 if there is none.
    pub(crate) signal: AtomicU32,
    /// Name within its process; 0 for a first thread.
    pub(crate) name: AtomicU64,
}

/// The shared table.
#[derive(Debug)]
#[repr(C)]
pub struct Table {
    magic: AtomicU64,
    pub(crate) now_ns: AtomicU64,
    /// Time at which the running thread gives up the turn.
    pub(crate) horizon_ns: AtomicU64,
    /// Time at which the world pauses.
    pub(crate) limit_ns: AtomicU64,
    pub(crate) turn: AtomicU32,
    lock: AtomicU32,
    /// Futex word of the owner.
    pub(crate) owner_futex: AtomicU32,
    pub(crate) order: AtomicU64,
    look_ns: AtomicU64,
    yield_ns: AtomicU64,
    late_ns: AtomicU64,
    /// CLOCK_REALTIME less CLOCK_MONOTONIC (ns).
    pub(crate) since_1970_ns: AtomicU64,
    /// PID of the owner.
    owner: AtomicU32,
    pub(crate) entries: [Entry; THREADS],
}

/// Lock of the entries.
#[derive(Debug)]
pub(crate) struct Locked<'a>(&'a Table);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.lock.store(0, Ordering::Release);
    }
}

impl Table {
    /// Initialises a table of zeroes.
    pub(crate) fn begin(&self, costs: Costs, now_ns: u64, since_1970_ns: u64) {
        self.look_ns.store(costs.look_ns.max(1), Ordering::Relaxed);
        self.yield_ns.store(costs.yield_ns.max(1), Ordering::Relaxed);
        self.late_ns.store(costs.late_ns, Ordering::Relaxed);
        for word in [&self.now_ns, &self.limit_ns, &self.horizon_ns] {
            word.store(now_ns, Ordering::Relaxed);
        }
        self.since_1970_ns.store(since_1970_ns, Ordering::Relaxed);
        self.set_owner(std::process::id());
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// The table of a world in the file `path`; `None` if the file is not one of this release.
    pub fn open(path: &Path) -> Option<&'static Table> {
        let file = File::options().read(true).write(true).open(path).ok()?;
        let is_whole = file.metadata().ok()?.len() == size_of::<Table>() as u64;
        let table = is_whole.then(|| Table::map(&file).ok())??;
        table.is_sound().then_some(table)
    }

    /// Maps the table of `file`, which has its size, for the life of this process.
    pub(crate) fn map(file: &File) -> io::Result<&'static Table> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (length, descriptor) = (size_of::<Table>(), file.as_raw_fd());
        // SAFETY: a new mapping, of a file of this length.
        let address =
            unsafe { libc::mmap(core::ptr::null_mut(), length, access, libc::MAP_SHARED, descriptor, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: page-aligned, as long as a table, of atomics only (any bytes are one), never unmapped.
        Ok(unsafe { &*address.cast::<Table>() })
    }

    fn is_sound(&self) -> bool {
        self.magic.load(Ordering::Acquire) == MAGIC
    }

    /// Virtual time, as `CLOCK_MONOTONIC` (ns).
    pub fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Acquire)
    }

    /// Difference of `CLOCK_REALTIME` to `CLOCK_MONOTONIC` (ns).
    pub fn since_1970_ns(&self) -> u64 {
        self.since_1970_ns.load(Ordering::Relaxed)
    }

    /// Costs of operations in this world.
    pub fn costs(&self) -> Costs {
        Costs {
            look_ns: self.look_ns.load(Ordering::Relaxed),
            yield_ns: self.yield_ns.load(Ordering::Relaxed),
            late_ns: self.late_ns.load(Ordering::Relaxed),
        }
    }

    /// Held for a few stores only. A process must not be killed meanwhile: the owner kills while the world is paused.
    pub(crate) fn lock(&self) -> Locked<'_> {
        while self.lock.swap(1, Ordering::Acquire) != 0 {
            kernel::yield_real();
        }
        Locked(self)
    }

    /// Makes process `pid` the owner of the world.
    pub fn set_owner(&self, pid: u32) {
        self.owner.store(pid, Ordering::Relaxed);
    }

    /// Whether the owner is gone, after which no thread gets the turn.
    pub(crate) fn is_orphaned(&self) -> bool {
        !kernel::exists(self.owner.load(Ordering::Relaxed))
    }

    pub(crate) fn next_order(&self) -> u64 {
        self.order.fetch_add(1, Ordering::Relaxed)
    }
}
