//! The bucket of GPU time: one per tenant and device, in nanoseconds.
//!
//! What the tenant has consumed is one word, the level. Its refill is a line in time, the [`Pace`], which only the manager
//! or the arbiter writes: there is no refill step, so no process can die in one. The tokens are the difference; below zero
//! they are debt, which time pays back. How far into debt launches go is decided in `controller/throttle.rs`.
//!
//! A process takes from the bucket in parts ([`Lease`]), so that most launches cost one atomic addition on a line
//! of their own. The sum `level - leases` is what has been charged, exactly, whoever dies where; a kill between the two
//! steps of a part costs the tenant that part and never gives it one.

use crate::primitive::{AtomicI64, AtomicU32, AtomicU64, Ordering};

mod beside;
mod contexts;
mod counts;
mod lateness;
mod meter;
mod pace;
mod unseen;
pub use lateness::{Lateness, LatenessUse};
pub use meter::{LEASE_PART_NS, Lease, Meter, PREDICTION_MAX_NS};
pub use pace::Pace;

/// Words of a device's busy map, see [`crate::busy`]. (Loom and miri follow each word; their tests do not use the map.)
pub const BUSY_WORDS: usize = if cfg!(any(loom, miri)) { 16 } else { 4096 };

/// The tenant's bucket on one device. All its processes share it.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct TokenBucket {
    /// What the tenant has consumed or holds in leases (ns of GPU time).
    pub level_ns: AtomicI64,
    beside_ns: AtomicU64,
    /// When a launch last went on debt as its wait came to the bound (`CLOCK_MONOTONIC`, ns).
    debt_admitted_ns: AtomicU64,
    /// When what ended unseen so far is paid for (`CLOCK_MONOTONIC`, ns): `unseen`.
    unseen_paid_ns: AtomicU64,
    reserved_level: [AtomicU64; 12],
    /// Futex word for those who wait in this tenant.
    pub wake: AtomicU32,
    /// How many wait there.
    pub waiters: AtomicU32,
    /// How late those went on whose wait had an end that was known.
    pub lateness: Lateness,
    reserved_wake: [AtomicU64; 16],
    /// GPU time that counts as the tenant's so far: measured, apportioned among those who overlapped (ns).
    pub served_ns: AtomicU64,
    /// Debt that was forgiven (ns of GPU time).
    pub forgiven_ns: AtomicU64,
    reserved_percentile: AtomicU64,
    /// Reservations of memory that were refused.
    pub denied: AtomicU64,
    context_bytes: [AtomicU64; 2],
    reserved_context: [AtomicU64; 2],
    /// Copies between host and device.
    pub host_copies: AtomicU64,
    /// What they moved (bytes).
    pub host_copied_bytes: AtomicU64,
    collective_ns: AtomicU64,
    collectives: AtomicU64,
    /// Time that was new in the busy map when it was measured (ns).
    pub measured_ns: AtomicU64,
    /// What was charged for it (ns of GPU time).
    pub measured_charge_ns: AtomicU64,
    /// All measured time, of every stream (ns).
    pub measured_elapsed_ns: AtomicU64,
    /// Measured time of every context, each moment once for each (ns). 0 where programs of an earlier release measured.
    pub contexts_ns: AtomicU64,
    /// When the device was busy for this tenant.
    pub busy: [AtomicU64; BUSY_WORDS],
}

impl Default for TokenBucket {
    fn default() -> Self {
        Self {
            level_ns: AtomicI64::new(0),
            beside_ns: AtomicU64::new(0),
            debt_admitted_ns: AtomicU64::new(0),
            unseen_paid_ns: AtomicU64::new(0),
            reserved_level: core::array::from_fn(|_| AtomicU64::new(0)),
            wake: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
            lateness: Lateness::default(),
            reserved_wake: core::array::from_fn(|_| AtomicU64::new(0)),
            served_ns: AtomicU64::new(0),
            forgiven_ns: AtomicU64::new(0),
            reserved_percentile: AtomicU64::new(0),
            denied: AtomicU64::new(0),
            context_bytes: core::array::from_fn(|_| AtomicU64::new(0)),
            reserved_context: core::array::from_fn(|_| AtomicU64::new(0)),
            host_copies: AtomicU64::new(0),
            host_copied_bytes: AtomicU64::new(0),
            collective_ns: AtomicU64::new(0),
            collectives: AtomicU64::new(0),
            measured_ns: AtomicU64::new(0),
            measured_charge_ns: AtomicU64::new(0),
            measured_elapsed_ns: AtomicU64::new(0),
            contexts_ns: AtomicU64::new(0),
            busy: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl TokenBucket {
    /// What the tenant has consumed or holds in leases (ns of GPU time).
    #[inline]
    pub fn level_ns(&self) -> i64 {
        self.level_ns.load(Ordering::Relaxed)
    }

    /// What may still be consumed at `now_ns`; negative is debt (ns of GPU time).
    #[inline]
    pub fn tokens(&self, pace: &Pace, now_ns: u64) -> i64 {
        pace.credit_at(now_ns).saturating_sub(self.level_ns())
    }

    /// Charges GPU time without a lease (ns); a negative amount gives back.
    #[inline]
    pub fn charge(&self, amount_ns: i64) {
        self.level_ns.fetch_add(amount_ns, Ordering::Relaxed);
    }

    /// Replaces a prediction, charged at the launch, by what was measured and scaled.
    pub fn settle(&self, predicted_ns: u64, measured_ns: u64, scale_permille: u32) {
        let scaled = u128::from(measured_ns) * u128::from(scale_permille) / 1000;
        self.charge(to_i64(u64::try_from(scaled).unwrap_or(u64::MAX)).saturating_sub(to_i64(predicted_ns)));
    }

    /// Whether a launch whose wait has come to its bound may go on debt now: one in `every_ns`, however many threads and
    /// processes of the tenant wait. Else until when none may (`CLOCK_MONOTONIC`, ns).
    ///
    /// # Errors
    /// That time.
    pub fn admit_on_debt(&self, now_ns: u64, every_ns: u64) -> Result<(), u64> {
        let last_ns = self.debt_admitted_ns.load(Ordering::Relaxed);
        // A time that is yet to come is nonsense, which a tenant may write.
        if last_ns <= now_ns && now_ns - last_ns < every_ns {
            return Err(last_ns + every_ns);
        }
        let admitted =
            self.debt_admitted_ns
                .compare_exchange(last_ns, now_ns, Ordering::Relaxed, Ordering::Relaxed);
        admitted.map(drop).map_err(|_| now_ns.saturating_add(every_ns))
    }

    /// Keeps the tokens within `-debt_max_ns ..= burst_ns`: idle time is not banked, and a debt beyond what is
    /// ever paid is forgiven. Returns what was forgiven (ns), which is counted in [`TokenBucket::forgiven_ns`].
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
            match self
                .level_ns
                .compare_exchange_weak(level, wanted, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => {
                    let forgiven = u64::try_from(level.saturating_sub(wanted)).unwrap_or(0);
                    self.forgiven_ns.fetch_add(forgiven, Ordering::Relaxed);
                    return forgiven;
                }
                Err(now) => level = now,
            }
        }
    }

    /// Counts a refused reservation of memory.
    pub fn count_denied(&self) {
        self.denied.fetch_add(1, Ordering::Relaxed);
    }

    /// Reservations of memory refused so far, to processes that are gone too.
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
