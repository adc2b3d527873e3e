//! What a context takes of a device, as the tenant knows it.

use super::TokenBucket;
use crate::primitive::Ordering;

impl TokenBucket {
    /// Size of the last context that a process of this tenant made on the device (bytes), 0 while none is known. The first
    /// context of a process may cost more than further ones.
    pub fn context_bytes(&self, is_first: bool) -> u64 {
        let [first, further] = &self.context_bytes;
        if is_first { first } else { further }.load(Ordering::Relaxed)
    }

    /// Notes what a context took (bytes): the next one is refused before the driver is asked if so much is not left.
    pub fn note_context(&self, is_first: bool, bytes: u64) {
        let [first, further] = &self.context_bytes;
        if is_first { first } else { further }.store(bytes, Ordering::Relaxed);
    }

    /// Whether so much is what a context takes (bytes), but for the pages that a driver rounds to.
    pub fn is_like_a_context(&self, bytes: u64) -> bool {
        [true, false]
            .map(|is_first| self.context_bytes(is_first))
            .iter()
            .any(|known_bytes| *known_bytes > 0 && bytes.abs_diff(*known_bytes) <= 4 << 20)
    }
}
