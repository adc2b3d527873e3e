//! This process's overhead as NVML's figure for it tells: its own NVML's, or what the manager's says.

use core::sync::atomic::{AtomicU8, Ordering};
use core::time::Duration;

use once_cell::sync::OnceCell;
use vcuda_driver_api::prelude::*;
use vcuda_region::process::ProcessView;
use vcuda_region::registration::ProcessMemory;

use super::nvml::{self, Listed};
use super::{Figure, NOTICEABLE_BYTES, Overhead};
use crate::runtime::devices::Device;
use crate::runtime::in_flight;
use crate::runtime::registration::{Haste, Manners};

/// How long a figure stands that could be a dying neighbour's memory, before it is believed.
const SETTLED_AFTER: Duration = Duration::from_millis(2);

/// Not known yet.
const UNKNOWN: u8 = 0;
/// NVML lists this process, under its PID.
const OWN_NVML: u8 = 1;
/// NVML lists a process of our PID that is another PID namespace's, or may do so; no manager has told of us so far.
const NAMESAKE: u8 = 2;
/// The manager tells.
const MANAGER: u8 = 3;

/// Who tells what this process has.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// [`UNKNOWN`], [`OWN_NVML`], [`NAMESAKE`] or [`MANAGER`].
    who: AtomicU8,
    manners: Manners,
    sees_all: OnceCell<bool>,
}

/// Looks at most, where each is a question to the manager.
const MOST_QUESTIONS: u32 = 8;

/// What NVML says of this process, whoever asked it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Bytes(u64),
    Nothing,
}

impl Source {
    /// Whether something tells of this process alone.
    pub(super) fn tells(&self) -> bool {
        matches!(self.who(), OWN_NVML | MANAGER)
    }

    /// Whether this process's own NVML tells: that costs no more than a look.
    pub(super) fn is_own(&self) -> bool {
        self.who() == OWN_NVML
    }

    fn who(&self) -> u8 {
        self.who.load(Ordering::Relaxed)
    }

    fn set(&self, who: u8) {
        self.who.store(who, Ordering::Relaxed);
    }
}

impl Overhead {
    /// Before this process has any context, NVML may list its number: then it is another process's, of another PID
    /// namespace.
    pub(super) fn look_for_namesake(&self, device: &'static Device, handle: Option<nvmlDevice_t>) {
        // What costs least is asked first.
        if let Some(handle) = handle
            && self.source.who() == UNKNOWN
            && !self.sees_all(device)
            && matches!(nvml::process_bytes(handle), Listed::Bytes(_))
            && super::gpu::context_on(device).is_null()
        {
            self.source.set(NAMESAKE);
        }
    }

    /// This process is about to make a context, and NVML was not asked before: what it lists by this process's number is not
    /// believed then, if it could be another's.
    pub(super) fn doubt_nvml(&self, device: &'static Device) {
        if self.source.who() == UNKNOWN && super::gpu::context_on(device).is_null() {
            self.source.set(NAMESAKE);
        }
    }

