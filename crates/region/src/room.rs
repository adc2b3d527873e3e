//! Room: how a process asks the manager for GPU memory that its quota allows and its GPU lacks.
//!
//! With overcommit the quotas on a GPU may exceed its memory. The manager then offers to make room, by a time in `limits`
//! that it renews. A process whose allocation the driver refused sets its device's bit in `usage`, again and again, and tries
//! the allocation again each time; the manager takes the bits and suspends other tenants. The tenant can write these words
//! without need: the manager compares with its quota and with NVML's figures, and believes one less that does not use the room.

use crate::DeviceIndex;
use crate::primitive::Ordering;
use crate::slots::Usage;

/// Longest wait of an allocation for room, if the tenant was made without one (ms).
pub const USUAL_WAIT_MS: u32 = 120_000;
/// Pause of a waiting process between two attempts, each with a request (ns).
pub const ASK_AGAIN_NS: u64 = 20_000_000;
/// Interval at which the manager renews its offer (ns).
pub const OFFER_EVERY_NS: u64 = 500_000_000;
/// Age of an offer that counts no more (ns): there is no manager.
pub const OFFER_STALE_NS: u64 = 3_000_000_000;

/// The bit of a device in the requests.
pub fn bit(device: DeviceIndex) -> u32 {
    1 << device.get()
}

impl Usage {
    /// Asks the manager for room on the devices of these bits.
    pub fn ask_for_room(&self, devices: u32) {
        self.room_wanted().fetch_or(devices, Ordering::Relaxed);
    }

    /// Counts an allocation within the quota that the driver refused.
    pub fn count_room_denied(&self) {
        self.room_denied().fetch_add(1, Ordering::Relaxed);
    }
}
