//! The memory that shim and manager share: limits, usage, ledger, bucket.
//!
//! A tenant (a container, or all processes of one `vcuda run` name) has a directory with two files. `limits` says what
//! the tenant may use; the manager or `vcuda run` writes it, and the tenant only reads it. `usage` says what the tenant
//! uses; its processes write it. Neither side calls the other: each reads the other's file.
//!
//! The path of one allocation: [`directory::resolve`] finds the tenant's directory, and [`limits::Limits`] tells the
//! limit. [`slots::Usage::claim`] gives the process its slot. [`slots::Slot::reserve`] counts the bytes before the
//! driver is asked; the sum over the slots is the truth, see [`ledger`]. The [`reservation::Reservation`] is
//! committed, or dropping it gives the bytes back. A launch is paid from the process's lease on the tenant's
//! [`bucket`](vcuda_limiter::token_bucket).
//!
//! Time is an argument everywhere; [`clock`] alone asks the machine for it. No function here prints, allocates on a hot
//! path, starts a thread, or reads the environment.
#![deny(unsafe_code)]

pub mod bypass;
#[cfg(not(loom))]
pub mod clock;
#[cfg(not(loom))]
pub mod directory;
#[cfg(not(loom))]
mod header;
pub mod layout;
pub mod ledger;
#[cfg(not(loom))]
pub mod limits;
#[cfg(not(loom))]
mod map;
#[cfg(not(loom))]
mod open;
#[cfg(not(loom))]
pub mod usage_reader;
// The limiter's atomics, counted in the tests of this crate too.
#[path = "../../limiter/src/primitive.rs"]
mod primitive;
#[cfg(not(loom))]
pub mod process;
#[cfg(not(loom))]
pub mod registration;
#[cfg(not(loom))]
pub mod release;
#[cfg(not(loom))]
pub mod reservation;
#[cfg(not(loom))]
pub mod room;
pub mod seqlock;
pub mod shared;
#[cfg(not(loom))]
pub mod slots;
pub mod suspension;
#[cfg(not(loom))]
mod sys;
pub mod uuid;

#[cfg(not(loom))]
pub use sys::aside;
pub use uuid::GpuUuid;
pub use vcuda_limiter::MAX_SLOTS;

/// Number of GPUs that one tenant can hold.
pub const MAX_DEVICES: usize = 16;

/// The position of a GPU in the tenant's `limits`. It means nothing outside this tenant's two files (I10): callers
/// find it by UUID with [`limits::Limits::find`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceIndex(u8);

impl DeviceIndex {
    /// Every position a tenant can have.
    #[expect(
        clippy::indexing_slicing,
        reason = "evaluated at compile time, where a wrong index is an error message"
    )]
    pub(crate) const ALL: [Self; MAX_DEVICES] = {
        let mut all = [Self(0); MAX_DEVICES];
        let mut index = 1;
        while (index as usize) < MAX_DEVICES {
            all[index as usize] = Self(index);
            index += 1;
        }
        all
    };

    /// The device at `index`; `None` if a tenant cannot have that many.
    pub fn new(index: usize) -> Option<Self> {
        u8::try_from(index).ok().filter(|_| index < MAX_DEVICES).map(Self)
    }

    /// The position, below [`MAX_DEVICES`].
    #[inline]
    pub fn get(self) -> usize {
        usize::from(self.0)
    }

    /// Every position a tenant can have.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter()
    }
}
