//! State of an opened machine that this process's clients share: the mapping, and the last core that was seen.

use crate::config::{ClockKind, Config};
use crate::core::Core;
use crate::engine::{Rules, Scratch};
use crate::layout::{BELLS, CLIENTS, CLOCK, WRITERS, as_index};
use crate::liveness::Liveness;
use crate::map::Mapping;
use crate::memory_limits;
use crate::object_files::ObjectFiles;
use crate::sys;
use parking_lot::{Condvar, Mutex};
use std::fs::File;
use std::time::Duration;

/// Slots of the lock file for writers.
pub(crate) const WRITER_SLOTS: std::ops::Range<u64> = 0..WRITERS;
/// Slots of the lock file for clients, after those of the writers.
pub(crate) const CLIENT_SLOTS: std::ops::Range<u64> = WRITERS..WRITERS + CLIENTS;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) map: Mapping,
    /// The state file; `None` for a machine in memory.
    pub(crate) file: Option<File>,
    pub(crate) config: Config,
    pub(crate) rules: Rules,
    pub(crate) limit_rules: memory_limits::Rules,
    pub(crate) liveness: Liveness,
    pub(crate) objects: ObjectFiles,
    /// PID namespace of this process when it opened the machine.
    pub(crate) namespace: u64,
    /// Lock for the transactions of this process; other processes are not excluded.
    pub(crate) local: Mutex<Local>,
    /// Notified when this process opens a gate or steps the clock.
    wake: Condvar,
    wake_lock: Mutex<()>,
}

/// The last committed core that this process saw, and its buffers.
#[derive(Debug, Default)]
pub(crate) struct Local {
    /// The root of `base`; 0: none yet.
    pub(crate) root: u64,
    pub(crate) base: Core,
    /// Whether this process has applied the effects of `base`.
    pub(crate) is_applied: bool,
    /// The copy that is changed.
    pub(crate) work: Core,
    pub(crate) words: Vec<u64>,
    pub(crate) scratch: Scratch,
    pub(crate) writer: Option<Writer>,
    /// Time of the last check for dead processes (CLOCK_MONOTONIC, ns).
    pub(crate) checked_ns: u64,
}

/// This process's two buffers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer {
    /// The process; a child of `fork` has buffers of its own.
    pub(crate) pid: u32,
    pub(crate) slot: u64,
    /// Number of words of each buffer that have disk blocks.
    pub(crate) reserved: usize,
}

impl Shared {
    pub(crate) fn new(
        map: Mapping,
        file: Option<File>,
        config: Config,
        liveness: Liveness,
        objects: ObjectFiles,
    ) -> Shared {
        let rules = Rules {
            slice_ns: config.slice_ns,
            switch_ns: config.switch_ns,
            sample_ns: config.sample_ns,
            order: config.driver.slice_order,
            slice_spread_permille: config.driver.slice_spread_permille,
            sms: config.gpus.iter().map(|gpu| u64::from(gpu.sms)).collect(),
        };
        let limit_rules = memory_limits::Rules::of(&config.driver);
        let (local, wake, wake_lock) = (Mutex::default(), Condvar::new(), Mutex::new(()));
        Shared {
            map,
            file,
            config,
            rules,
            limit_rules,
            liveness,
            objects,
            namespace: crate::namespaces::own(),
            local,
            wake,
            wake_lock,
        }
    }

    /// The machine's clock, ns.
    pub(crate) fn now(&self) -> u64 {
        match self.config.clock {
            ClockKind::Real => sys::monotonic_ns(),
            ClockKind::Virtual => self.map.acquire(CLOCK),
        }
    }

    pub(crate) fn step_clock(&self, ns: u64) {
        if self.config.clock == ClockKind::Virtual {
            self.map.add(CLOCK, ns);
            self.wake_waiters();
        }
    }

    /// Count of the bell of a slot.
    #[inline]
    pub(crate) fn bell(&self, slot: u64) -> u64 {
        self.map.acquire(bell(slot))
    }

    /// Rings the bell of a slot.
    pub(crate) fn ring(&self, slot: u64) {
        self.map.ring(bell(slot));
    }

    /// Sleeps until the bell of a slot differs from `seen`, at most `ns`.
    pub(crate) fn await_bell(&self, slot: u64, seen: u64, ns: u64) {
        self.map.await_ring(bell(slot), seen, ns);
    }

    pub(crate) fn wake_waiters(&self) {
        drop(self.wake_lock.lock());
        self.wake.notify_all();
    }

    /// Sleeps until woken or `ns` of real time have gone.
    pub(crate) fn await_wake(&self, ns: u64) {
        let mut lock = self.wake_lock.lock();
        self.wake.wait_for(&mut lock, Duration::from_nanos(ns));
    }
}

/// Word of the bell of a client's slot.
fn bell(slot: u64) -> usize {
    BELLS + as_index(slot.saturating_sub(WRITERS).min(CLIENTS - 1))
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(writer) = self.local.get_mut().writer {
            self.liveness.release(writer.slot);
        }
    }
}
