//! Waits for the host that threads put into a stream. One of another thread may come between the event at which a segment begins and the
//! launch behind it: the time up to the next event is then an upper bound of the work, and no sign that a kernel waits.

use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::driver::reentrancy;

#[derive(Debug, Default)]
pub(in crate::compute) struct HostWaits {
    /// Calls that put a wait into the stream.
    begun: AtomicU32,
    ended: AtomicU32,
    /// Value of `begun` as the stream took the entry.
    before: AtomicU32,
    /// [`HostWaits::mark`] at the running segment's begin.
    at_begin: AtomicU32,
}

impl HostWaits {
    /// Makes a call that puts a wait into the stream.
    pub(in crate::compute) fn during<R>(&self, call: impl FnOnce() -> R) -> R {
        self.begun.fetch_add(1, Ordering::SeqCst);
        reentrancy::note(|state| state.host_waits = &raw const self.ended);
        let result = call();
        reentrancy::note(|state| state.host_waits = ptr::null());
        self.ended.fetch_add(1, Ordering::SeqCst);
        result
    }

    /// To be taken before the event at which a segment begins is recorded. A number of the past if a wait is just put into the stream.
    pub(in crate::compute) fn mark(&self) -> u32 {
        let ended = self.ended.load(Ordering::SeqCst);
        let begun = self.begun.load(Ordering::SeqCst);
        if begun == ended { begun } else { begun.wrapping_sub(1) }
    }

    /// A segment begins, at an event before which `mark` was taken.
    pub(in crate::compute) fn segment_from(&self, mark: u32) {
        self.at_begin.store(mark, Ordering::Relaxed);
    }

    /// Whether a wait may lie within the running segment. Asked once the event at its end was recorded.
    pub(in crate::compute) fn may_be_within(&self) -> bool {
        self.begun.load(Ordering::SeqCst) != self.at_begin.load(Ordering::Relaxed)
    }

    /// Whether any was put into the stream.
    pub(in crate::compute) fn were_any(&self) -> bool {
        self.begun.load(Ordering::SeqCst) != self.before.load(Ordering::Relaxed)
    }

    /// Another stream takes the entry.
    pub(in crate::compute) fn forget(&self) {
        self.before.store(self.begun.load(Ordering::SeqCst), Ordering::Relaxed);
        self.segment_from(self.mark());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_begins_or_ends_within_a_segment_is_seen() {
        let waits = HostWaits::default();
        let begin = || waits.segment_from(waits.mark());
        begin();
        assert!(!waits.may_be_within());
        waits.during(|| {});
        assert!(waits.may_be_within());
        begin();
        assert!(!waits.may_be_within(), "it was before");
        waits.during(|| {
            assert!(waits.may_be_within());
            begin();
            assert!(waits.may_be_within(), "it is not known on which side of the event it is");
        });
        assert!(waits.may_be_within());
        let before = waits.mark();
        waits.during(|| {});
        waits.segment_from(before);
        assert!(waits.may_be_within());
    }
}
