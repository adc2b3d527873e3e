//! Dormant tenants: idle for seconds, and watched, so no file of theirs is read, and no beat written, until one changes.

use super::Tenant;

/// Time for which a tenant stays awake after a change of its files was reported (ns).
const AWAKE_AFTER_CHANGE_NS: u64 = 1_000_000_000;

impl Tenant {
    /// Whether it has been idle for seconds, and a change of its files is reported.
    fn may_be_dormant(&self, now_ns: u64) -> bool {
        let has_been_idle =
            |device| self.state(device).is_some_and(|state| state.has_been_idle_for_long(now_ns));
        self.watch.is_some()
            && self.is_sound
            && now_ns >= self.changed_ns.saturating_add(AWAKE_AFTER_CHANGE_NS)
            && self.writer.limits().devices().all(|(device, _)| has_been_idle(device))
    }

    /// Decides whether the tenant is dormant from now on. Returns whether it could be, but has to be read first as `is_due`
    /// says.
    pub(crate) fn update_dormancy(&mut self, is_due: bool, now_ns: u64) -> bool {
        // A dormant tenant's state changes by a reading alone.
        if self.is_dormant && self.is_sound && !is_due {
            return false;
        }
        let may_be_dormant = self.may_be_dormant(now_ns);
        let has_to_be_read = may_be_dormant && is_due;
        if has_to_be_read {
            self.discard_readings();
            // Whether its quota was changed is asked; the rest of `limits` no tenant writes.
            self.read_ns = now_ns;
        }
        self.is_dormant = may_be_dormant && !has_to_be_read;
        has_to_be_read
    }

    /// Whether the tenant is dormant, as decided last.
    pub(crate) fn is_dormant(&self) -> bool {
        self.is_dormant
    }

    /// Notes that a change of the tenant's files was reported: it is read now, and stays awake for a while.
    pub(crate) fn note_change(&mut self, now_ns: u64) {
        self.changed_ns = now_ns;
        self.is_dormant = false;
        self.discard_readings();
    }

    /// Makes every reading of the tenant's files outdated, so that all are read again.
    fn discard_readings(&mut self) {
        (self.beaten_ns, self.read_ns, self.watched_ns, self.watched_quota_ns) = (0, 0, 0, 0);
        self.devices.iter_mut().for_each(|state| state.looked_ns = 0);
    }
}
