//! The right to place timing events on a stream.

use core::ptr;
use core::sync::atomic::Ordering;

use super::StreamState;
use crate::driver::reentrancy;

impl StreamState {
    /// Takes the right to place timing events, if no other thread has it.
    pub(in crate::compute) fn try_recording(&self) -> Option<RecordingRight<'_>> {
        if self.recording.swap(true, Ordering::Acquire) {
            return None;
        }
        reentrancy::note(|state| state.rights[1] = &raw const self.recording);
        let recording = RecordingRight { stream_state: self };
        // Pairs with `close`: either that sees the placed timing event, or this sees that the stream closes.
        if self.closing.load(Ordering::SeqCst) { None } else { Some(recording) }
    }
}

/// The right to place timing events on a stream.
#[derive(Debug)]
pub(in crate::compute) struct RecordingRight<'a> {
    stream_state: &'a StreamState,
}

impl Drop for RecordingRight<'_> {
    fn drop(&mut self) {
        reentrancy::note(|state| state.rights[1] = ptr::null());
        self.stream_state.recording.store(false, Ordering::Release);
    }
}
