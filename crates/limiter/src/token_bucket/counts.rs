//! Counters of a bucket beside GPU time.

use super::TokenBucket;
use crate::primitive::Ordering;

impl TokenBucket {
    /// Counts the part of measured time that was new for its context, the part that was new for the tenant, and the charge for the latter
    /// (all ns). The arbiter corrects the charge once it knows which tenants were busy at the same time.
    pub fn count_measured(&self, [in_context_ns, fresh_ns]: [u64; 2], charged_ns: u64) {
        self.contexts_ns.fetch_add(in_context_ns, Ordering::Relaxed);
        self.measured_ns.fetch_add(fresh_ns, Ordering::Relaxed);
        self.measured_charge_ns.fetch_add(charged_ns, Ordering::Relaxed);
        self.served_ns.fetch_add(charged_ns, Ordering::Relaxed);
    }

    /// Counts a copy between host and device. A copy engine does it, so it is no GPU time.
    pub fn count_host_copy(&self, bytes: u64) {
        self.host_copies.fetch_add(1, Ordering::Relaxed);
        self.host_copied_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
