//! This process's overhead by NVML's figure for it: from its own NVML, or from the manager's.

use core::sync::atomic::{AtomicU8, Ordering};
use core::time::Duration;

use once_cell::sync::OnceCell;
use vcuda_driver_api::prelude::*;
use vcuda_region::process::ProcessView;
use vcuda_region::registration::ProcessMemory;

use super::nvml::{self, Listed};
use super::{Figure, NOTICEABLE_BYTES, Overhead};
use crate::runtime::registration::{Haste, Pacing};
use crate::runtime::shim::devices::Device;

/// Time that a figure must stand which could include a dying process's memory, before it is believed.
const SETTLED_AFTER: Duration = Duration::from_millis(2);

/// The source is not known yet.
const UNKNOWN: u8 = 0;
/// NVML lists this process, under its PID.
const OWN_NVML: u8 = 1;
/// NVML lists this process's PID, but that is or may be a process of another PID namespace; no manager has told so far.
const FOREIGN_PID: u8 = 2;
/// The manager tells this process's figure.
const MANAGER: u8 = 3;

/// The source of this process's figure.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// [`UNKNOWN`], [`OWN_NVML`], [`FOREIGN_PID`] or [`MANAGER`].
    origin: AtomicU8,
    pacing: Pacing,
    sees_all: OnceCell<bool>,
}

/// Maximum number of looks, if each is a question to the manager.
const MAX_QUESTIONS: u32 = 8;

/// NVML's figure for this process, from either source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reported {
    Bytes(u64),
    Nothing,
}

/// NVML's figure, with this process's counts at the same time.
#[derive(Debug, Clone, Copy)]
struct Reading {
    /// The figure (bytes).
    bytes: u64,
    /// Memory in the ledger (bytes).
    own_bytes: u64,
    /// Managed memory in the ledger (bytes).
    managed_bytes: u64,
    /// Whether the ledger changed while the figure was read.
    has_moved: bool,
    /// Whether no other thread had a memory call in flight meanwhile.
    is_quiet: bool,
}

impl Source {
    /// Whether there is a figure for this process alone.
    pub(super) fn is_known(&self) -> bool {
        matches!(self.origin(), OWN_NVML | MANAGER)
    }

    /// Whether this process's own NVML tells the figure, which costs no question to the manager.
    pub(super) fn is_own_nvml(&self) -> bool {
        self.origin() == OWN_NVML
    }

    fn origin(&self) -> u8 {
        self.origin.load(Ordering::Relaxed)
    }

    fn set(&self, origin: u8) {
        self.origin.store(origin, Ordering::Relaxed);
    }
}

impl Overhead {
    /// Detects that NVML lists a process of this PID before this process has any context: it is of another PID
    /// namespace.
    pub(super) fn detect_foreign_pid(&self, device: &'static Device, handle: Option<nvmlDevice_t>) {
        // The cheapest question first.
        if let Some(handle) = handle
            && self.source.origin() == UNKNOWN
            && !self.sees_all(device)
            && matches!(nvml::process_bytes(handle), Listed::Bytes(_))
            && super::gpu::context_on(device).is_null()
        {
            self.source.set(FOREIGN_PID);
        }
    }

    /// Called when this process is about to make a context and NVML was not asked before. From then on NVML's entry for
    /// this PID is not believed, if it could be another process's.
    pub(super) fn distrust_nvml(&self, device: &'static Device) {
        if self.source.origin() == UNKNOWN && super::gpu::context_on(device).is_null() {
            self.source.set(FOREIGN_PID);
        }
    }

    /// NVML's figure for this process, less what the ledger has. It is read up to `looks` times, until no other thread
    /// moves memory meanwhile. `ended_bytes` of the counted overhead were for an object that the driver has just ended.
    pub(super) fn figure(
        &'static self,
        device: &'static Device,
        looks: u32,
        haste: Haste,
        ended_bytes: u64,
    ) -> Figure {
        let mut least = Figure::Unknown;
        let mut doubted_bytes = None;
        for look in 0..looks {
            if look >= MAX_QUESTIONS && !self.source.is_own_nvml() {
                break;
            }
            if look > 0 {
                std::thread::yield_now();
            }
            let Some(reading) = self.read_figure(device, haste) else {
                return least;
            };
            if reading.has_moved {
                continue;
            }
            // Asked after the driver: processes that had died by then are cleared by now.
            let may_inherit = device.may_inherit();
            let known_bytes = device.overhead_bytes().saturating_sub(ended_bytes);
            let Some((overhead_bytes, is_certain)) = self.overhead_in(device, known_bytes, &reading) else {
                // NVML says less than what is certainly counted: not all of it is there yet. The driver's own use stays
                // as last known. If this process was never listed, the figure is another process's.
                if reading.bytes == 0 && reading.is_quiet {
                    return Figure::Exact(0, true);
                }
                return least;
            };
            if self.source.origin() == UNKNOWN {
                self.source.set(OWN_NVML);
            }
            // The driver attributes a dead process's memory to others a moment before that death can be seen.
            if may_inherit
                && overhead_bytes > known_bytes
                && doubted_bytes.replace(overhead_bytes) != Some(overhead_bytes)
            {
                std::thread::sleep(SETTLED_AFTER);
                continue;
            }
            if reading.is_quiet {
                return Figure::Exact(overhead_bytes, is_certain);
            }
            least = Figure::AtLeast(overhead_bytes);
        }
        least
    }

