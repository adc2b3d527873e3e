//! Copies and sets. Within device memory they are charged, held and measured as kernels are; copies between the host and the
//! device are counted, and the time that they take in their stream is nobody's GPU time.

use vcuda_driver_api::prelude::*;
use vcuda_limiter::predict::{self, Key, Transfer};

use super::track::START;
use super::{COSTS, Launches, Stream};
use crate::capture;
use crate::ffi::Call;

/// A copy of the host's that may take longer than this is measured around (ns): shorter ones are within a mark's error.
const APART_NS: u64 = 20_000;
/// What a copy engine moves in a nanosecond, about (bytes): PCIe 4.0.
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

    /// Counts a copy between the host and the device, and calls the driver. Before a long one the work so far is marked, and
    /// behind it begins another segment.
    pub(crate) fn host_copy(
        &'static self,
        call: &Call<'_, CUresult>,
        stream: Stream,
        bytes: u64,
    ) -> CUresult {
        if capture::is_capturing(stream.handle, stream.default) {
            return call.real();
        }
        let track = self.tracks.find(&self.lanes, stream);
        let Some((track, lane)) = track.and_then(|track| Some((track, self.lane_of(track)?))) else {
            return call.real();
        };
        if bytes / HOST_BYTES_PER_NS < APART_NS {
            call.real()?;
        } else {
            self.mark(lane, track, stream, 0);
            call.real()?;
            self.part(track, stream, START);
        }
        lane.account.count_host_copy(bytes);
        Ok(())
    }
}
