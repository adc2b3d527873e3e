//! The token bucket of a tenant on a device. A token is a nanosecond of GPU time.
//!
//! A single word counts the GPU time that the tenant has consumed. The refill is a linear function of time, the [`Pace`], which
//! only the manager or the arbiter writes. There is no refill step, so no process can die in one. The tokens are refill minus
//! consumption. If they are negative, the bucket is in debt, which the refill pays back. `controller/throttle.rs` decides how
//! far into debt launches go.
//!
//! A process consumes in parts ([`Lease`]), so that most launches cost a single atomic addition on a cache line of the process.
//! Consumed time minus the leases is exactly the charged time, even if processes are killed. A kill between the two steps of a
//! part costs the tenant that part; it never gains one.

use crate::primitive::{AtomicI64, AtomicU32, AtomicU64, Ordering};

mod beside;
mod contexts;
mod counts;
mod lateness;
mod meter;
mod overrun;
mod pace;
pub use lateness::{Lateness, LatenessUse};
pub use meter::{LEASE_PART_NS, Lease, Meter, PREDICTION_MAX_NS};
pub use overrun::is_overrun;
pub use pace::Pace;

/// Number of words of a device's busy map, see [`crate::busy`]. (Loom and miri track each word; their tests do not use the map.)
pub const BUSY_WORDS: usize = if cfg!(any(loom, miri)) { 16 } else { 4096 };

/// The tenant's bucket on a device, shared by all its processes.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct TokenBucket {
    /// GPU time that the tenant has consumed or holds in leases (ns).
    pub level_ns: AtomicI64,
    beside_ns: AtomicU64,
    /// Time at which a launch last proceeded on debt after the longest wait (`CLOCK_MONOTONIC`, ns).
    debt_admitted_ns: AtomicU64,
    reserved_unseen: AtomicU64,
    /// Time at which work was last seen to wait for a launch that was held elsewhere (`CLOCK_MONOTONIC`, ns): see `overrun`.
    gang_ns: AtomicU64,
    /// Work that runs longer than predicted: for how long, and when that was seen (`CLOCK_MONOTONIC`, both ns): see `overrun`.
    running_ns: AtomicU64,
    running_at_ns: AtomicU64,
    /// Sum of the times of such work that has ended since the tenant last had tokens (ns).
    waited_ns: AtomicU64,
    reserved_level: [AtomicU64; 8],
    /// Futex word of the tenant's waiting threads.
    pub wake: AtomicU32,
    /// Number of waiting threads.
    pub waiters: AtomicU32,
    /// Histogram of the lateness of waits whose end was computed.
    pub lateness: Lateness,
    reserved_wake: [AtomicU64; 16],
    /// GPU time of the tenant so far (ns): measured, and apportioned among tenants that were busy at the same time.
    pub served_ns: AtomicU64,
    /// Forgiven debt (ns of GPU time).
    pub forgiven_ns: AtomicU64,
    /// Most memory that a process had at once whose slot another one has taken since (bytes).
    pub peak_bytes: AtomicU64,
    /// Number of refused reservations of memory.
    pub denied: AtomicU64,
    context_bytes: [AtomicU64; 2],
    /// Size of the last refused reservation (bytes).
    pub denied_bytes: AtomicU64,
    /// Memory of the tenant at that refusal (bytes).
    pub denied_used_bytes: AtomicU64,
    /// Number of copies between host and device.
    pub host_copies: AtomicU64,
    /// Bytes of those copies.
    pub host_copied_bytes: AtomicU64,
    /// The longest overrun of the last ten seconds, and when it ended (`CLOCK_MONOTONIC`, both ns): see `overrun`.
    overran_ns: AtomicU64,
    overran_at_ns: AtomicU64,
    /// Measured time whose bins were new in the busy map (ns).
    pub measured_ns: AtomicU64,
    /// GPU time that was charged for `measured_ns` (ns).
    pub measured_charge_ns: AtomicU64,
    reserved_measured: AtomicU64,
    /// Sum of the busy time of all contexts (ns).
    pub contexts_ns: AtomicU64,
    /// Busy map of the tenant on the device.
    pub busy: [AtomicU64; BUSY_WORDS],
}

