//! What the driver itself takes of a GPU for this process: contexts, code, heaps, rounding. Measured, never guessed (I9).
//!
//! Four ways, the first that there is:
//! 1. NVML's figure for this process, less what the ledger has. It finds contexts and code that came about without a call
//!    that we saw.
//! 2. The same figure, as the manager's NVML has it (`figure.rs`): in a PID namespace an NVML may list this process
//!    without bytes, under its host PID, or not at all.
//! 3. What is in use on the GPU, before and after a context or code is made, as NVML says (`gpu.rs`).
//! 4. The same difference from `cuMemGetInfo`, which needs a context.
//!
//! A difference holds what neighbours did meanwhile: for code it never is a reason to refuse. Where it is more than
//! the tenant's last context took, or none is known, probe contexts are made for a moment, until two figures agree (`probe.rs`).
//!
//! NVML may take seconds to start (`nvml_start.rs`). A context that is made meanwhile is charged as the manager says, as the
//! container's last one, or as a probe context takes, and corrected when NVML answers.
//!
//! What the driver took is known only afterwards. A context, code or a heap that does not fit is taken back, and the
//! answer is out-of-memory; what the last context took is noted for the container, so that the next one which does not fit is
//! refused before the driver is asked.

use core::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use crate::runtime::devices::{Device, current_context};
use crate::runtime::registration::Haste;

mod figure;
mod gpu;
mod managed;
mod nvml;
mod nvml_start;
mod object_charges;
mod probe;
mod take;
mod unit;
mod unseen_contexts;
mod watch;

pub(crate) use managed::ManagedCharge;
pub(crate) use object_charges::{ContextCharges, DriverObject};
pub(crate) use take::take;
pub(crate) use unit::Look;

use crate::memory::state;
use figure::Source;
use managed::Managed;
use nvml_start::Nvml;
use object_charges::ObjectCharges;
use unit::Units;
use watch::Watch;

/// Between measurements that nothing asked for, small changes are left alone: the driver hands memory out in blocks, and
/// what an answer says should follow from what the program did.
const NOTICEABLE_BYTES: u64 = 4 << 20;

/// How this process measures.
#[derive(Debug, Default)]
pub(crate) struct Overhead {
    nvml: Nvml,
    source: Source,
    managed: Managed,
    units: Units,
    /// One thread measures and charges at a time.
    measuring: Mutex<()>,
    noted: ObjectCharges,
    /// Calls under way that make a context: what it takes is theirs to charge, or to refuse.
    making: AtomicU32,
    watch: Watch,
}

impl Overhead {
    /// No thread of the application is left: the thread that looks is told.
    pub(crate) fn end_watch(&self) {
        self.watch.wake();
    }
}

/// What the driver is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// A context.
    Context,
    /// A green context in the primary context.
    Green,
    /// A green context, and the primary context for it.
    GreenAndContext,
    /// A heap within one.
    Heap,
    /// Anything else within one.
    Code,
}

impl What {
    fn is_context(self) -> bool {
        matches!(self, Self::Context | Self::GreenAndContext)
    }

    /// How pressing it is to know what it took: what code takes can be found in a moment.
    fn haste(self) -> Haste {
        if self == Self::Code {
            Haste::Soon
        } else {
            Haste::Now
        }
    }
}

/// Overhead as measured (bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Figure {
    /// So much; and whether nothing but overhead could explain what the driver says.
    Exact(u64, bool),
    /// So much or more: others of our threads were moving memory.
    AtLeast(u64),
    /// Nobody tells.
    Unknown,
}

/// The driver has unloaded code, or something else has changed on the current device that needs no leave.
pub(crate) fn changed() {
    if let Some(shim) = state::get()
        && let Some(device) = shim.current_device().filter(|device| device.grant.is_some())
    {
        shim.accounts().overhead.measure(device, Haste::Soon);
        shim.accounts().overhead.watch.stir();
    }
}

/// Code may be loaded later, at a launch.
pub(crate) fn may_change() {
    if let Some(shim) = state::get() {
        shim.accounts().overhead.watch.stir();
        shim.look_if_due();
    }
}

/// Has the driver make something for which it may load code. Where NVML tells, that is found later.
///
/// # Errors
/// The driver's.
pub(crate) fn may_take(make: impl FnOnce() -> CUresult) -> CUresult {
    let Some(shim) = state::get() else {
        return make();
    };
    let Some(device) = shim.current_device().filter(|device| device.grant.is_some()) else {
        return make();
    };
    if shim.accounts().overhead.source.tells() {
        make()?;
        may_change();
        return Ok(());
    }
    // It cannot be undone, and need not: a difference never is a reason to refuse code.
    let bytes = take(device, What::Code, make, || {})?;
    let context = current_context();
    shim.accounts()
        .overhead
        .note(device, context, DriverObject::Context(context), bytes);
    Ok(())
}

impl Overhead {
    /// Sets the overhead to what NVML's figure for this process makes of it. Returns whether NVML tells.
    pub(crate) fn measure(&'static self, device: &'static Device, haste: Haste) -> bool {
        self.measure_less(device, haste, 0)
    }

    /// As [`Overhead::measure`], when the driver has just ended what `ended_bytes` were counted for.
    fn measure_less(&'static self, device: &'static Device, haste: Haste, ended_bytes: u64) -> bool {
        let _measuring = self.measuring.lock();
        let figure = self.figure(device, 16, haste, ended_bytes);
        match figure {
            Figure::Exact(bytes, is_certain) => device.set_measured(bytes, is_certain),
            Figure::AtLeast(bytes) if bytes > device.overhead_bytes() && !self.is_making() => {
                device.set_overhead(bytes);
            }
            Figure::AtLeast(_) | Figure::Unknown => {}
        }
        figure != Figure::Unknown
    }

    fn is_making(&self) -> bool {
        self.making.load(Ordering::SeqCst) != 0
    }

    /// Follows what changed without a call that we saw. Nothing if another thread is at it.
    pub(crate) fn follow(&'static self, device: &'static Device, haste: Haste) {
        let Some(_measuring) = self.measuring.try_lock() else {
            return;
        };
        if self.is_making() {
            return;
        }
        let counted_bytes = device.overhead_bytes();
        let figure = self.figure(device, 4, haste, 0);
        // The figure may have something of which that call will say whether it fits.
        if self.is_making() {
            return;
        }
        match figure {
            // What is counted was not certain, or the difference is worth it.
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

    /// NVML's handle of a device; nothing if NVML cannot be had, or not yet.
    fn handle(&self, device: &Device) -> Option<nvmlDevice_t> {
        self.nvml.is_ready(0).then(|| nvml::handle_of(device))?
    }
}
