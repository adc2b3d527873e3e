//! The table of streams in use, and the position of each one's entry.

use core::sync::atomic::{AtomicU64, Ordering};
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

use vcuda_driver_api::prelude::*;
use vcuda_region::clock::now_ns;

use super::device_limiter::DeviceLimiter;
use super::stream_state::{FREE, StreamState, TAKEN};
use crate::driver::real;
use crate::runtime::shim;
use crate::runtime::shim::devices::{device_of_context, shared_context};
use crate::runtime::stream::{PER_THREAD, Stream};

/// Most streams that are measured at a time. The memory of an entry is only touched when it is used.
const STREAMS_MAX: usize = 4096;
/// Positions at which a stream's entry can be.
const PROBES: usize = 16;
/// A stream without work in flight for this long may lose its entry to another one (ns).
const UNUSED_NS: u64 = 1_000_000_000;

/// Times that a thread claims an entry while others claim one for the same stream, some milliseconds. Then its launch is waited for
/// alone.
const CLAIMS_MAX: usize = 10_000;

/// Entries that one word of [`StreamTable::taken`] covers.
const PER_WORD: usize = 64;

/// The streams in use.
#[derive(Debug)]
pub(super) struct StreamTable {
    /// [`STREAMS_MAX`] entries; or, if the process had no address space for them, one that is taken for ever: then each launch is
    /// waited for alone, as behind a full table.
    streams: &'static [StreamState],
    /// Number of entries less one, a power of two less one.
    mask: usize,
    /// A bit for each entry that may be in use. Without it, each pass would touch a page per entry.
    taken: [AtomicU64; STREAMS_MAX / PER_WORD],
    /// A bit for each word of `taken` that was ever written.
    words: AtomicU64,
}

/// Iterator over the entries in use.
#[derive(Debug)]
pub(super) struct InUse<'a> {
    streams: &'a StreamTable,
    /// The words that are left, as in [`StreamTable::words`].
    words: u64,
    /// The word that `bits` are left of.
    word: usize,
    bits: u64,
}

impl<'a> Iterator for InUse<'a> {
    type Item = &'a StreamState;

    #[inline(never)]
    fn next(&mut self) -> Option<&'a StreamState> {
        loop {
            while self.bits == 0 {
                self.word = next_bit(&mut self.words)?;
                self.bits = self.streams.taken.get(self.word)?.load(Ordering::Relaxed);
            }
            let position = self.word * PER_WORD + next_bit(&mut self.bits)?;
            let stream_state = self.streams.streams.get(position)?;
            if stream_state.in_use() {
                return Some(stream_state);
            }
        }
    }
}

/// Takes the lowest bit out of `bits`. Returns its position, `None` if there is none.
#[inline(always)]
fn next_bit(bits: &mut u64) -> Option<usize> {
    let lowest = bits.trailing_zeros() as usize;
    *bits &= bits.checked_sub(1)?;
    Some(lowest)
}

impl StreamTable {
    pub(super) fn new() -> Self {
        let streams = zeroed_streams().unwrap_or_else(|| {
            let entry = zeroed_entry();
            entry.key.store(TAKEN, Ordering::Relaxed);
            core::slice::from_ref(entry)
        });
        Self {
            streams,
            mask: streams.len() - 1,
            taken: [const { AtomicU64::new(0) }; STREAMS_MAX / PER_WORD],
            words: AtomicU64::new(0),
        }
    }

