//! What a bucket notes beside GPU time.

use super::TokenBucket;
use crate::primitive::Ordering;

/// For how long a tenant that was seen to launch a collective kernel is taken to launch more (ns).
const COLLECTIVES_NS: u64 = 10_000_000_000;

impl TokenBucket {
    /// Counts measured time (ns), what of it was new for its context, and what for the tenant (ns), and what was charged for that (ns):
    /// the arbiter corrects the latter once it knows who was busy too.
    pub fn count_measured(&self, [elapsed_ns, in_context_ns, fresh_ns]: [u64; 3], charged_ns: u64) {
        self.measured_elapsed_ns.fetch_add(elapsed_ns, Ordering::Relaxed);
        self.contexts_ns.fetch_add(in_context_ns, Ordering::Relaxed);
        self.measured_ns.fetch_add(fresh_ns, Ordering::Relaxed);
        self.measured_charge_ns.fetch_add(charged_ns, Ordering::Relaxed);
        self.served_ns.fetch_add(charged_ns, Ordering::Relaxed);
    }

    /// Counts a copy between the host and the device: a copy engine's work, which is no GPU time.
    pub fn count_host_copy(&self, bytes: u64) {
        self.host_copies.fetch_add(1, Ordering::Relaxed);
        self.host_copied_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A collective kernel is launched at `now_ns` (`CLOCK_MONOTONIC`).
    pub fn count_collective(&self, now_ns: u64) {
        self.collective_ns.store(now_ns.max(1), Ordering::Relaxed);
        self.collectives.fetch_add(1, Ordering::SeqCst);
    }

    /// Collective kernels launched so far.
    pub fn collectives(&self) -> u64 {
        self.collectives.load(Ordering::SeqCst)
    }

    /// Whether the tenant runs collective kernels on the device, as far as was seen of late.
    pub fn has_collectives(&self, now_ns: u64) -> bool {
        let at_ns = self.collective_ns.load(Ordering::Relaxed);
        at_ns != 0 && now_ns.saturating_sub(at_ns) < COLLECTIVES_NS
    }
}
