//! Charges for what the driver takes for an object, read before and after it is made. What does not fit is undone.

use core::sync::atomic::{AtomicU32, Ordering};

use vcuda_driver_api::prelude::*;

use super::gpu::UsageBefore;
use super::probe::{self, LARGEST_CONTEXT_BYTES};
use super::{Figure, ObjectKind, Overhead};
use crate::memory::reserve::Reserved;
use crate::runtime::registration::Haste;
use crate::runtime::shim::devices::{Denied, Device};

/// A guard for a call that makes an object which may not fit.
struct Making<'a>(&'a AtomicU32);

impl<'a> Making<'a> {
    fn begin(count: &'a AtomicU32) -> Self {
        // Sequentially consistent with the reads in `remeasure`, and before anything is made.
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Has the driver make an object, and charges what it takes for it. Returns that (bytes).
///
/// # Errors
/// The driver's error; or the object does not fit, and `unmake` has undone it.
pub(crate) fn make_charged(
    device: &'static Device,
    kind: ObjectKind,
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
    device.shim().accounts().overhead.make_charged(device, kind, &mut make, &mut unmake)
}

impl Overhead {
    fn make_charged(
        &'static self,
        device: &'static Device,
        kind: ObjectKind,
        make: &mut dyn FnMut() -> CUresult,
        unmake: &mut dyn FnMut(),
    ) -> Result<u64, CUerror> {
        device.notice_contexts();
        if kind.is_context() {
            self.start_nvml();
        }
        let is_first = device.overhead_bytes() == 0;
        let expected_bytes = device.context_bytes(is_first);
        // What does not fit must not be taken even for a moment: a neighbour within its quota would be refused meanwhile.
        let reserved = match kind {
            ObjectKind::Heap(0) => None,
            ObjectKind::Heap(most_bytes) => Some(device.reserve(most_bytes)?),
            _ if kind.is_context() => Some(device.reserve(device.most_context_bytes(is_first))?),
            _ => None,
        };
        let reserved_bytes = reserved.as_ref().map_or(0, Reserved::bytes);
        let before = self.usage_before(device, kind, reserved_bytes);
        let making = Making::begin(&self.making);
        make()?;
        if kind.is_context() {
            device.set_noticed(true);
            self.await_nvml_after(device, expected_bytes);
        }
        let is_early = kind.is_context() && self.nvml.is_starting();
        let settled = self.settle(device, kind, reserved, &before);
        if is_early {
            self.correct_when_ready();
        }
        drop(making);
        match settled {
            Ok((bytes, is_certain)) => {
                if is_certain && kind == ObjectKind::Context && bytes > 0 && bytes <= LARGEST_CONTEXT_BYTES {
                    device.note_context(is_first, bytes);
                }
                if matches!(kind, ObjectKind::Code | ObjectKind::Heap(_)) {
                    // The driver may take some of it only at the first launch.
                    self.watch.note_event();
                }
                Ok(bytes)
            }
            Err(excess_bytes) => {
                unmake();
                // Counted until here, as the memory was in use.
                device.release_overhead(excess_bytes);
                self.measure(device, Haste::Now);
                Err(Denied.into())
            }
        }
    }

    /// Reads the GPU before an object is made, if there will be no figure for this process alone. `reserved_bytes` are
    /// counted for the object.
    pub(super) fn usage_before(
        &'static self,
        device: &'static Device,
        kind: ObjectKind,
        reserved_bytes: u64,
    ) -> UsageBefore {
        if kind.is_context() {
            self.await_nvml_before(device);
        }
        let handle = self.handle(device);
        if kind.is_context() {
            self.detect_foreign_pid(device, handle);
        }
        // If NVML is ready late, the charge is corrected then.
        if self.source.is_known() || (kind.is_context() && self.nvml.is_starting()) {
            return UsageBefore::UNREAD;
        }
        UsageBefore::read(device, handle, reserved_bytes)
    }

    /// Charges what the driver took beyond what is counted. Returns that (bytes), and whether it is certain. If it is
    /// not, a context took at least what was reserved for it.
    ///
    /// # Errors
    /// The object does not fit. It is counted nevertheless; the error says how much to give back once it is undone.
    fn settle(
        &'static self,
        device: &'static Device,
        kind: ObjectKind,
        reserved: Option<Reserved>,
        before: &UsageBefore,
    ) -> Result<(u64, bool), u64> {
        let _measuring = self.measuring.lock();
        let was_bytes = device.overhead_bytes();
        let was_certain = device.is_overhead_certain();
        let reserved_bytes = reserved.as_ref().map_or(0, Reserved::bytes);
        if let Some(reserved) = reserved {
            reserved.become_overhead();
        }
        let counted_bytes = device.overhead_bytes();
        let (figure, is_told) = match self.figure(device, 64, kind.haste(), 0) {
            Figure::Unknown => (self.by_difference(device, kind, before, was_bytes), false),
            figure => (figure, true),
        };
        let target_bytes = match figure {
            Figure::Exact(bytes, _) => bytes,
            Figure::AtLeast(bytes) => bytes.max(counted_bytes),
            Figure::Unknown => counted_bytes,
        };
        if self.charge_more(device, counted_bytes, target_bytes).is_err() {
            device.set_overhead(target_bytes);
            if is_told || !matches!(kind, ObjectKind::Code | ObjectKind::Heap(_)) {
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

    /// Raises the counted overhead from `counted_bytes` to `target_bytes`.
    ///
    /// # Errors
    /// The difference does not fit, and nothing has changed.
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

    /// The overhead by the growth of memory in use on the GPU. Processes of other tenants move memory too, and the
    /// tenant's own do so a moment before or after the ledger says so.
    fn by_difference(
        &self,
        device: &'static Device,
        kind: ObjectKind,
        before: &UsageBefore,
        was_bytes: u64,
    ) -> Figure {
        let more_bytes = before.growth_bytes(device).filter(|bytes| *bytes <= LARGEST_CONTEXT_BYTES);
        let more_bytes = match more_bytes {
            Some(_) if kind == ObjectKind::Context => probe::context_size(device, was_bytes == 0, more_bytes),
            None if kind.is_context() => probe::context_size(device, was_bytes == 0, None),
            // The growth is another process's context.
            Some(bytes) if kind == ObjectKind::Code && device.is_like_a_context(bytes) => {
                return Figure::Unknown;
            }
            more_bytes => more_bytes,
        };
        match more_bytes.unwrap_or(0) {
            0 => Figure::Unknown,
            bytes => Figure::Exact(was_bytes.saturating_add(bytes), false),
        }
    }
}
