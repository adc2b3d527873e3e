//! What a tenant earns: a line in time.

/// What the tenant earns on a device, and how it is metered: written by the manager or the arbiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// When the line starts (`CLOCK_MONOTONIC`, ns).
    pub epoch_ns: u64,
    /// What had been earned then (ns of GPU time).
    pub credit_ns: i64,
    /// Slope: GPU time per time, in thousandths of one GPU.
    pub rate_permille: u32,
    /// By how much measured time counts, in thousandths (overlap with busy neighbours makes it less than 1000).
    pub scale_permille: u32,
    /// The most predicted work that may be in flight (ns).
    pub window_ns: u64,
    /// GPU time is metered on this device. What is not metered is never held.
    pub metered: bool,
    /// Other tenants are busy on the device too.
    pub contended: bool,
}

impl Pace {
    /// What has been earned by `now_ns` (ns of GPU time). Time before the epoch earns nothing.
    #[inline]
    #[must_use]
    pub fn credit_at(&self, now_ns: u64) -> i64 {
        let elapsed = u128::from(now_ns.saturating_sub(self.epoch_ns));
        let earned = elapsed * u128::from(self.rate_permille) / 1000;
        self.credit_ns
            .saturating_add(i64::try_from(earned).unwrap_or(i64::MAX))
    }

    /// The line that continues this one from `now_ns` at another rate: nothing earned is lost or gained.
    #[must_use]
    pub fn with_rate(&self, rate_permille: u32, now_ns: u64) -> Self {
        let epoch_ns = now_ns.max(self.epoch_ns);
        Self {
            epoch_ns,
            credit_ns: self.credit_at(epoch_ns),
            rate_permille,
            ..*self
        }
    }
}
