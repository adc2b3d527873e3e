//! The bucket of GPU time: one per container and device, in nanoseconds.
//!
//! What the container has consumed is one word, its level. What it has earned is a line in time that only the manager
//! (or the arbiter) writes, its [`Pace`]: there is no refill step, so no process can die in one. The tokens are the
//! difference; a launch is admitted while it is positive, and may drive it negative: debt, which time pays back.
//!
//! A process takes from the bucket in parts ([`Lease`]), so that most launches cost one atomic subtraction on a line
//! of their own. The sum `level - leases` is what has been charged, exactly, whoever dies where; a kill between the two
//! steps of a part costs the container that part and never gives it one.

use crate::primitive::{AtomicI64, AtomicU32, AtomicU64, Ordering};

mod beside;
mod contexts;
mod counts;
mod lateness;
mod pace;
mod unseen;
pub use lateness::{Lateness, LatenessUse};
pub use pace::Pace;

/// GPU time that a process takes from its container's bucket at once (ns), beside what the launch at hand needs.
pub const LEASE_PART_NS: u64 = 200_000;

/// Words of a device's busy map, see [`crate::busy`]. (Loom and miri follow each word; their tests do not use the map.)
pub const BUSY_WORDS: usize = if cfg!(any(loom, miri)) { 16 } else { 4096 };

/// The container's bucket on one device. All its processes share it.
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
    /// Futex word for those who wait in this container.
    pub wake: AtomicU32,
    /// How many wait there.
    pub waiters: AtomicU32,
    /// How late those went on whose wait had an end that was known.
    pub lateness: Lateness,
    reserved_wake: [AtomicU64; 16],
    /// GPU time that counts as the container's so far: measured, apportioned among those who overlapped (ns).
    pub served_ns: AtomicU64,
    /// Debt that was forgiven (ns of GPU time).
    pub forgiven_ns: AtomicU64,
    reserved_percentile: AtomicU64,
    /// Reservations of memory that were refused.
    pub denied: AtomicU64,
    context_bytes: [AtomicU64; 2],
    doubted_context_bytes: [AtomicU64; 2],
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
    /// When the device was busy for this container.
    pub busy: [AtomicU64; BUSY_WORDS],
}

/// One process's GPU time on one device.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Meter {
    lease: AtomicU64,
    taken_ns: AtomicI64,
    settled_ns: AtomicI64,
    settled_launches: AtomicU64,
    /// GPU time charged by measurement (ns).
    pub charged_ns: AtomicU64,
    /// Time that launches were held (ns).
    pub held_ns: AtomicU64,
    /// How often a launch was held.
    pub holds: AtomicU32,
    /// How often a wait came to its bound and the launch went on debt.
    pub debt_admits: AtomicU32,
    /// Sum of the differences between prediction and truth (ns).
    pub mispredicted_ns: AtomicU64,
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
            doubted_context_bytes: core::array::from_fn(|_| AtomicU64::new(0)),
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
    /// What the container has consumed or holds in leases (ns of GPU time).
    #[inline]
    pub fn level_ns(&self) -> i64 {
        self.level_ns.load(Ordering::Relaxed)
    }

    /// What may still be consumed at `now_ns`; negative is debt (ns of GPU time).
    #[inline]
    pub fn tokens(&self, pace: &Pace, now_ns: u64) -> i64 {
        pace.credit_at(now_ns).saturating_sub(self.level_ns())
    }

    /// When the tokens will be positive if nothing is consumed meanwhile (`CLOCK_MONOTONIC`, ns): `now_ns` if it is,
    /// `u64::MAX` if it never will be.
    pub fn due_at(&self, pace: &Pace, now_ns: u64) -> u64 {
        let tokens = self.tokens(pace, now_ns);
        if tokens > 0 {
            return now_ns;
        }
        if pace.rate_permille == 0 {
            return u64::MAX;
        }
        let missing = u128::from(tokens.unsigned_abs()) + 1;
        let wait = (missing * 1000).div_ceil(u128::from(pace.rate_permille));
        now_ns.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX))
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
    /// processes of the container wait. Else until when none may (`CLOCK_MONOTONIC`, ns).
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

