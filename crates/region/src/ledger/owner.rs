//! Operations of a record's owner on it that ask for no more memory.

use super::{Amounts, COUNTABLE_BYTES, Record};
use crate::primitive::{AtomicU64, Ordering};

impl Record {
    /// The record whose head and copies have these words, as read elsewhere.
    #[cfg(not(loom))]
    pub(crate) fn of_words(head: u64, [even_used, even_asked, odd_used, odd_asked]: [u64; 4]) -> Self {
        let amounts =
            |used, asked| Amounts { used_bytes: AtomicU64::new(used), asked_bytes: AtomicU64::new(asked) };
        let copies = [amounts(even_used, even_asked), amounts(odd_used, odd_asked)];
        Self { head: AtomicU64::new(head), copies, ..Self::default() }
    }

    /// Gives `bytes` back. The process's threads exclude each other around this call. More than it has counts as all.
    #[inline]
    pub(crate) fn release(&self, bytes: u64) {
        self.settle(self.own().counted_bytes().saturating_sub(bytes.min(COUNTABLE_BYTES)));
    }

    /// Memory of its process (bytes), as that process reads it.
    #[inline]
    pub(crate) fn used_bytes(&self) -> u64 {
        self.read().counted_bytes()
    }

    /// Replaces the counted overhead by `bytes`, even beyond the limit. The process's threads exclude each other
    /// around this call.
    pub(crate) fn set_overhead(&self, bytes: u64) {
        let bytes = bytes.min(COUNTABLE_BYTES);
        let used = self.own().counted_bytes().saturating_sub(self.overhead_bytes.load(Ordering::Relaxed));
        let wanted = used.saturating_add(bytes);
        self.settle(wanted);
        self.overhead_bytes.store(bytes, Ordering::Relaxed);
        if wanted > self.peak_bytes.load(Ordering::Relaxed) {
            self.peak_bytes.store(wanted, Ordering::Relaxed);
        }
    }

    /// Whether no process ever wrote the record: the head only grows.
    fn is_untouched(&self) -> bool {
        let others = [&self.peak_bytes, &self.denied, &self.overhead_bytes];
        self.head.load(Ordering::Relaxed) == 0 && others.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// Gives the record to its new owner, with nothing counted. One that was never used is left alone: else a process
    /// that starts would write to a page for each GPU that the tenant does not have.
    pub(crate) fn begin(&self) {
        if self.is_untouched() {
            return;
        }
        self.settle(0);
        self.peak_bytes.store(0, Ordering::Relaxed);
        self.denied.store(0, Ordering::Relaxed);
        self.overhead_bytes.store(0, Ordering::Relaxed);
    }
}
