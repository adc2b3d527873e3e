//! Which device a context is on: asked of the driver once, as a context stays where it was made.

use core::sync::atomic::{AtomicU64, Ordering};

use vcuda_driver_api::prelude::*;

/// Contexts that are told apart at a time: more than a process has current.
const PLACES: usize = 64;
/// Bits of a word that hold a context. Addresses of a process fit; a handle that does not is asked about each time.
const CONTEXT_BITS: u32 = 48;
const CONTEXT: u64 = (1 << CONTEXT_BITS) - 1;

/// The devices of contexts.
#[derive(Debug)]
pub(super) struct OfContexts {
    /// A context, and above it its device's ordinal and 1; or the generation in which nothing was known.
    words: [AtomicU64; PLACES],
    /// How often all was forgotten.
    generation: AtomicU64,
}

impl OfContexts {
    /// None known yet.
    pub(super) fn new() -> Self {
        Self {
            words: [const { AtomicU64::new(0) }; PLACES],
            generation: AtomicU64::new(0),
        }
    }

    /// The ordinal of a context's device: what is known, or what `ask` says.
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

    /// Notes a device, unless all was forgotten since `seen` was: then the answer may be of a context that has ended.
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

    /// A context has ended or begun: its handle may be, or have been, another one's.
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

/// The context of a word, and its device; nothing if none is known there.
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
        let contexts = OfContexts::new();
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
        let contexts = OfContexts::new();
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
        let contexts = OfContexts::new();
        let wide = CUcontext(1 << 50 | 0x1000);
        assert_eq!(contexts.ordinal(wide, || Some(2)), Some(2));
        assert_eq!(contexts.ordinal(wide, || Some(5)), Some(5));
    }
}
