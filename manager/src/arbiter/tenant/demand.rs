//! Demand of a tenant for GPU time, from its bucket and its busy map.

use vcuda_limiter::busy;
use vcuda_limiter::controller::{Activity, RECENT_NS};
use vcuda_limiter::token_bucket::Pace;
use vcuda_region::usage_reader::BucketUse;

/// Words of the busy map that tell of the recent time.
const RECENT_WORDS: usize = (RECENT_NS / (busy::BIN_NS * busy::BINS_PER_WORD)) as usize;

/// Demand of a tenant with this bucket and busy map (permille of the GPU).
pub(super) fn demand_permille(bucket: &BucketUse, pace: &Pace, map: &[u64], now_ns: u64) -> u32 {
    let recent = map.len().saturating_sub(RECENT_WORDS);
    let activity = Activity {
        busy_permille: busy_permille(map),
        recent_permille: busy_permille(map.get(recent..).unwrap_or_default()),
        is_waiting: bucket.is_waiting,
        // What is not metered owes nothing.
        tokens_ns: if pace.metered { pace.credit_at(now_ns).saturating_sub(bucket.level_ns) } else { 0 },
    };
    activity.demand_permille()
}

/// The part of these words' time that is marked as busy (thousandths).
pub(super) fn busy_permille(map: &[u64]) -> u32 {
    let busy: u64 = map.iter().map(|bins| u64::from(bins.count_ones())).sum();
    let all = map.len() as u64 * busy::BINS_PER_WORD;
    u32::try_from(busy * 1000 / all.max(1)).unwrap_or(1000)
}
