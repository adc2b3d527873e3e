//! The memory side of the process's state.
//!
//! Each layer owns its part: the runtime [`Shim`], this one [`Accounts`], and compute its launches. The first hook that needs
//! a state builds `Shim` and `Accounts` together; the first metered launch makes the launches. What runtime and compute need
//! of this side they call through [`MemorySide`].

use crate::driver::Bypass;
use crate::memory::allocations::Allocations;
use crate::memory::exported::Exported;
use crate::memory::graph_memory::Executables;
use crate::memory::mappings::Mappings;
use crate::memory::overhead::Overhead;
use crate::memory::pool_accounts::PoolAccounts;
use crate::runtime::chores;
use crate::runtime::region::Region;
use crate::runtime::shim::devices::Device;
use crate::runtime::shim::{self, MemorySide, Shim};

/// GPU memory that this process uses.
#[derive(Debug)]
pub(crate) struct Accounts {
    /// The process's allocations.
    pub(crate) allocations: Allocations,
    /// Physical memory that the application maps itself.
    pub(crate) mappings: Mappings,
    /// Memory that was exported as descriptors.
    pub(crate) exported: Exported,
    /// Memory that the driver holds for pools and graphs.
    pub(crate) pool_accounts: PoolAccounts,
    /// The executable graphs that allocate memory.
    pub(crate) graphs: Executables,
    /// The driver's own use.
    pub(crate) overhead: Overhead,
}

impl Accounts {
    fn make() -> &'static dyn MemorySide {
        Box::leak(Box::new(Self {
            allocations: Allocations::new(),
            mappings: Mappings::default(),
            exported: Exported::default(),
            pool_accounts: PoolAccounts::default(),
            graphs: Executables::default(),
            overhead: Overhead::default(),
        }))
    }
}

impl MemorySide for Accounts {
    fn notice_contexts(&'static self, device: &'static Device) {
        self.overhead.notice(device);
    }

    fn settle_exported(&self, region: &Region) {
        self.exported.settle(region.usage, false);
    }

    fn slot_taken(&self) {
        chores::start();
    }

    fn end_watch(&self) {
        self.overhead.end_watch();
    }
}

impl Shim {
    /// GPU memory that this process uses.
    #[inline]
    pub(crate) fn accounts(&self) -> &'static Accounts {
        let memory: *const dyn MemorySide = self.memory;
        // SAFETY: no other type is a memory side, and each state is made with one by this module.
        unsafe { &*memory.cast::<Accounts>() }
    }

    /// The state of a process without usable limits.
    #[cfg(test)]
    pub(crate) fn for_tests() -> &'static Self {
        Self::without_limits(Accounts::make())
    }
}

/// The state, built by the first call; `None` in a process that is not managed.
#[inline]
pub(crate) fn get() -> Option<&'static Shim> {
    managed().ok()
}

/// As [`get`], for handlers: `?` leaves the call to the driver if no limit applies.
///
/// # Errors
/// [`Bypass::NoLimit`]: the process is not managed.
#[inline]
pub(crate) fn managed() -> Result<&'static Shim, Bypass> {
    shim::managed(Accounts::make)
}
