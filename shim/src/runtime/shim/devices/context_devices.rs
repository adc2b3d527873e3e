//! The device of each context. The driver is asked once, as a context stays on its device.

use core::sync::atomic::{AtomicU64, Ordering};

use vcuda_driver_api::prelude::*;

/// Contexts that are known at a time: more than a process has current.
const PLACES: usize = 64;
/// Bits of a word that hold a context. Addresses of a process fit. For a handle that does not, the driver is asked
/// each time.
const CONTEXT_BITS: u32 = 48;
const CONTEXT: u64 = (1 << CONTEXT_BITS) - 1;

/// The devices of contexts.
#[derive(Debug)]
pub(super) struct ContextDevices {
    /// A context's handle with its device's ordinal plus 1 above it, or the generation in which the word was cleared.
    words: [AtomicU64; PLACES],
    /// Number of times that all words were cleared.
    generation: AtomicU64,
}

impl ContextDevices {
    /// An empty table.
    pub(super) fn new() -> Self {
        Self { words: [const { AtomicU64::new(0) }; PLACES], generation: AtomicU64::new(0) }
    }

    /// The ordinal of a context's device: as known, or else as `ask` returns it.
    #[inline]
    pub(super) fn ordinal(
        &self,
        context: CUcontext,
        ask: impl FnOnce() -> Option<CUdevice>,
    ) -> Option<CUdevice> {
        let place = self.place(context);
        let seen = place.load(Ordering::Relaxed);
        match known(seen) {
            Some((is, ordinal)) if is == context.0 as u64 => Some(ordinal),
            _ => Self::learn(place, seen, context, ask()?),
        }
    }

    /// Notes a device, unless the table was cleared since `seen` was read: the answer may then be for a context that
    /// has ended.
    #[cold]
    fn learn(place: &AtomicU64, seen: u64, context: CUcontext, ordinal: CUdevice) -> Option<CUdevice> {
        let address = context.0 as u64;
        if let Ok(number) = u16::try_from(ordinal)
            && number < u16::MAX
            && address & !CONTEXT == 0
        {
            let word = u64::from(number + 1) << CONTEXT_BITS | address;
            // Fails if another thread was first.
            let _ = place.compare_exchange(seen, word, Ordering::Relaxed, Ordering::Relaxed);
        }
        Some(ordinal)
    }

    /// Clears the table, as a context has ended or begun: its handle may be, or have been, another one's.
    pub(super) fn forget_all(&self) {
        let generation = self.generation.fetch_add(1, Ordering::Relaxed) + 1;
        for word in &self.words {
            word.store(generation & CONTEXT, Ordering::Relaxed);
        }
    }

    #[expect(clippy::indexing_slicing, reason = "6 bits, for 64 places")]
    #[inline]
    fn place(&self, context: CUcontext) -> &AtomicU64 {
        &self.words[((context.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize]
    }
}

/// The context of a word, and its device; `None` if the word has none.
#[inline]
fn known(word: u64) -> Option<(u64, CUdevice)> {
    let number = CUdevice::try_from(word >> CONTEXT_BITS).ok()?;
    (number > 0).then(|| (word & CONTEXT, number - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_asked_for_once_until_a_context_begins_or_ends() {
        let contexts = ContextDevices::new();
        let one = CUcontext(0x7000_1000);
        assert_eq!(contexts.ordinal(one, || Some(3)), Some(3));
        assert_eq!(contexts.ordinal(one, || None), Some(3), "known");
        assert_eq!(contexts.ordinal(CUcontext(0x7000_2000), || Some(0)), Some(0));
        contexts.forget_all();
        assert_eq!(contexts.ordinal(one, || None), None, "the driver does not say");
        assert_eq!(contexts.ordinal(one, || Some(1)), Some(1));
    }

    #[test]
    fn an_answer_that_came_before_the_end_of_a_context_is_not_kept() {
        let contexts = ContextDevices::new();
        let one = CUcontext(0x7000_1000);
        let late = contexts.ordinal(one, || {
            contexts.forget_all();
            Some(3)
        });
        assert_eq!(late, Some(3));
        assert_eq!(contexts.ordinal(one, || Some(1)), Some(1));
    }

    #[test]
    fn a_handle_that_is_no_address_is_asked_about_each_time() {
        let contexts = ContextDevices::new();
        let wide = CUcontext(1 << 50 | 0x1000);
        assert_eq!(contexts.ordinal(wide, || Some(2)), Some(2));
        assert_eq!(contexts.ordinal(wide, || Some(5)), Some(5));
    }
}