    /// Reads NVML's figure for this process, and its counts before and after. `None` if there is no figure.
    fn read_figure(&'static self, device: &'static Device, haste: Haste) -> Option<Reading> {
        let counts = || (device.shim().in_flight.quiet_epoch(), device.own_bytes(), device.managed_bytes());
        let before = counts();
        let Reported::Bytes(bytes) = self.reported(device, haste) else {
            return None;
        };
        let after = counts();
        Some(Reading {
            bytes,
            own_bytes: before.1,
            managed_bytes: before.2,
            has_moved: (before.1, before.2) != (after.1, after.2),
            is_quiet: before.0.is_some() && before.0 == after.0,
        })
    }

    /// The part of NVML's figure that is overhead, and whether no other memory could explain the figure. `known_bytes`
    /// is the overhead as last known. `None` if the ledger has more than NVML.
    ///
    /// NVML's figure is the process's local video memory, as far as is known without managed memory (nvtop issue 213,
    /// rmm issue 2259). So managed memory is left out: if the figure includes it after all, overhead is too large,
    /// never too small. If the figure was seen to grow by managed memory ([`super::managed`]), it may include all of
    /// that memory, or the part now on the GPU. Then overhead stays as last known for as long as that explains the
    /// figure. In both cases the charged sum is no less than what the process has on the GPU.
    fn overhead_in(
        &'static self,
        device: &'static Device,
        known_bytes: u64,
        reading: &Reading,
    ) -> Option<(u64, bool)> {
        let unmanaged_bytes = reading.own_bytes.saturating_sub(reading.managed_bytes);
        let most_bytes = reading.bytes.checked_sub(unmanaged_bytes)?;
        // Memory that other processes hold too, and that its exporter let go of, is in the figure of one of its
        // holders; the driver does not say which. Memory that only descriptors hold may be in no process's figure. If
        // that explains the figure, nothing has changed.
        let mut doubtful_bytes = device.ambiguous_bytes();
        if self.managed.is_in_figure() {
            doubtful_bytes = doubtful_bytes.saturating_add(reading.managed_bytes);
        }
        let least_bytes = most_bytes.saturating_sub(doubtful_bytes);
        Some((known_bytes.clamp(least_bytes, most_bytes), doubtful_bytes == 0))
    }

    /// NVML's figure for this process; `None` if there is none, or if memory moved meanwhile.
    pub(super) fn quiet_bytes(&'static self, device: &'static Device) -> Option<u64> {
        let before = device.shim().in_flight.quiet_epoch()?;
        let Reported::Bytes(bytes) = self.reported(device, Haste::Now) else {
            return None;
        };
        (device.shim().in_flight.quiet_epoch() == Some(before)).then_some(bytes)
    }

    /// NVML's figure: this process's own, and if that says nothing, the manager's.
    fn reported(&'static self, device: &'static Device, haste: Haste) -> Reported {
        let origin = self.source.origin();
        let own = match origin {
            MANAGER | FOREIGN_PID => Listed::Unknown,
            _ => self.handle(device).map_or(Listed::Unknown, nvml::process_bytes),
        };
        match (origin, own) {
            (OWN_NVML, Listed::Bytes(bytes)) => Reported::Bytes(bytes),
            // Listed before and no more: its contexts are gone.
            (OWN_NVML, Listed::Not) => Reported::Bytes(0),
            (_, Listed::Bytes(bytes)) if self.sees_all(device) => Reported::Bytes(bytes),
            (_, own) => self.reported_by_manager(device, own, haste),
        }
    }

    /// The manager's figure. `own` is what NVML says here, to a process that does not see all PIDs.
    fn reported_by_manager(&'static self, device: &'static Device, own: Listed, haste: Haste) -> Reported {
        let source = &self.source;
        // A process without a context does not ask again and again.
        let is_worth_asking = haste == Haste::Now || device.overhead_bytes() > 0;
        let asked = if is_worth_asking { self.ask_manager(device, haste) } else { ProcessMemory::Unknown };
        match (asked, own) {
            // This process's own NVML says the same, and costs less.
            (ProcessMemory::Bytes(bytes), Listed::Bytes(own)) if bytes.abs_diff(own) < NOTICEABLE_BYTES => {
                source.set(OWN_NVML);
                Reported::Bytes(own)
            }
            // So does the process's own NVML, for less, once it is started.
            (ProcessMemory::Bytes(bytes), _) if self.sees_all(device) => Reported::Bytes(bytes),
            (ProcessMemory::Bytes(bytes), _) => {
                source.set(MANAGER);
                Reported::Bytes(bytes)
            }
            // Listed before and no more: its contexts are gone.
            (ProcessMemory::NotListed, _) if source.origin() == MANAGER => Reported::Bytes(0),
            (_, Listed::Bytes(own)) => Reported::Bytes(own),
            _ => Reported::Nothing,
        }
    }

    /// Whether only a manager can tell, and does answer about processes, and so about this one once it has a context.
    pub(super) fn is_manager_telling(&self, device: &'static Device) -> bool {
        !self.sees_all(device) && self.ask_manager(device, Haste::Now) != ProcessMemory::Unknown
    }

    fn ask_manager(&self, device: &'static Device, haste: Haste) -> ProcessMemory {
        self.source.pacing.ask(device.shim(), &device.uuid, haste)
    }

    /// Whether NVML here lists this process by its own PID, if it lists it.
    pub(super) fn sees_all(&self, device: &Device) -> bool {
        let look = || {
            let me = device.shim().identity();
            me.is_some_and(|me| ProcessView::new(*me).sees_all())
        };
        *self.source.sees_all.get_or_init(look)
    }
}