    /// All entries in use.
    pub(super) fn all(&self) -> InUse<'_> {
        InUse { streams: self, words: self.words.load(Ordering::Relaxed), word: 0, bits: 0 }
    }

    /// The entry of a stream, made when first needed. `None` without a context, for a device that the tenant was
    /// not given, or if all its positions are taken.
    #[inline]
    pub(super) fn find(
        &'static self,
        limiters: &'static [DeviceLimiter],
        stream: Stream,
    ) -> Option<&'static StreamState> {
        let key = stream.key();
        match self.places(key).find(|stream_state| stream_state.key.load(Ordering::Acquire) == key) {
            Some(stream_state) => Some(stream_state),
            None => self.claim(limiters, key, stream),
        }
    }

    /// The entry of a stream if it is at the first possible position, as nearly all are.
    #[inline(always)]
    pub(super) fn at_first_place(&self, stream: Stream) -> Option<&StreamState> {
        let key = stream.key();
        self.places(key).next().filter(|stream_state| stream_state.key.load(Ordering::Acquire) == key)
    }

    /// The entry of a stream, if it has one.
    pub(super) fn known(&self, stream: Stream) -> Option<&StreamState> {
        let key = stream.key();
        self.places(key).find(|stream_state| stream_state.key.load(Ordering::Acquire) == key)
    }

    /// Positions at which the entry of a key can be, with what is there.
    #[inline]
    fn positions(&self, key: u64) -> impl Iterator<Item = (usize, &StreamState)> {
        let hash = usize::try_from(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).unwrap_or(0);
        (0..PROBES).map(move |probe| {
            let position = (hash + probe) & self.mask;
            // SAFETY: `mask` is one less than the number of entries, so no position has more.
            (position, unsafe { self.streams.get_unchecked(position) })
        })
    }

    #[inline]
    fn places(&self, key: u64) -> impl Iterator<Item = &StreamState> {
        self.positions(key).map(|(_, stream_state)| stream_state)
    }

    #[cold]
    fn claim(
        &'static self,
        limiters: &'static [DeviceLimiter],
        key: u64,
        stream: Stream,
    ) -> Option<&'static StreamState> {
        let context = context_of(stream)?;
        let device = device_of_context(shim::built()?, context)?;
        device.notice_contexts();
        let (_, limiter) = device.region()?;
        let limiter = limiters.get(limiter.get())?;
        let asked_in = shared_context(device.shim(), context, device);
        let mut mine = None;
        for _ in 0..CLAIMS_MAX {
            let (position, stream_state) = self.take_for(key)?;
            if !self.is_claimed_elsewhere(key, position) {
                mine = Some(stream_state);
                break;
            }
            stream_state.give_back();
            std::thread::yield_now();
            if let Some(of_another) = self.known(stream) {
                return Some(of_another);
            }
        }
        let stream_state = mine?;
        stream_state.reset();
        let is_of_another = stream_state.context.swap(context.0, Ordering::Relaxed) != context.0;
        // Events belong to their context, so those of another context cannot be used.
        let events = is_of_another.then(|| stream_state.take_events());
        stream_state.asked_in.store(asked_in.0, Ordering::Relaxed);
        stream_state.limiter.store(core::ptr::from_ref(limiter).cast_mut(), Ordering::Relaxed);
        stream_state.key.store(key, Ordering::SeqCst);
        // Another thread may have taken the entry at once.
        let _ = stream_state.wanted.compare_exchange(key, 0, Ordering::SeqCst, Ordering::Relaxed);
        // Afterwards, as other threads wait for the entry.
        for event in events.into_iter().flatten() {
            // SAFETY: an event of the shim, or 0; if its context is gone, the driver returns an error.
            let _ = unsafe { real::cuEventDestroy_v2(event) };
        }
        Some(stream_state)
    }
}

impl StreamTable {
    /// Takes an entry for `key`, and says so. Not yet the stream's: see [`StreamTable::is_claimed_elsewhere`].
    fn take_for(&'static self, key: u64) -> Option<(usize, &'static StreamState)> {
        let unused_ns = now_ns().saturating_sub(UNUSED_NS);
        let (position, stream_state) = self
            .take_place(key, |stream_state| !stream_state.is_held())
            .or_else(|| self.take_place(key, |stream_state| stream_state.is_unused_since(unused_ns)))?;
        stream_state.wanted.store(key, Ordering::SeqCst);
        // Set before the key: the worker is woken after a launch on the stream, and then sees the bits.
        self.taken.get(position / PER_WORD)?.fetch_or(1 << (position % PER_WORD), Ordering::Relaxed);
        self.words.fetch_or(1 << (position / PER_WORD), Ordering::Relaxed);
        Some((position, stream_state))
    }