/// What a lease word says: how much of the part is left, and how many launches were counted (modulo 2^20).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// What is left (ns); negative while a launch that did not fit waits.
    pub left_ns: i64,
    /// Launches counted, modulo 2^20.
    pub launches: u32,
}

/// Bits of the lease word that hold nanoseconds: plus or minus 2.4 hours. The rest counts launches.
const LEASE_BITS: u32 = 44;
const COUNT_MASK: u32 = (1 << (64 - LEASE_BITS)) - 1;
/// Longest prediction that a lease word takes (ns), about 18 minutes.
pub const PREDICTION_MAX_NS: u64 = 1 << 40;

impl Lease {
    #[expect(
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "two's complement fields of one word"
    )]
    #[inline]
    fn of_word(word: u64) -> Self {
        let left_ns = ((word << (64 - LEASE_BITS)) as i64) >> (64 - LEASE_BITS);
        Self {
            left_ns,
            launches: (word.wrapping_sub(left_ns as u64) >> LEASE_BITS) as u32,
        }
    }
}

impl Meter {
    /// Counts a launch of `predicted_ns` and pays it from the lease, if that suffices. One atomic addition.
    ///
    /// `false`: the lease did not suffice and is now in debt by what is missing. The caller waits for its turn and then
    /// calls [`Meter::take`] with the same prediction.
    #[inline]
    #[must_use]
    pub fn spend(&self, predicted_ns: u64) -> bool {
        let predicted = predicted_ns.min(PREDICTION_MAX_NS);
        let word = self
            .lease
            .fetch_add((1_u64 << LEASE_BITS).wrapping_sub(predicted), Ordering::Relaxed);
        Lease::of_word(word).left_ns >= to_i64(predicted)
    }

    /// Takes from `bucket` what a launch of `predicted_ns` needs and a part for the next ones. The bucket is
    /// charged first: killed in between, the process has cost the container a part, never given it one.
    pub fn take(&self, bucket: &TokenBucket, predicted_ns: u64) {
        self.take_with(bucket, predicted_ns, LEASE_PART_NS);
    }

    /// As [`Meter::take`], with at most `portion_ns` for the next launches; with nothing, each is asked about.
    pub fn take_with(&self, bucket: &TokenBucket, predicted_ns: u64, portion_ns: u64) {
        let amount = predicted_ns.min(PREDICTION_MAX_NS) + portion_ns.min(LEASE_PART_NS);
        bucket.charge(to_i64(amount));
        self.taken_ns.fetch_add(to_i64(amount), Ordering::Relaxed);
        self.lease.fetch_add(amount, Ordering::Relaxed);
    }

    /// Takes back a launch that the driver refused.
    pub fn refund(&self, predicted_ns: u64) {
        let predicted = predicted_ns.min(PREDICTION_MAX_NS);
        self.lease
            .fetch_add(predicted.wrapping_sub(1_u64 << LEASE_BITS), Ordering::Relaxed);
    }

    /// Gives what is left of the lease back to `bucket` (ns returned). A lease in debt is charged instead.
    #[expect(clippy::cast_sign_loss, reason = "two's complement field of the word")]
    pub fn give_back(&self, bucket: &TokenBucket) -> i64 {
        let mut word = self.lease.load(Ordering::Relaxed);
        loop {
            let left_ns = Lease::of_word(word).left_ns;
            if left_ns == 0 {
                return 0;
            }
            let emptied = word.wrapping_sub(left_ns as u64);
            match self
                .lease
                .compare_exchange_weak(word, emptied, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => {
                    self.taken_ns.fetch_sub(left_ns, Ordering::Relaxed);
                    bucket.charge(-left_ns);
                    return left_ns;
                }
                Err(now) => word = now,
            }
        }
    }

