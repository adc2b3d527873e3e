//! The refill of a bucket: a linear function of time.

/// Refill of a tenant's bucket on a device, and rules of its metering. The manager or the arbiter writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Start of the refill (`CLOCK_MONOTONIC`, ns).
    pub epoch_ns: u64,
    /// Total refill at the start (ns of GPU time).
    pub credit_ns: i64,
    /// Rate of the refill (thousandths of a GPU).
    pub rate_permille: u32,
    /// Factor of measured time (thousandths). It is below 1000 while other tenants are busy at the same time.
    pub scale_permille: u32,
    /// Most predicted work in flight (ns).
    pub window_ns: u64,
    /// Whether GPU time is metered on this device. Without it launches never wait.
    pub metered: bool,
    /// Whether other tenants are busy on the device.
    pub contended: bool,
}

impl Pace {
    /// Total refill at `now_ns` (ns of GPU time). Time before the start adds nothing.
    #[inline]
    pub fn credit_at(&self, now_ns: u64) -> i64 {
        let elapsed = u128::from(now_ns.saturating_sub(self.epoch_ns));
        let earned = elapsed * u128::from(self.rate_permille) / 1000;
        self.credit_ns.saturating_add(i64::try_from(earned).unwrap_or(i64::MAX))
    }

    /// The refill that continues this one at another rate from `now_ns` on. The total at `now_ns` is the same.
    pub fn with_rate(&self, rate_permille: u32, now_ns: u64) -> Self {
        let epoch_ns = now_ns.max(self.epoch_ns);
        Self { epoch_ns, credit_ns: self.credit_at(epoch_ns), rate_permille, ..*self }
    }
}
