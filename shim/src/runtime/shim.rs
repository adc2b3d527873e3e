//! The shim's state, built at the first use of a GPU, and its behaviour without limits (I11).
//!
//! A process is *managed* if `/etc/vcuda` is a directory or `VCUDA_DIR` is set. A managed process whose limits are
//! missing or damaged gets no GPU memory. A process that is not managed is left alone.

use core::fmt::Arguments;
use core::fmt::Debug;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::HashMap;

use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use vcuda_driver_api::prelude::CUcontext;
use vcuda_region::clock;
use vcuda_region::process::{Identity, ProcessView};
use vcuda_region::slots::Slot;

use crate::runtime::by_number::ByNumber;
use crate::runtime::config::Config;
use crate::runtime::in_flight::InFlightCalls;
use crate::runtime::log;
use crate::runtime::region::Region;
use crate::runtime::threads::Threads;

mod built;
pub(crate) mod devices;

use devices::{Device, Devices, GreenContexts};

pub(crate) use built::{built, managed, passes, start_thread};

/// The memory side of the process's state, as the layers below it and beside it see it.
pub(crate) trait MemorySide: Debug + Sync {
    /// Charges the current context, if it is the first one of this process on the device that is seen.
    fn notice_contexts(&'static self, device: &'static Device);
    /// Ends exported memory whose release is proved by now. Waits for nothing.
    fn settle_exported(&self, region: &Region);
    /// Begins what a process with a slot does: it registers, and clears the slots of dead processes.
    fn slot_taken(&self);
    /// Ends the thread that measures overhead: no thread of the application is left.
    fn end_watch(&self);
}

/// The state of a managed process.
#[derive(Debug)]
pub(crate) struct Shim {
    /// The environment variables.
    pub(crate) config: Config,
    /// The memory side of the state, which the layer above owns.
    pub(crate) memory: &'static dyn MemorySide,
    /// The contexts that this process made, and their devices.
    pub(crate) contexts: Mutex<HashMap<CUcontext, &'static Device, ByNumber>>,
    /// Green contexts.
    pub(crate) greens: Mutex<GreenContexts>,
    /// The calls that move memory now.
    pub(crate) in_flight: InFlightCalls,
    /// The shim's own threads.
    pub(crate) threads: Threads,
    /// Set while the thread runs that settles launches. It does the chores then.
    pub(crate) has_worker: AtomicBool,
    identity: OnceCell<Identity>,
    /// Time of the last refresh ([`Self::refresh_if_due`]), and earliest time of the next before a refusal (ns).
    pub(crate) refreshed_ns: AtomicU64,
    pub(crate) next_refresh_ns: AtomicU64,
    /// Time at which the driver has released the memory of processes that were seen to be dead (ns); 0 if there are
    /// none.
    pub(crate) released_ns: AtomicU64,
    /// The bits of the bypasses that were reported for this process (`runtime/bypass.rs`).
    pub(crate) reported_bypasses: AtomicU64,
    devices: Devices,
    region: Result<Region, String>,
    slot: OnceCell<Slot<'static>>,
}

impl Shim {
    fn new(config: Config, region: Result<Region, String>, memory: &'static dyn MemorySide) -> &'static Self {
        Box::leak(Box::new(Self {
            config,
            memory,
            contexts: Mutex::default(),
            greens: Mutex::default(),
            in_flight: InFlightCalls::default(),
            threads: Threads::default(),
            has_worker: AtomicBool::new(false),
            identity: OnceCell::new(),
            refreshed_ns: AtomicU64::new(0),
            released_ns: AtomicU64::new(0),
            next_refresh_ns: AtomicU64::new(0),
            reported_bypasses: AtomicU64::new(0),
            devices: Devices::new(),
            region,
            slot: OnceCell::new(),
        }))
    }

    /// A process without usable limits.
    #[cfg(test)]
    pub(crate) fn without_limits(memory: &'static dyn MemorySide) -> &'static Self {
        Self::new(Config::default(), Err("a test".to_owned()), memory)
    }

    /// The tenant's files; `None` if they cannot be used.
    #[inline]
    pub(crate) fn region(&self) -> Option<&Region> {
        self.region.as_ref().ok()
    }

    /// The reason why this process gets no GPU memory; `None` if its limits are usable.
    pub(crate) fn closed(&self) -> Option<&str> {
        self.region.as_ref().err().map(String::as_str)
    }

    /// This process's slot, taken when first needed; `None` while none is free.
    #[inline]
    pub(crate) fn slot(&'static self) -> Option<&'static Slot<'static>> {
        match self.slot.get() {
            Some(slot) => Some(slot),
            None => self.claim(),
        }
    }

    #[cold]
    fn claim(&'static self) -> Option<&'static Slot<'static>> {
        let region = self.region()?;
        self.slot
            .get_or_try_init(|| {
                let me = self.identity().ok_or("/proc cannot be read")?;
                let devices = region.limits.devices().count();
                let slot = region.usage.claim_on(me, devices).map_err(|error| error.to_string())?;
                self.memory.slot_taken();
                Ok(slot)
            })
            .map_err(|why: String| self.log(format_args!("no slot: {why}")))
            .ok()
    }

    /// This process's slot, if it has one already.
    pub(crate) fn claimed(&self) -> Option<&Slot<'static>> {
        self.slot.get()
    }

    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.identity.get_or_try_init(Identity::current).ok()
    }

    /// The devices that this process has used.
    pub(crate) fn devices(&self) -> &Devices {
        &self.devices
    }

    /// The device of this ordinal; `None` if the driver knows none.
    #[inline]
    pub(crate) fn device(&'static self, ordinal: i32) -> Option<&'static Device> {
        self.devices.get(self, ordinal)
    }

    /// The device of the calling thread's context; `None` without one.
    #[inline]
    pub(crate) fn current_device(&'static self) -> Option<&'static Device> {
        self.devices.of_current(self, devices::current_context())
    }

    /// Clears the slots of processes that have died.
    #[cold]
    pub(crate) fn reap(&'static self, view: impl Fn(Identity) -> ProcessView) {
        if let (Some(region), Some(me)) = (self.region(), self.identity()) {
            let due_in_ns = region.usage.reap_dead(&view(*me)).due_in_ns;
            // A brief look does not see all the dead that a thorough one has seen: it clears nothing.
            if due_in_ns > 0 {
                let due_ns = clock::now_ns() + due_in_ns;
                self.released_ns.store(due_ns, Ordering::Relaxed);
            }
        }
    }

    /// Writes a line to the log, if there is one.
    #[cold]
    pub(crate) fn log(&self, words: Arguments<'_>) {
        log::line(self.config.log.as_deref(), words);
    }
}
