//! Counters of a process on a device: GPU time taken from the tenant's bucket, launches, and finished work.

use super::{TokenBucket, to_i64};
use crate::primitive::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// GPU time that a process takes from its tenant's bucket beyond the need of the launch (ns).
pub const LEASE_PART_NS: u64 = 200_000;

/// GPU time of a process on a device.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Meter {
    lease: AtomicU64,
    taken_ns: AtomicI64,
    settled_ns: AtomicI64,
    settled_launches: AtomicU64,
    /// GPU time charged by measurement (ns).
    pub charged_ns: AtomicU64,
    /// Time that launches waited (ns).
    pub held_ns: AtomicU64,
    /// Number of launches that waited.
    pub holds: AtomicU32,
    /// Number of launches that proceeded on debt after the longest wait.
    pub debt_admits: AtomicU32,
    /// Sum of the differences between predicted and measured time (ns).
    pub mispredicted_ns: AtomicU64,
}

/// Content of a lease word: the rest of the part, and the number of launches modulo 2^20.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Rest of the part (ns). It is negative while a launch that did not fit waits.
    pub left_ns: i64,
    /// Number of launches modulo 2^20.
    pub launches: u32,
}

/// Number of bits of the lease word for nanoseconds: plus or minus 2.4 hours. The other bits count launches.
const LEASE_BITS: u32 = 44;
const COUNT_MASK: u32 = (1 << (64 - LEASE_BITS)) - 1;
/// Largest prediction that fits into a lease word (ns), about 18 minutes.
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
        Self { left_ns, launches: (word.wrapping_sub(left_ns as u64) >> LEASE_BITS) as u32 }
    }
}

impl Meter {
    /// Counts a launch of `predicted_ns` and charges it to the lease, by a single atomic addition.
    ///
    /// Returns false if the lease did not suffice; it is then in debt by the missing part. The caller waits for admission and calls
    /// [`Meter::take`] with the same prediction.
    #[inline]
    pub fn spend(&self, predicted_ns: u64) -> bool {
        let predicted = predicted_ns.min(PREDICTION_MAX_NS);
        let word = self.lease.fetch_add((1_u64 << LEASE_BITS).wrapping_sub(predicted), Ordering::Relaxed);
        Lease::of_word(word).left_ns >= to_i64(predicted)
    }

    /// Takes from `bucket` the cost of a launch of `predicted_ns` and a part for the next ones. The bucket is charged first: if the
    /// process is killed in between, the tenant loses a part and never gains one.
    pub fn take(&self, bucket: &TokenBucket, predicted_ns: u64) {
        self.take_with(bucket, predicted_ns, LEASE_PART_NS);
    }

    /// As [`Meter::take`], with at most `portion_ns` for the next launches. If it is 0, each launch asks for admission.
    pub fn take_with(&self, bucket: &TokenBucket, predicted_ns: u64, portion_ns: u64) {
        let amount = predicted_ns.min(PREDICTION_MAX_NS) + portion_ns.min(LEASE_PART_NS);
        bucket.charge(to_i64(amount));
        self.taken_ns.fetch_add(to_i64(amount), Ordering::Relaxed);
        self.lease.fetch_add(amount, Ordering::Relaxed);
    }

    /// Undoes [`Meter::spend`] for a launch that the driver refused.
    pub fn refund(&self, predicted_ns: u64) {
        let predicted = predicted_ns.min(PREDICTION_MAX_NS);
        self.lease.fetch_add(predicted.wrapping_sub(1_u64 << LEASE_BITS), Ordering::Relaxed);
    }

    /// Returns the rest of the lease to `bucket`, and its amount (ns). A lease in debt is charged instead.
    #[expect(clippy::cast_sign_loss, reason = "two's complement field of the word")]
    pub fn give_back(&self, bucket: &TokenBucket) -> i64 {
        let mut word = self.lease.load(Ordering::Relaxed);
        loop {
            let left_ns = Lease::of_word(word).left_ns;
            if left_ns == 0 {
                return 0;
            }
            let emptied = word.wrapping_sub(left_ns as u64);
            match self.lease.compare_exchange_weak(word, emptied, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    self.taken_ns.fetch_sub(left_ns, Ordering::Relaxed);
                    bucket.charge(-left_ns);
                    return left_ns;
                }
                Err(now) => word = now,
            }
        }
    }

    /// Counts `launches` as finished. `predicted_ns` is the sum of their predictions.
    pub fn finish(&self, predicted_ns: u64, launches: u32) {
        self.settled_ns.fetch_add(to_i64(predicted_ns), Ordering::Relaxed);
        self.settled_launches.fetch_add(u64::from(launches), Ordering::Relaxed);
    }

    /// Number of finished launches.
    pub fn finished(&self) -> u64 {
        self.settled_launches.load(Ordering::Relaxed)
    }

    /// Present content of the lease word.
    pub fn lease(&self) -> Lease {
        Lease::of_word(self.lease.load(Ordering::Relaxed))
    }

    /// Predicted work in flight (ns).
    pub fn in_flight_ns(&self) -> u64 {
        let spent = self.taken_ns.load(Ordering::Relaxed).saturating_sub(self.lease().left_ns);
        u64::try_from(spent.saturating_sub(self.settled_ns.load(Ordering::Relaxed))).unwrap_or(0)
    }

    /// Number of launches in flight, including those that wait for admission.
    pub fn in_flight_launches(&self) -> u32 {
        self.launches_since(self.settled_launches.load(Ordering::Relaxed))
    }

    /// Number of launches so far.
    pub fn launches(&self) -> u64 {
        let settled = self.settled_launches.load(Ordering::Relaxed);
        settled.saturating_add(u64::from(self.launches_since(settled)))
    }

    #[expect(clippy::cast_possible_truncation, reason = "both counts are taken modulo 2^20")]
    fn launches_since(&self, settled: u64) -> u32 {
        self.lease().launches.wrapping_sub(settled as u32) & COUNT_MASK
    }

    /// Creates a copy from the eight words of the record's layout.
    #[expect(clippy::cast_possible_truncation, reason = "two counts share a word")]
    pub fn of_words(words: &[u64; 8]) -> Self {
        let [lease, taken, settled, settled_launches, charged, held, counts, mispredicted] = *words;
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

    /// Clears the record for a new owner. The rest of a dead owner's lease goes back to `bucket`. A record that is still zero is not
    /// written, so that its page stays untouched.
    pub fn begin(&self, bucket: &TokenBucket) {
        let words =
            [&self.lease, &self.settled_launches, &self.charged_ns, &self.held_ns, &self.mispredicted_ns];
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
