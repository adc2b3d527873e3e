//! How far a tenant that wants room is believed: after a suspension for it that it did not use, it rests, each time for longer.

use std::collections::HashMap;

/// Rest after the first suspension that was not used (ns).
const FIRST_REST_NS: u64 = 1_000_000_000;
/// Number of times that the rest doubles: the longest is about a minute.
const DOUBLINGS: u32 = 6;
/// Time without such a suspension after which the next rest is the first again (ns).
const FORGIVEN_NS: u64 = 300_000_000_000;

/// A tenant's suspensions in a row that were not used.
#[derive(Debug, Default)]
struct Unused {
    count: u32,
    rests_until_ns: u64,
}

/// The tenants for which others were suspended in vain.
#[derive(Debug, Default)]
pub(super) struct Trust(HashMap<String, Unused>);

impl Trust {
    /// Whether the tenant rests.
    pub(super) fn rests(&self, id: &str, now_ns: u64) -> bool {
        self.0.get(id).is_some_and(|unused| now_ns < unused.rests_until_ns)
    }

    /// Whether others were suspended for the tenant in vain, and it has used no room since.
    pub(super) fn doubts(&self, id: &str) -> bool {
        self.0.get(id).is_some_and(|unused| unused.count > 0)
    }

    /// Notes that the tenant has used the room that was made for it.
    pub(super) fn used(&mut self, id: &str) {
        self.0.remove(id);
    }

    /// Notes that the tenant has not used the room. It rests from now on.
    pub(super) fn not_used(&mut self, id: &str, now_ns: u64) {
        let unused = self.entry(id);
        let rest_ns = FIRST_REST_NS << unused.count.min(DOUBLINGS);
        unused.count = unused.count.saturating_add(1);
        unused.rests_until_ns = now_ns.saturating_add(rest_ns);
    }

    /// Has the tenant rest once for the shortest time, as nothing can be done for it now.
    pub(super) fn pause(&mut self, id: &str, now_ns: u64) {
        self.entry(id).rests_until_ns = now_ns.saturating_add(FIRST_REST_NS);
    }

    fn entry(&mut self, id: &str) -> &mut Unused {
        self.0.entry(id.to_owned()).or_default()
    }

    /// Forgets what was long ago.
    pub(super) fn forget_old(&mut self, now_ns: u64) {
        self.0.retain(|_, unused| now_ns < unused.rests_until_ns.saturating_add(FORGIVEN_NS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn the_rest_doubles_up_to_a_minute_and_ends_with_a_use() {
        let mut trust = Trust::default();
        let mut now_ns = 5 * S;
        for rest_s in [1, 2, 4, 8, 16, 32, 64, 64] {
            assert!(!trust.rests("a", now_ns));
            trust.not_used("a", now_ns);
            assert!(trust.rests("a", now_ns + rest_s * S - 1), "{rest_s}");
            assert!(!trust.rests("b", now_ns));
            now_ns += rest_s * S;
        }
        trust.used("a");
        trust.not_used("a", now_ns);
        assert!(!trust.rests("a", now_ns + S));
        // Minutes later it begins anew, too.
        trust.not_used("a", now_ns + S);
        trust.forget_old(now_ns + 400 * S);
        trust.not_used("a", now_ns + 400 * S);
        assert!(!trust.rests("a", now_ns + 401 * S));
    }
}
