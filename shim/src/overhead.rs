//! What the driver itself takes of a GPU for this process: contexts, code, heaps, rounding. Measured, never guessed (I9).
//!
//! Three ways, the first that there is:
//! 1. NVML's figure for this process, less what the ledger has. It finds contexts and code that came about without a call
//!    that we saw.
//! 2. Where NVML does not list us (a PID namespace that its driver does not translate): what is in use on the card, before
//!    and after a context or code is made.
//! 3. Where there is no NVML: the same difference from `cuMemGetInfo`, which needs a context. For a process's first one, and
//!    if no process of the container has measured one yet, a second is made for a moment and stands in.
//!
//! A difference holds what neighbours did meanwhile, and is therefore taken for contexts, while for code it never is a
//! reason to refuse.
//!
//! What the driver took is known only afterwards. A context, code or a heap that does not fit is taken back, and the
//! answer is out-of-memory; what the last context took is noted for the container, so that the next one which does not fit is
//! refused before the driver is asked.

use core::sync::atomic::{AtomicU8, Ordering};
use core::time::Duration;

use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;
use vcuda_region::process::ProcessView;

use crate::devices::{Denied, Device, Reserved, current_context};
use crate::shim;

mod card;
mod figure;
mod noted;
pub(crate) mod still;
mod watch;

pub(crate) use noted::Thing;

use card::Card;
use figure::Listed;
use noted::Noted;
use still::Moving;
use watch::Watch;

/// No context was ever this large: a difference beyond it is a neighbour's doing.
const LARGEST_CONTEXT_BYTES: u64 = 4 << 30;

/// Between measurements that nothing asked for, small changes are left alone: the driver hands memory out in blocks, and
/// what an answer says should follow from what the program did.
const NOTICEABLE_BYTES: u64 = 4 << 20;

/// How long a figure stands that could be a dying neighbour's memory, before it is believed.
const SETTLED_AFTER: Duration = Duration::from_millis(2);

/// Whose NVML's process of our number is: not known yet.
const UNKNOWN: u8 = 0;
/// Ours.
const OURS: u8 = 1;
/// Another PID namespace's.
const FOREIGN: u8 = 2;

/// How this process measures.
#[derive(Debug, Default)]
pub(crate) struct Overhead {
    nvml: OnceCell<bool>,
    /// [`UNKNOWN`], [`OURS`] or [`FOREIGN`].
    listing: AtomicU8,
    /// One thread measures and charges at a time.
    measuring: Mutex<()>,
    noted: Noted,
    /// The calls that move memory now.
    moving: Moving,
    watch: Watch,
}

