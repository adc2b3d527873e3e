//! What the driver itself takes of a GPU for this process: contexts, code, heaps, rounding. Measured, never guessed (I9).
//!
//! Four ways, the first that there is:
//! 1. NVML's figure for this process, less what the ledger has. It finds contexts and code that came about without a call
//!    that we saw.
//! 2. The same figure, as the manager's NVML has it (`figure.rs`): in a PID namespace an NVML may list this process
//!    without bytes, under its host PID, or not at all.
//! 3. What is in use on the GPU, before and after a context or code is made, as NVML says (`gpu.rs`).
//! 4. The same difference from `cuMemGetInfo`, which needs a context. For a process's first one, and if no process of the
//!    container has measured one yet, a probe context is made for a moment.
//!
//! A difference holds what neighbours did meanwhile, and is therefore taken for contexts, while for code it never is a
//! reason to refuse.
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

use crate::runtime::devices::{Denied, Device, Reserved, current_context};
use crate::runtime::registration::Haste;
use crate::runtime::shim;

mod figure;
mod gpu;
pub(crate) mod in_flight;
mod managed;
mod nvml;
mod nvml_start;
mod object_charges;
mod probe;
mod unit;
mod unseen_contexts;
mod watch;

pub(crate) use managed::ManagedCharge;
pub(crate) use object_charges::{ContextCharges, DriverObject};
pub(crate) use unit::Look;

use figure::Source;
use gpu::Before;
use in_flight::InFlightCalls;
use managed::Managed;
use nvml_start::Nvml;
use object_charges::ObjectCharges;
use unit::Units;
use watch::Watch;

/// No context was ever this large: a difference beyond it is a neighbour's doing.
const LARGEST_CONTEXT_BYTES: u64 = 4 << 30;

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
    /// The calls that move memory now.
    in_flight: InFlightCalls,
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

/// A call that makes something which may not fit, for as long as this lives.
struct Making<'a>(&'a AtomicU32);

impl<'a> Making<'a> {
    fn begin(count: &'a AtomicU32) -> Self {
        // Sequentially consistent, as the looks in `follow`: before anything is made.
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
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
    if let Some(shim) = shim::get()
        && let Some(device) = shim.current_device().filter(|device| device.grant.is_some())
    {
        shim.overhead.measure(device, Haste::Soon);
        shim.overhead.watch.stir();
    }
}

/// Code may be loaded later, at a launch.
pub(crate) fn may_change() {
    if let Some(shim) = shim::get() {
        shim.overhead.watch.stir();
        shim.look_if_due();
    }
}

/// Has the driver make something for which it may load code. Where NVML tells, that is found later.
///
/// # Errors
/// The driver's.
pub(crate) fn may_take(make: impl FnOnce() -> CUresult) -> CUresult {
    let Some(shim) = shim::get() else {
        return make();
    };
    let Some(device) = shim.current_device().filter(|device| device.grant.is_some()) else {
        return make();
    };
    if shim.overhead.source.tells() {
        make()?;
        may_change();
        return Ok(());
    }
    // It cannot be undone, and need not: a difference never is a reason to refuse code.
    let bytes = take(device, What::Code, make, || {})?;
    let context = current_context();
    shim.overhead
        .note(device, context, DriverObject::Context(context), bytes);
    Ok(())
}

/// Has the driver make something that takes memory for itself. Returns what it took (bytes).
///
/// # Errors
/// The driver's; or it does not fit, and `unmake` has undone it.
pub(crate) fn take(
    device: &'static Device,
    what: What,
    make: impl FnOnce() -> CUresult,
    unmake: impl FnOnce(),
) -> Result<u64, CUerror> {
    // One copy of the code for all callers: this library is loaded into every process.
    let (mut make, mut unmake) = (Some(make), Some(unmake));
    let mut make = || make.take().map_or(Ok(()), |make| make());
    let mut unmake = || {
        if let Some(unmake) = unmake.take() {
            unmake();
        }
    };
    device.shim().overhead.take(device, what, &mut make, &mut unmake)
}

impl Overhead {
    fn take(
        &'static self,
        device: &'static Device,
        what: What,
        make: &mut dyn FnMut() -> CUresult,
        unmake: &mut dyn FnMut(),
    ) -> Result<u64, CUerror> {
        device.notice_contexts();
        if what.is_context() {
            self.begin_nvml();
        }
        let is_first = device.overhead_bytes() == 0;
        let expected_bytes = device.context_bytes(is_first);
        let reserved = if what.is_context() {
            Some(device.reserve(device.most_context_bytes(is_first))?)
        } else {
            None
        };
        let reserved_bytes = reserved.as_ref().map_or(0, Reserved::bytes);
        let before = self.before(device, what, expected_bytes, reserved_bytes);
        let making = Making::begin(&self.making);
        make()?;
        if what.is_context() {
            device.set_noticed(true);
            self.await_nvml_after(device, expected_bytes);
        }
        let is_early = what.is_context() && self.nvml.is_starting();
        let settled = self.settle(device, what, reserved, &before);
        if is_early {
            self.correct_when_ready();
        }
        drop(making);
        match settled {
            Ok((bytes, is_certain)) => {
                if is_certain && what == What::Context && bytes > 0 && bytes <= LARGEST_CONTEXT_BYTES {
                    device.note_context(is_first, bytes);
                }
                if matches!(what, What::Code | What::Heap) {
                    // Some of it may only come when it is first run.
                    self.watch.stir();
                }
                Ok(bytes)
            }
            Err(excess_bytes) => {
                unmake();
                // Counted until here: the memory was in use.
                device.release_overhead(excess_bytes);
                self.measure(device, Haste::Now);
                Err(Denied.into())
            }
        }
    }

