//! Memory that the driver itself takes of a GPU for this process: contexts, code, heaps, rounding. It is measured (I9).
//!
//! The first available of four sources is used:
//! 1. NVML's figure for this process, less what the ledger has. It includes contexts and code that the shim did not see
//!    made.
//! 2. The same figure from the manager's NVML (`figure.rs`). In a PID namespace, NVML may list this process without
//!    bytes, under its host PID, or not at all.
//! 3. The memory in use on the GPU before and after a context or code is made, as NVML says (`gpu.rs`).
//! 4. The same difference from `cuMemGetInfo`, which needs a context.
//!
//! A difference includes what other processes did meanwhile: it is never a reason to refuse code. If it is more than
//! the tenant's last context took, or none is known, probe contexts are made until two figures agree (`probe.rs`).
//!
//! NVML may take seconds to start (`nvml_start.rs`). A context made meanwhile is charged as the manager says, as the
//! tenant's last one, or as a probe context. The charge is corrected when NVML answers.
//!
//! What the driver took is known only afterwards. A context, code or a heap that does not fit is undone, and the answer
//! is out-of-memory. The size of the last context is noted for the tenant: then the next one that does not fit is
//! refused before the driver is asked.

use core::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use crate::runtime::registration::Haste;
use crate::runtime::shim::devices::Device;

mod figure;
mod gpu;
mod making;
mod managed;
mod nvml;
mod nvml_start;
mod object_charges;
mod probe;
mod unit;
mod unseen_contexts;
mod watch;

pub(crate) use making::make_charged;
pub(crate) use managed::ManagedCharge;
pub(crate) use object_charges::{ContextCharges, DriverObject};
pub(crate) use unit::WatchedAllocation;

use figure::Source;
use managed::Managed;
use nvml_start::Nvml;
use object_charges::ObjectCharges;
use unit::Units;
use watch::Watch;

/// A smaller change is ignored by measurements that no call asked for (bytes): the driver hands memory out in blocks,
/// and an answer should follow from what the program did.
const NOTICEABLE_BYTES: u64 = 4 << 20;

/// The process's measurement of its overhead.
#[derive(Debug, Default)]
pub(crate) struct Overhead {
    nvml: Nvml,
    source: Source,
    managed: Managed,
    units: Units,
    /// Held by the one thread that measures and charges.
    measuring: Mutex<()>,
    charges: ObjectCharges,
    /// Number of calls under way that make an object. Such a call itself charges, or refuses, what the object takes.
    making: AtomicU32,
    watch: Watch,
}

impl Overhead {
    /// Whether there is a figure for this process alone.
    pub(crate) fn has_figure(&self) -> bool {
        self.source.is_known()
    }

    /// Has the measuring thread look whether the driver has loaded code.
    pub(crate) fn expect_code(&'static self) {
        self.watch.note_event();
    }

    /// Wakes the measuring thread, as no thread of the application is left.
    pub(crate) fn end_watch(&self) {
        self.watch.wake();
    }
}

/// Kind of object that the driver makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    /// A context.
    Context,
    /// A green context in the primary context.
    Green,
    /// A green context, and the primary context for it.
    GreenAndContext,
    /// A stack, a heap or a buffer within a context, which takes at most so many bytes; 0 if that is not known before.
    Heap(u64),
    /// Anything else within a context.
    Code,
}

impl ObjectKind {
    fn is_context(self) -> bool {
        matches!(self, Self::Context | Self::GreenAndContext)
    }

    /// Urgency of knowing what the object took: what code takes can be found a little later.
    fn haste(self) -> Haste {
        if self == Self::Code { Haste::Soon } else { Haste::Now }
    }
}

/// Overhead as measured (bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Figure {
    /// The overhead, and whether nothing else could explain the driver's figure.
    Exact(u64, bool),
    /// A lower bound, as other threads of this process were moving memory.
    AtLeast(u64),
    /// There is no source.
    Unknown,
}

impl Overhead {
    /// Sets the overhead by NVML's figure for this process. Returns whether there is one.
    pub(crate) fn measure(&'static self, device: &'static Device, haste: Haste) -> bool {
        self.measure_after_end(device, haste, 0)
    }

    /// As [`Overhead::measure`], after the driver has ended an object for which `ended_bytes` were counted.
    fn measure_after_end(&'static self, device: &'static Device, haste: Haste, ended_bytes: u64) -> bool {
        let _measuring = self.measuring.lock();
        let figure = self.figure(device, 16, haste, ended_bytes);
        match figure {
            Figure::Exact(bytes, is_certain) => device.set_measured(bytes, is_certain),
            Figure::AtLeast(bytes) if bytes > device.overhead_bytes() && !self.is_making() => {
                device.set_overhead(bytes);
            }
            Figure::AtLeast(_) => {}
            // A later look finds what changed.
            Figure::Unknown => device.note_certain(false),
        }
        figure != Figure::Unknown
    }

    fn is_making(&self) -> bool {
        self.making.load(Ordering::SeqCst) != 0
    }

    /// Measures what changed without a call that the shim saw. Does nothing if another thread is measuring.
    pub(crate) fn remeasure(&'static self, device: &'static Device, haste: Haste) {
        let Some(_measuring) = self.measuring.try_lock() else {
            return;
        };
        if self.is_making() {
            return;
        }
        let counted_bytes = device.overhead_bytes();
        let figure = self.figure(device, 4, haste, 0);
        // The figure may include an object whose call has yet to say whether it fits.
        if self.is_making() {
            return;
        }
        match figure {
            // What is counted was not certain, or the difference is large enough.
            Figure::Exact(bytes, is_certain)
                if (is_certain && !device.is_overhead_certain())
                    || bytes.abs_diff(counted_bytes) >= NOTICEABLE_BYTES =>
            {
                device.set_measured(bytes, is_certain);
            }
            Figure::AtLeast(bytes) if bytes >= counted_bytes.saturating_add(NOTICEABLE_BYTES) => {
                device.set_overhead(bytes);
            }
            _ => {}
        }
    }

    /// NVML's handle of a device; `None` if NVML cannot be had, or not yet.
    fn handle(&self, device: &Device) -> Option<nvmlDevice_t> {
        self.nvml.is_ready(0).then(|| nvml::handle_of(device))?
    }
}
