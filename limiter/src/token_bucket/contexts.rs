//! What a context takes of a device, as the container knows it: noted by who could measure it, judged where a measurement may
//! hold a neighbour's doing.

use super::TokenBucket;
use crate::primitive::{AtomicU64, Ordering};

impl TokenBucket {
    /// What the last context took that a process of this container made on the device (bytes), 0 while none is known. The
    /// first context of a process costs more than further ones.
    pub fn context_bytes(&self, is_first: bool) -> u64 {
        of(&self.context_bytes, is_first).load(Ordering::Relaxed)
    }

    /// Notes what a context took for certain (bytes): the next one is refused before the driver is asked if so much is not
    /// left.
    pub fn note_context(&self, is_first: bool, bytes: u64) {
        of(&self.context_bytes, is_first).store(bytes, Ordering::Relaxed);
        of(&self.doubted_context_bytes, is_first).store(0, Ordering::Relaxed);
    }

    /// What a context took for which the GPU as a whole has `bytes` more than before, which may hold what a neighbour took
    /// or gave back meanwhile (bytes). All contexts of a driver on a GPU take the same: another figure than the known one is
    /// believed when it comes a second time.
    pub fn judge_context(&self, is_first: bool, bytes: u64) -> u64 {
        let known_bytes = self.context_bytes(is_first);
        let doubted = of(&self.doubted_context_bytes, is_first);
        if known_bytes == 0 || is_like(bytes, doubted.load(Ordering::Relaxed)) {
            self.note_context(is_first, bytes);
            return bytes;
        }
        if !is_like(bytes, known_bytes) {
            doubted.store(bytes, Ordering::Relaxed);
        }
        known_bytes
    }

    /// Whether so much is what a context takes (bytes).
    pub fn is_like_a_context(&self, bytes: u64) -> bool {
        [true, false]
            .map(|is_first| self.context_bytes(is_first))
            .iter()
            .any(|known| *known > 0 && is_like(bytes, *known))
    }
}

/// Of two words, that for the first context of a process or that for further ones.
fn of([first, further]: &[AtomicU64; 2], is_first: bool) -> &AtomicU64 {
    if is_first { first } else { further }
}

/// Whether two figures tell of the same thing, but for the pages that a driver rounds to (bytes).
fn is_like(bytes: u64, other_bytes: u64) -> bool {
    bytes.abs_diff(other_bytes) <= 4 << 20
}