    /// Whether another position is, or is about to be, the entry for `key`. Of threads that first use a stream at the same time at most
    /// one sees no other: a stream with two entries would seem to be two streams, one of which waits for the other.
    fn is_claimed_elsewhere(&self, key: u64, own: usize) -> bool {
        let claims = |stream_state: &StreamState| match stream_state.key.load(Ordering::SeqCst) {
            TAKEN => stream_state.wanted.load(Ordering::SeqCst) == key,
            held => held == key,
        };
        self.positions(key).any(|(position, stream_state)| position != own && claims(stream_state))
    }

    /// Frees an entry for another stream, after `end` has settled what is left there; does nothing if it is no longer the one of the
    /// stream with the key `held`.
    pub(super) fn free(&self, stream_state: &StreamState, held: u64, end: impl FnOnce()) {
        let take = || stream_state.key.compare_exchange(held, TAKEN, Ordering::SeqCst, Ordering::Relaxed);
        if matches!(held, FREE | TAKEN) || take().is_err() {
            return;
        }
        end();
        let offset = core::ptr::from_ref(stream_state).addr().wrapping_sub(self.streams.as_ptr().addr());
        let position = offset / size_of::<StreamState>();
        if let Some(word) = self.taken.get(position / PER_WORD) {
            // Before the entry is free: its next owner sets the bit.
            word.fetch_and(!(1 << (position % PER_WORD)), Ordering::Relaxed);
        }
        stream_state.free();
    }

    /// Takes the first entry for `key` that `may` accepts.
    fn take_place(
        &'static self,
        key: u64,
        may: impl Fn(&StreamState) -> bool,
    ) -> Option<(usize, &'static StreamState)> {
        self.positions(key).find(|(_, stream_state)| {
            let held = stream_state.key.load(Ordering::Acquire);
            held != TAKEN
                && may(stream_state)
                && stream_state
                    .key
                    .compare_exchange(held, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        })
    }
}

/// Zeroed entries without streams. `mmap` is used because the kernel then provides their memory, some 18 MB, only as
/// it is written. An allocator that is asked for zeroed memory of such an alignment writes all of it.
fn zeroed_streams() -> Option<&'static [StreamState]> {
    // SAFETY: new memory, wherever the kernel has room.
    let zeroed = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            size_of::<[StreamState; STREAMS_MAX]>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if zeroed == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: mapped above for good, of this size, and pages are aligned to more than an entry is; all bytes zero are a stream
    // entry without a stream: it consists of atomic integers, booleans and pointers, of an unlocked mutex, and of numbers in that.
    Some(unsafe { &*zeroed.cast::<[StreamState; STREAMS_MAX]>() })
}

/// A single entry, from the shim's heap, which has a reserve.
fn zeroed_entry() -> &'static StreamState {
    let layout = Layout::new::<StreamState>();
    // SAFETY: an entry has a size.
    let zeroed = unsafe { alloc_zeroed(layout) };
    if zeroed.is_null() {
        handle_alloc_error(layout);
    }
    // SAFETY: as above; never freed.
    unsafe { &*zeroed.cast() }
}

/// The context of a stream (CUDA Driver API, `cuStreamGetCtx`).
pub(super) fn context_of(stream: Stream) -> Option<CUcontext> {
    let handle = stream.explicit();
    let mut context = CUcontext::NULL;
    if handle.0 > PER_THREAD {
        // SAFETY: the application's handle, as it gave it to the driver; the driver writes a context or nothing.
        unsafe { real::cuStreamGetCtx(handle, &raw mut context) }.ok()?;
    } else {
        context = crate::runtime::shim::devices::current_context();
    }
    (!context.is_null()).then_some(context)
}

/// Position of the limiter of the stream's device, for a launch whose stream has no entry.
#[cold]
pub(super) fn limiter_of_stream(stream: Stream) -> Option<usize> {
    let (_, limiter) = device_of_context(shim::built()?, context_of(stream)?)?.region()?;
    Some(limiter.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroed_memory_is_an_entry_that_can_be_used() {
        let Some([first, .., last]) = zeroed_streams() else {
            panic!("no memory");
        };
        for entry in [first, last] {
            assert!(!entry.in_use() && entry.lesson.try_lock().is_some());
        }
    }
}
