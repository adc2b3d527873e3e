//! Memory that a context takes on a device, as the tenant has measured it.

use super::TokenBucket;
use crate::primitive::Ordering;

impl TokenBucket {
    /// Size of the last context that a process of this tenant made on the device (bytes); 0 if none is known. The first
    /// context of a process may be larger than later ones.
    pub fn context_bytes(&self, is_first: bool) -> u64 {
        let [first, further] = &self.context_bytes;
        if is_first { first } else { further }.load(Ordering::Relaxed)
    }

    /// Notes the size of a context (bytes). The next one is refused without asking the driver if less memory is left.
    pub fn note_context(&self, is_first: bool, bytes: u64) {
        let [first, further] = &self.context_bytes;
        if is_first { first } else { further }.store(bytes, Ordering::Relaxed);
    }

    /// Whether a context takes this much memory (bytes), apart from the driver's rounding to pages.
    pub fn is_like_a_context(&self, bytes: u64) -> bool {
        [true, false]
            .map(|is_first| self.context_bytes(is_first))
            .iter()
            .any(|known_bytes| *known_bytes > 0 && bytes.abs_diff(*known_bytes) <= 4 << 20)
    }
}