    /// Looks at the GPU before something is made, if nothing will tell afterwards of this process alone. It is expected to
    /// take `expected_bytes` (0: not known), and `reserved_bytes` are counted for it.
    fn before(
        &'static self,
        device: &'static Device,
        what: What,
        expected_bytes: u64,
        reserved_bytes: u64,
    ) -> Before {
        if what.is_context() {
            self.await_nvml_before(device);
        }
        let handle = self.handle(device);
        if what.is_context() {
            self.look_for_namesake(device, handle);
        }
        // What is not known when NVML is ready late is asked for then.
        if self.source.tells() || (what.is_context() && self.nvml.is_starting()) {
            return Before::UNSEEN;
        }
        Before::seen(device, handle, reserved_bytes, || {
            what.is_context() && expected_bytes == 0 && !self.is_manager_telling(device)
        })
    }

    /// Charges what the driver took beyond what is counted. Returns that (bytes), and whether it is certain. Where it is
    /// not, a context took what was reserved for it, at the least.
    ///
    /// # Errors
    /// It does not fit. It is counted nevertheless; says how much, to be given back once it is undone.
    fn settle(
        &'static self,
        device: &'static Device,
        what: What,
        reserved: Option<Reserved>,
        before: &Before,
    ) -> Result<(u64, bool), u64> {
        let _measuring = self.measuring.lock();
        let was_bytes = device.overhead_bytes();
        let was_certain = device.is_overhead_certain();
        let reserved_bytes = reserved.as_ref().map_or(0, Reserved::bytes);
        if let Some(reserved) = reserved {
            reserved.become_overhead();
        }
        let counted_bytes = device.overhead_bytes();
        let (figure, is_told) = match self.figure(device, 64, what.haste(), 0) {
            Figure::Unknown => (self.by_difference(device, what, before, was_bytes), false),
            figure => (figure, true),
        };
        let mut target_bytes = match figure {
            Figure::Exact(bytes, _) => bytes,
            Figure::AtLeast(bytes) => bytes.max(counted_bytes),
            Figure::Unknown => counted_bytes,
        };
        if self.charge_more(device, counted_bytes, target_bytes).is_err() {
            // A neighbour's context may be in a difference: it is no reason to refuse before a second look.
            let again = (what == What::Context && !is_told)
                .then(|| probe::context_bytes(device))
                .flatten()
                .map(|bytes| was_bytes.saturating_add(bytes))
                .filter(|bytes| *bytes < target_bytes);
            if let Some(bytes) = again {
                target_bytes = bytes;
                device.note_context(was_bytes == 0, bytes - was_bytes);
            }
            if again.is_none() || self.charge_more(device, counted_bytes, target_bytes).is_err() {
                device.set_overhead(target_bytes);
                if is_told || !matches!(what, What::Code | What::Heap) {
                    return Err(target_bytes - was_bytes.min(target_bytes));
                }
            }
        }
        let bytes = target_bytes.saturating_sub(was_bytes);
        if !is_told {
            return Ok((bytes, false));
        }
        let is_certain = matches!(figure, Figure::Exact(_, true));
        device.note_certain(is_certain);
        if is_certain && was_certain {
            return Ok((bytes, true));
        }
        Ok((bytes.max(reserved_bytes), false))
    }

    /// Counts overhead of `target_bytes` where `counted_bytes` are counted.
    ///
    /// # Errors
    /// It does not fit, and nothing has changed.
    fn charge_more(
        &self,
        device: &'static Device,
        counted_bytes: u64,
        target_bytes: u64,
    ) -> Result<(), Denied> {
        match target_bytes.checked_sub(counted_bytes).filter(|more| *more > 0) {
            Some(more_bytes) => device.reserve(more_bytes)?.become_overhead(),
            None => device.set_overhead(target_bytes),
        }
        Ok(())
    }

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

    /// The overhead with what is more on the GPU than before. Processes of other containers move memory too, and those of
    /// this one a moment before or after the ledger says so. Where nobody looked before a context was made, it takes what
    /// the container knows, or what a probe context takes.
    fn by_difference(&self, device: &'static Device, what: What, before: &Before, was_bytes: u64) -> Figure {
        let is_first = was_bytes == 0;
        let more_bytes = match before.more_bytes(device) {
            None if what.is_context() && device.context_bytes(is_first) == 0 => probe::context_bytes(device),
            more_bytes => more_bytes,
        };
        let more_bytes = match more_bytes.unwrap_or(0) {
            bytes if bytes == 0 || bytes > LARGEST_CONTEXT_BYTES => return Figure::Unknown,
            bytes if what == What::Context => device.judge_context(is_first, bytes),
            // A neighbour's context.
            bytes if what == What::Code && device.is_like_a_context(bytes) => return Figure::Unknown,
            bytes => bytes,
        };
        Figure::Exact(was_bytes.saturating_add(more_bytes), false)
    }

    /// NVML's handle of a device; nothing if NVML cannot be had, or not yet.
    fn handle(&self, device: &Device) -> Option<nvmlDevice_t> {
        self.nvml.is_ready(0).then(|| nvml::handle_of(device))?
    }
}
