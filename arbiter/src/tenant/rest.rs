//! Rest of a tenant that does nothing: no file of it is read until it is heard of, or until a look is due.

use super::Tenant;

/// A tenant of which something was heard does not rest for so long (ns).
const HEARD_NS: u64 = 1_000_000_000;
/// One that rests is looked at this often, though nothing was heard of it (ns).
const UNHEARD_NS: u64 = 10_000_000_000;

impl Tenant {
    /// Whether it has done nothing for seconds, and whatever it begins is heard.
    fn may_rest(&self, now_ns: u64) -> bool {
        let may_rest = |device| self.state(device).is_some_and(|state| state.may_rest(now_ns));
        self.watch.is_some()
            && self.is_sound
            && now_ns >= self.heard_ns.saturating_add(HEARD_NS)
            && self.writer.limits().devices().all(|(device, _)| may_rest(device))
    }

    /// Notes whether it rests: then no file of it is read. Returns whether it would, but is to be looked at once, though
    /// nothing was heard of it.
    pub(crate) fn note_rest(&mut self, now_ns: u64) -> bool {
        let may_rest = self.may_rest(now_ns);
        let is_due = may_rest && now_ns >= self.unheard_ns.saturating_add(UNHEARD_NS);
        if is_due {
            self.look_anew(now_ns);
            // Whether its quota was changed is asked; the rest of `limits` no tenant writes.
            self.read_ns = now_ns;
        }
        self.rests = may_rest && !is_due;
        is_due
    }

    /// Whether it rests, as noted last.
    pub(crate) fn rests(&self) -> bool {
        self.rests
    }

    /// Something was heard of it: it is looked at now, and for a while.
    pub(crate) fn hear(&mut self, now_ns: u64) {
        self.heard_ns = now_ns;
        self.look_anew(now_ns);
    }

    /// Nothing that was read counts any more.
    fn look_anew(&mut self, now_ns: u64) {
        self.unheard_ns = now_ns;
        (
            self.beaten_ns,
            self.read_ns,
            self.watched_ns,
            self.watched_quota_ns,
        ) = (0, 0, 0, 0);
        self.devices.iter_mut().for_each(|state| state.looked_ns = 0);
    }
}