impl Default for TokenBucket {
    fn default() -> Self {
        Self {
            level_ns: AtomicI64::new(0),
            beside_ns: AtomicU64::new(0),
            debt_admitted_ns: AtomicU64::new(0),
            reserved_unseen: AtomicU64::new(0),
            gang_ns: AtomicU64::new(0),
            running_ns: AtomicU64::new(0),
            running_at_ns: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
            reserved_level: core::array::from_fn(|_| AtomicU64::new(0)),
            wake: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
            lateness: Lateness::default(),
            reserved_wake: core::array::from_fn(|_| AtomicU64::new(0)),
            served_ns: AtomicU64::new(0),
            forgiven_ns: AtomicU64::new(0),
            peak_bytes: AtomicU64::new(0),
            denied: AtomicU64::new(0),
            context_bytes: core::array::from_fn(|_| AtomicU64::new(0)),
            denied_bytes: AtomicU64::new(0),
            denied_used_bytes: AtomicU64::new(0),
            host_copies: AtomicU64::new(0),
            host_copied_bytes: AtomicU64::new(0),
            overran_ns: AtomicU64::new(0),
            overran_at_ns: AtomicU64::new(0),
            measured_ns: AtomicU64::new(0),
            measured_charge_ns: AtomicU64::new(0),
            reserved_measured: AtomicU64::new(0),
            contexts_ns: AtomicU64::new(0),
            busy: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl TokenBucket {
    /// GPU time that the tenant has consumed or holds in leases (ns).
    #[inline]
    pub fn level_ns(&self) -> i64 {
        self.level_ns.load(Ordering::Relaxed)
    }

    /// Tokens at `now_ns` (ns of GPU time). A negative number is debt.
    #[inline]
    pub fn tokens(&self, pace: &Pace, now_ns: u64) -> i64 {
        pace.credit_at(now_ns).saturating_sub(self.level_ns())
    }

    /// Charges GPU time without a lease (ns). A negative amount is given back.
    #[inline]
    pub fn charge(&self, amount_ns: i64) {
        self.level_ns.fetch_add(amount_ns, Ordering::Relaxed);
    }

    /// Replaces the prediction, which was charged at the launch, by the scaled measured time.
    pub fn settle(&self, predicted_ns: u64, measured_ns: u64, scale_permille: u32) {
        let scaled = u128::from(measured_ns) * u128::from(scale_permille) / 1000;
        self.charge(to_i64(u64::try_from(scaled).unwrap_or(u64::MAX)).saturating_sub(to_i64(predicted_ns)));
    }

    /// Lets a launch proceed on debt after the longest wait: only one in `every_ns` of all the tenant's threads and processes.
    ///
    /// # Errors
    /// The launch may not proceed now. The error is the time at which the next one may (`CLOCK_MONOTONIC`, ns).
    pub fn admit_on_debt(&self, now_ns: u64, every_ns: u64) -> Result<(), u64> {
        let last_ns = self.debt_admitted_ns.load(Ordering::Relaxed);
        // A time in the future is invalid; a tenant may write it.
        if last_ns <= now_ns && now_ns - last_ns < every_ns {
            return Err(last_ns + every_ns);
        }
        let admitted =
            self.debt_admitted_ns.compare_exchange(last_ns, now_ns, Ordering::Relaxed, Ordering::Relaxed);
        admitted.map(drop).map_err(|_| now_ns.saturating_add(every_ns))
    }

    /// Keeps the tokens within `-debt_max_ns ..= burst_ns`: idle time is not saved beyond the burst, and debt beyond the maximum is
    /// forgiven. Returns the forgiven debt (ns), which [`TokenBucket::forgiven_ns`] counts.
    pub fn clamp(&self, pace: &Pace, burst_ns: u64, debt_max_ns: u64, now_ns: u64) -> u64 {
        let credit = pace.credit_at(now_ns);
        let lowest = credit.saturating_sub(to_i64(burst_ns));
        let highest = credit.saturating_add(to_i64(debt_max_ns));
        let mut level = self.level_ns.load(Ordering::Relaxed);
        loop {
            let wanted = level.clamp(lowest, highest);
            if wanted == level {
                return 0;
            }
            match self.level_ns.compare_exchange_weak(level, wanted, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    let forgiven = u64::try_from(level.saturating_sub(wanted)).unwrap_or(0);
                    self.forgiven_ns.fetch_add(forgiven, Ordering::Relaxed);
                    return forgiven;
                }
                Err(now) => level = now,
            }
        }
    }

    /// Counts a refused reservation of memory, and notes its size and the memory that the tenant had.
    pub fn count_denied(&self, bytes: u64, used_bytes: u64) {
        // First, so that a reader that sees the count sees a size.
        self.denied_bytes.store(bytes, Ordering::Relaxed);
        self.denied_used_bytes.store(used_bytes, Ordering::Relaxed);
        self.denied.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes the most memory that a process has had at once.
    pub fn note_peak(&self, bytes: u64) {
        // A process that starts writes to no page of a GPU that the tenant does not have.
        if bytes > self.peak_bytes.load(Ordering::Relaxed) {
            self.peak_bytes.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// Number of refused reservations of memory, including those of dead processes.
    pub fn denied(&self) -> u64 {
        self.denied.load(Ordering::Relaxed)
    }

    /// Debt forgiven so far (ns).
    pub fn forgiven_ns(&self) -> u64 {
        self.forgiven_ns.load(Ordering::Relaxed)
    }
}

fn to_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
