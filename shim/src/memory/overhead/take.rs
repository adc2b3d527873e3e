//! What the driver takes for itself when something is made: looked at before and after, charged, and undone if it does not fit.

use core::sync::atomic::{AtomicU32, Ordering};

use vcuda_driver_api::prelude::*;

use super::gpu::Before;
use super::probe::{self, LARGEST_CONTEXT_BYTES};
use super::{Figure, Overhead, What};
use crate::memory::reserve::Reserved;
use crate::runtime::devices::{Denied, Device};
use crate::runtime::registration::Haste;

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
    device
        .shim()
        .accounts()
        .overhead
        .take(device, what, &mut make, &mut unmake)
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
        let before = self.before(device, what, reserved_bytes);
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

    /// Looks at the GPU before something is made, if nothing will tell afterwards of this process alone. `reserved_bytes` are
    /// counted for what is made.
    pub(super) fn before(&'static self, device: &'static Device, what: What, reserved_bytes: u64) -> Before {
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
        Before::seen(device, handle, reserved_bytes)
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
        let target_bytes = match figure {
            Figure::Exact(bytes, _) => bytes,
            Figure::AtLeast(bytes) => bytes.max(counted_bytes),
            Figure::Unknown => counted_bytes,
        };
        if self.charge_more(device, counted_bytes, target_bytes).is_err() {
            device.set_overhead(target_bytes);
            if is_told || !matches!(what, What::Code | What::Heap) {
                return Err(target_bytes - was_bytes.min(target_bytes));
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

    /// The overhead with what is more on the GPU than before. Processes of other tenants move memory too, and those of this
    /// one a moment before or after the ledger says so.
    fn by_difference(&self, device: &'static Device, what: What, before: &Before, was_bytes: u64) -> Figure {
        let more_bytes = before
            .more_bytes(device)
            .filter(|bytes| *bytes <= LARGEST_CONTEXT_BYTES);
        let more_bytes = match more_bytes {
            Some(_) if what == What::Context => probe::check(device, was_bytes == 0, more_bytes),
            None if what.is_context() => probe::check(device, was_bytes == 0, None),
            // A neighbour's context.
            Some(bytes) if what == What::Code && device.is_like_a_context(bytes) => return Figure::Unknown,
            more_bytes => more_bytes,
        };
        match more_bytes.unwrap_or(0) {
            0 => Figure::Unknown,
            bytes => Figure::Exact(was_bytes.saturating_add(bytes), false),
        }
    }
}