impl Overhead {
    /// No thread of the application is left: the thread that looks is told.
    pub(crate) fn end_watch(&self) {
        self.watch.ring();
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

/// Overhead as measured (bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Figure {
    /// So much.
    Exact(u64),
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
        shim.overhead.measure(device);
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
    if shim.overhead.listing.load(Ordering::Relaxed) == OURS {
        make()?;
        may_change();
        return Ok(());
    }
    // It cannot be undone, and need not: a difference never is a reason to refuse code.
    let bytes = shim.overhead.take(device, What::Code, make, || {})?;
    let context = current_context();
    shim.overhead
        .note(device, context, Thing::Context(context), bytes);
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
    device.shim().overhead.take(device, what, make, unmake)
}

impl Overhead {
    fn take(
        &'static self,
        device: &'static Device,
        what: What,
        make: impl FnOnce() -> CUresult,
        unmake: impl FnOnce(),
    ) -> Result<u64, CUerror> {
        let is_first = device.overhead_bytes() == 0;
        let expected_bytes = device.context_bytes(is_first);
        let reserved = match what {
            // Nothing known: it takes something, at any rate.
            What::Context | What::GreenAndContext => Some(device.reserve(expected_bytes.max(1))?),
            What::Green | What::Heap | What::Code => None,
        };
        let before = self.before(device, what, expected_bytes);
        let made = make();
        if made.is_err() {
            before.forget();
            made?;
        }
        let settled = self.settle(device, what, reserved, &before);
        before.forget();
        match settled {
            Ok((bytes, is_exact)) => {
                if is_exact && what == What::Context && bytes > 0 && bytes <= LARGEST_CONTEXT_BYTES {
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
                self.measure(device);
                Err(Denied.into())
            }
        }
    }

    /// Charges what the driver took beyond what is counted. Returns that (bytes), and whether it is exact.
    ///
    /// # Errors
    /// It does not fit. It is counted nevertheless; says how much, to be given back once it is undone.
    fn settle(
        &'static self,
        device: &'static Device,
        what: What,
        reserved: Option<Reserved>,
        before: &Card,
    ) -> Result<(u64, bool), u64> {
        let _measuring = self.measuring.lock();
        let was_bytes = device.overhead_bytes();
        if let Some(reserved) = reserved {
            reserved.become_overhead();
        }
        let counted_bytes = device.overhead_bytes();
        let (figure, is_told) = match self.figure(device, 64) {
            Figure::Unknown => (Self::difference(device, what, before, was_bytes), false),
            figure => (figure, true),
        };
        let target_bytes = match figure {
            Figure::Exact(bytes) => bytes,
            Figure::AtLeast(bytes) => bytes.max(counted_bytes),
            Figure::Unknown => counted_bytes,
        };
        if let Some(more_bytes) = target_bytes.checked_sub(counted_bytes).filter(|more| *more > 0) {
            match device.reserve(more_bytes) {
                Ok(more) => more.become_overhead(),
                Err(Denied) => {
                    device.set_overhead(target_bytes);
                    if is_told || !matches!(what, What::Code | What::Heap) {
                        return Err(target_bytes - was_bytes.min(target_bytes));
                    }
                }
            }
        } else {
            device.set_overhead(target_bytes);
        }
        let is_exact = is_told && matches!(figure, Figure::Exact(_));
        Ok((target_bytes.saturating_sub(was_bytes), is_exact))
    }

    /// Sets the overhead to what NVML's figure for this process makes of it. Returns whether NVML tells.
    pub(crate) fn measure(&'static self, device: &'static Device) -> bool {
        let _measuring = self.measuring.lock();
        let figure = self.figure(device, 16);
        match figure {
            Figure::Exact(bytes) => device.set_overhead(bytes),
            Figure::AtLeast(bytes) if bytes > device.overhead_bytes() => device.set_overhead(bytes),
            Figure::AtLeast(_) | Figure::Unknown => {}
        }
        figure != Figure::Unknown
    }

    /// Follows what changed without a call that we saw. Nothing if another thread is at it.
    pub(crate) fn follow(&'static self, device: &'static Device) {
        let Some(_measuring) = self.measuring.try_lock() else {
            return;
        };
        let counted_bytes = device.overhead_bytes();
        match self.figure(device, 4) {
            Figure::Exact(bytes) if bytes.abs_diff(counted_bytes) >= NOTICEABLE_BYTES => {
                device.set_overhead(bytes);
            }
            Figure::AtLeast(bytes) if bytes >= counted_bytes.saturating_add(NOTICEABLE_BYTES) => {
                device.set_overhead(bytes);
            }
            _ => {}
        }
    }

    /// NVML's figure for this process, less what the ledger has. Looked at up to `attempts` times, until no other thread
    /// was moving memory meanwhile.
    fn figure(&'static self, device: &'static Device, attempts: u32) -> Figure {
        if self.listing.load(Ordering::Relaxed) == FOREIGN {
            return Figure::Unknown;
        }
        let Some(handle) = self.handle(device) else {
            return Figure::Unknown;
        };
        let mut least = Figure::Unknown;
        let mut doubted_bytes = None;
        for attempt in 0..attempts {
            if attempt > 0 {
                std::thread::yield_now();
            }
            let before = (self.moving.still(), device.own_bytes());
            let bytes = match figure::process_bytes(handle) {
                Listed::Bytes(bytes) => bytes,
                // Listed before and no more: its contexts are gone. Never listed: nothing is known.
                Listed::Not if self.listing.load(Ordering::Relaxed) == OURS => 0,
                Listed::Not | Listed::Untold => return Figure::Unknown,
            };
            let after = (self.moving.still(), device.own_bytes());
            if before.1 != after.1 {
                continue;
            }
            // What is charged in full and not all there yet (managed memory) hides the driver's own use: it stays as it was
            // last known. Of a process that was never listed such a figure is some other's.
            let Some(overhead_bytes) = bytes.checked_sub(before.1) else {
                if bytes == 0 && before.0.is_some() && before.0 == after.0 {
                    return Figure::Exact(0);
                }
                return least;
            };
            // Asked after the driver: whoever had died by then is cleared by now.
            let may_inherit = device.may_inherit();
            // Memory that other processes hold too, and that its exporter let go of, is in the figure of one of its holders,
            // and the driver does not say of which one; memory that only descriptors hold may be in nobody's. As long as
            // the figure can be explained so, nothing has changed.
            let least_bytes = overhead_bytes.saturating_sub(device.ambiguous_bytes());
            let overhead_bytes = device.overhead_bytes().clamp(least_bytes, overhead_bytes);
            self.listing.store(OURS, Ordering::Relaxed);
            // The driver lets a process's memory go a moment before its end can be seen, or its own word can be read.
            if may_inherit
                && overhead_bytes > device.overhead_bytes()
                && doubted_bytes.replace(overhead_bytes) != Some(overhead_bytes)
            {
                std::thread::sleep(SETTLED_AFTER);
                continue;
            }
            if before.0.is_some() && before.0 == after.0 {
                return Figure::Exact(overhead_bytes);
            }
            least = Figure::AtLeast(overhead_bytes);
        }
        least
    }

    /// The overhead with what is more on the card than before. Processes of other containers move memory too, and those of
    /// this one a moment before or after the ledger says so.
    fn difference(device: &Device, what: What, before: &Card, was_bytes: u64) -> Figure {
        let Some(more_bytes) = before.more_bytes(device) else {
            return Figure::Unknown;
        };
        let is_first = was_bytes == 0;
        let more_bytes = match what {
            _ if more_bytes == 0 || more_bytes > LARGEST_CONTEXT_BYTES => return Figure::Unknown,
            What::Context => device.judge_context(is_first, more_bytes),
            // A neighbour's context.
            What::Code if device.is_like_a_context(more_bytes) => return Figure::Unknown,
            What::Code | What::Heap | What::Green | What::GreenAndContext => more_bytes,
        };
        Figure::Exact(was_bytes.saturating_add(more_bytes))
    }

    /// Looks at the card before something is made, if NVML will not tell afterwards.
    fn before(&'static self, device: &'static Device, what: What, expected_bytes: u64) -> Card {
        let nvml = self.handle(device);
        let is_context = matches!(what, What::Context | What::GreenAndContext);
        if is_context && self.listing.load(Ordering::Relaxed) == UNKNOWN {
            self.look_for_a_namesake(device, nvml);
        }
        if self.listing.load(Ordering::Relaxed) == OURS {
            return Card::UNSEEN;
        }
        let reserved_bytes = if is_context { expected_bytes.max(1) } else { 0 };
        Card::seen(device, nvml, reserved_bytes, is_context && expected_bytes == 0)
    }

    /// Before this process has any context, NVML may list its number: then it is another process's, of another PID
    /// namespace.
    fn look_for_a_namesake(&self, device: &'static Device, handle: Option<nvmlDevice_t>) {
        let sees_all = || {
            let me = device.shim().identity();
            me.is_some_and(|me| ProcessView::new(*me).sees_all())
        };
        // What costs least is asked first.
        if let Some(handle) = handle
            && !sees_all()
            && matches!(figure::process_bytes(handle), Listed::Bytes(_))
            && card::witness_on(device).is_null()
        {
            self.listing.store(FOREIGN, Ordering::Relaxed);
        }
    }

    /// NVML's handle of a device; nothing if NVML cannot be had.
    fn handle(&self, device: &Device) -> Option<nvmlDevice_t> {
        if !*self.nvml.get_or_init(figure::start_nvml) {
            return None;
        }
        figure::handle_of(device)
    }
}
