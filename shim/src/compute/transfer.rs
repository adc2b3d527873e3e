//! Copies and sets. Within device memory they are charged, throttled and measured as kernels are. Copies between host
//! and device are counted, and their time in the stream is not charged as GPU time.

use vcuda_driver_api::prelude::*;
use vcuda_limiter::predict::{self, Key, Transfer};

use super::stream_state::START;
use super::{COSTS, Launches, Stream};
use crate::driver::Call;
use crate::runtime::capture;

/// Copies from or to the host that take longer than this are measured around (ns). Shorter ones are within a timing
/// event's error.
const APART_NS: u64 = 20_000;
/// Approximate speed of a copy engine (bytes per ns): PCIe 4.0.
const HOST_BYTES_PER_NS: u64 = 25;

impl Launches {
    /// Meters a copy or a set of device memory, and calls the driver.
    pub(crate) fn transfer(
        &'static self,
        call: &Call<'_, CUresult>,
        stream: Stream,
        kind: Transfer,
        bytes: u64,
    ) -> CUresult {
        if bytes == 0 {
            return call.real();
        }
        let key = Key::transfer(kind, bytes);
        COSTS.expect(key, || predict::transfer_ns(bytes));
        self.launch(call, stream, key, key)
    }

    /// Counts a copy between the host and the device, and calls the driver. Before a long copy the work so far is
    /// measured. A new segment begins behind it.
    pub(crate) fn host_copy(
        &'static self,
        call: &Call<'_, CUresult>,
        stream: Stream,
        bytes: u64,
    ) -> CUresult {
        if capture::is_capturing(stream.handle, stream.default) {
            return call.real();
        }
        let stream_state = self.streams.find(&self.limiters, stream);
        let Some((stream_state, limiter)) =
            stream_state.and_then(|stream_state| Some((stream_state, self.limiter_of(stream_state)?)))
        else {
            return call.real();
        };
        if bytes / HOST_BYTES_PER_NS < APART_NS {
            call.real()?;
        } else {
            self.apart(limiter, stream_state, stream, (call, START))?;
        }
        limiter.bucket.count_host_copy(bytes);
        Ok(())
    }
}