    /// NVML's figure for this process, less what the ledger has. Looked at up to `looks` times, until no other thread was
    /// moving memory meanwhile. Of the overhead that is counted `ended_bytes` were for something that the driver has just
    /// ended.
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
            if look >= MOST_QUESTIONS && !self.source.is_own() {
                break;
            }
            if look > 0 {
                std::thread::yield_now();
            }
            let counts = || {
                (
                    in_flight::quiet_epoch(),
                    device.own_bytes(),
                    device.managed_bytes(),
                )
            };
            let before = counts();
            let Told::Bytes(bytes) = self.told(device, haste) else {
                return least;
            };
            let after = counts();
            if (before.1, before.2) != (after.1, after.2) {
                continue;
            }
            let is_quiet = before.0.is_some() && before.0 == after.0;
            // Asked after the driver: whoever had died by then is cleared by now.
            let may_inherit = device.may_inherit();
            let known_bytes = device.overhead_bytes().saturating_sub(ended_bytes);
            let Some((overhead_bytes, is_certain)) =
                self.overhead_in(device, known_bytes, bytes, before.1, before.2)
            else {
                // Less than what is counted in full: it is not all there yet, and hides the driver's own use, which stays as
                // it was last known. Of a process that was never listed such a figure is some other's.
                if bytes == 0 && is_quiet {
                    return Figure::Exact(0, true);
                }
                return least;
            };
            if self.source.who() == UNKNOWN {
                self.source.set(OWN_NVML);
            }
            // The driver lets a process's memory go a moment before its end can be seen, or its own word can be read.
            if may_inherit
                && overhead_bytes > known_bytes
                && doubted_bytes.replace(overhead_bytes) != Some(overhead_bytes)
            {
                std::thread::sleep(SETTLED_AFTER);
                continue;
            }
            if is_quiet {
                return Figure::Exact(overhead_bytes, is_certain);
            }
            least = Figure::AtLeast(overhead_bytes);
        }
        least
    }

    /// What of NVML's figure for this process (`bytes`) is overhead, when the ledger has `own_bytes`, of which
    /// `managed_bytes` are managed memory, and whether nothing else could explain the figure; nothing if the ledger has more
    /// than NVML. `known_bytes` is what the overhead was as far as is known.
    ///
    /// NVML's figure is the process's local video memory, without managed memory as far as evidence goes (nvtop issue 213,
    /// rmm issue 2259): so managed memory is kept out, and if the figure held it after all, overhead would be too large and
    /// never too small. Where the figure was seen to grow by managed memory that was made ([`super::managed`]), all of it
    /// may be in the figure, or what the GPU has of it by now: overhead stays as it was last known for as long as that
    /// explains the figure. The sum that is charged is in both cases no less than what the process has of the GPU.
    fn overhead_in(
        &'static self,
        device: &'static Device,
        known_bytes: u64,
        bytes: u64,
        own_bytes: u64,
        managed_bytes: u64,
    ) -> Option<(u64, bool)> {
        let most_bytes = bytes.checked_sub(own_bytes.saturating_sub(managed_bytes))?;
        // Memory that other processes hold too, and that its exporter let go of, is in the figure of one of its holders,
        // and the driver does not say of which one; memory that only descriptors hold may be in no process's figure. As
        // long as the figure can be explained so, nothing has changed.
        let mut doubtful_bytes = device.ambiguous_bytes();
        if self.managed.is_in_figure() {
            doubtful_bytes = doubtful_bytes.saturating_add(managed_bytes);
        }
        let least_bytes = most_bytes.saturating_sub(doubtful_bytes);
        Some((known_bytes.clamp(least_bytes, most_bytes), doubtful_bytes == 0))
    }

    /// What NVML says that this process has, when nothing moves; nothing if nothing tells, or something moved.
    pub(super) fn quiet_bytes(&'static self, device: &'static Device) -> Option<u64> {
        let before = in_flight::quiet_epoch()?;
        let Told::Bytes(bytes) = self.told(device, Haste::Now) else {
            return None;
        };
        (in_flight::quiet_epoch() == Some(before)).then_some(bytes)
    }

    /// What NVML says: this process's own, and where that says nothing, the manager's.
    fn told(&'static self, device: &'static Device, haste: Haste) -> Told {
        let who = self.source.who();
        let own = match who {
            MANAGER | NAMESAKE => Listed::Untold,
            _ => self.handle(device).map_or(Listed::Untold, nvml::process_bytes),
        };
        match (who, own) {
            (OWN_NVML, Listed::Bytes(bytes)) => Told::Bytes(bytes),
            // Listed before and no more: its contexts are gone.
            (OWN_NVML, Listed::Not) => Told::Bytes(0),
            (_, Listed::Bytes(bytes)) if self.sees_all(device) => Told::Bytes(bytes),
            (_, own) => self.told_by_manager(device, own, haste),
        }
    }

    /// What the manager says, beside what NVML says here to a process that does not see all PIDs (`own`).
    fn told_by_manager(&'static self, device: &'static Device, own: Listed, haste: Haste) -> Told {
        let source = &self.source;
        // A process without a context is not asked for again and again.
        let is_worth_asking = haste == Haste::Now || device.overhead_bytes() > 0;
        let asked = if is_worth_asking {
            self.ask_manager(device, haste)
        } else {
            ProcessMemory::Unknown
        };
        match (asked, own) {
            // This process's own NVML says the same, and costs less.
            (ProcessMemory::Bytes(bytes), Listed::Bytes(own)) if bytes.abs_diff(own) < NOTICEABLE_BYTES => {
                source.set(OWN_NVML);
                Told::Bytes(own)
            }
            (ProcessMemory::Bytes(bytes), _) => {
                source.set(MANAGER);
                Told::Bytes(bytes)
            }
            // Listed before and no more: its contexts are gone.
            (ProcessMemory::NotListed, _) if source.who() == MANAGER => Told::Bytes(0),
            (_, Listed::Bytes(own)) => Told::Bytes(own),
            _ => Told::Nothing,
        }
    }

    /// Whether a manager tells of processes, of this one as well once it has a context.
    pub(super) fn is_manager_telling(&self, device: &'static Device) -> bool {
        self.ask_manager(device, Haste::Now) != ProcessMemory::Unknown
    }

    fn ask_manager(&self, device: &'static Device, haste: Haste) -> ProcessMemory {
        self.source.manners.ask(device.shim(), &device.uuid, haste)
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