    /// Marks work as finished: `launches` of them, predicted together at `predicted_ns`.
    pub fn finish(&self, predicted_ns: u64, launches: u32) {
        self.settled_ns.fetch_add(to_i64(predicted_ns), Ordering::Relaxed);
        self.settled_launches
            .fetch_add(u64::from(launches), Ordering::Relaxed);
    }

    /// Launches finished so far.
    pub fn finished(&self) -> u64 {
        self.settled_launches.load(Ordering::Relaxed)
    }

    /// What is left of the lease.
    pub fn lease(&self) -> Lease {
        Lease::of_word(self.lease.load(Ordering::Relaxed))
    }

    /// Work launched and not yet finished, as predicted (ns).
    pub fn in_flight_ns(&self) -> u64 {
        let spent = self
            .taken_ns
            .load(Ordering::Relaxed)
            .saturating_sub(self.lease().left_ns);
        u64::try_from(spent.saturating_sub(self.settled_ns.load(Ordering::Relaxed))).unwrap_or(0)
    }

    /// Launches not yet finished (or waiting to be admitted).
    pub fn in_flight_launches(&self) -> u32 {
        self.launches_since(self.settled_launches.load(Ordering::Relaxed))
    }

    /// Launches so far.
    pub fn launches(&self) -> u64 {
        let settled = self.settled_launches.load(Ordering::Relaxed);
        settled.saturating_add(u64::from(self.launches_since(settled)))
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "both counts are taken modulo 2^20"
    )]
    fn launches_since(&self, settled: u64) -> u32 {
        self.lease().launches.wrapping_sub(settled as u32) & COUNT_MASK
    }

    /// A record read elsewhere, from the eight words of its layout.
    #[expect(clippy::cast_possible_truncation, reason = "two counts share a word")]
    pub fn of_words(words: &[u64; 8]) -> Self {
        let [
            lease,
            taken,
            settled,
            settled_launches,
            charged,
            held,
            counts,
            mispredicted,
        ] = *words;
        let [holds, debt_admits] = if cfg!(target_endian = "little") {
            [counts as u32, (counts >> 32) as u32]
        } else {
            [(counts >> 32) as u32, counts as u32]
        };
        Self {
            lease: AtomicU64::new(lease),
            taken_ns: AtomicI64::new(taken.cast_signed()),
            settled_ns: AtomicI64::new(settled.cast_signed()),
            settled_launches: AtomicU64::new(settled_launches),
            charged_ns: AtomicU64::new(charged),
            held_ns: AtomicU64::new(held),
            holds: AtomicU32::new(holds),
            debt_admits: AtomicU32::new(debt_admits),
            mispredicted_ns: AtomicU64::new(mispredicted),
        }
    }

    /// Makes the record its new owner's. What a dead owner left in the lease goes back to `bucket`. Nothing is written
    /// where nobody ever wrote.
    pub fn begin(&self, bucket: &TokenBucket) {
        let words = [
            &self.lease,
            &self.settled_launches,
            &self.charged_ns,
            &self.held_ns,
            &self.mispredicted_ns,
        ];
        let times = [&self.taken_ns, &self.settled_ns];
        let counts = [&self.holds, &self.debt_admits];
        if words.iter().all(|word| word.load(Ordering::Relaxed) == 0)
            && times.iter().all(|word| word.load(Ordering::Relaxed) == 0)
            && counts.iter().all(|word| word.load(Ordering::Relaxed) == 0)
        {
            return;
        }
        self.give_back(bucket);
        self.taken_ns.store(0, Ordering::Relaxed);
        for word in words {
            word.store(0, Ordering::Relaxed);
        }
        self.settled_ns.store(0, Ordering::Relaxed);
        self.holds.store(0, Ordering::Relaxed);
        self.debt_admits.store(0, Ordering::Relaxed);
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
