//! What a call costs its caller.

use std::thread;
use std::time::Duration;

use vcuda_region::clock;

use super::{WORK, kernels};
use crate::cuda::{Cuda, CudaProblem};
use crate::stage::protocol::Call;

/// Calls in a row: enough for the clock not to count, and fewer than the driver queues (about a thousand) or the shim lets be
/// in flight (half a millisecond of work).
const CALLS: u32 = 128;
/// Calls before the first that is timed: first uses, predictions.
const WARM_UP: u32 = 1024;

/// The time of one call (picoseconds), the median of `parts` rows of [`CALLS`]. Between two rows everything that was
/// launched has ended and twice as long again has passed, so that a tenant stays within its share.
pub(super) fn ps_per_call(cuda: &Cuda, call: Call, parts: u32) -> Result<u64, CudaProblem> {
    let (calls, stream) = (cuda.calls()?, cuda.stream()?);
    let kernel = cuda.kernel(kernels(), WORK)?;
    let one = || match call {
        Call::Launch { iterations } => calls.launch(stream, kernel, iterations),
        Call::AllocateAndFree { bytes } => calls.allocate_and_free(bytes as usize),
    };
    let row = || {
        let start_ns = clock::now_ns();
        (0..CALLS).try_for_each(|_| one())?;
        let called_ns = clock::now_ns() - start_ns;
        calls.synchronize(stream)?;
        thread::sleep(Duration::from_nanos(2 * (clock::now_ns() - start_ns)));
        Ok(called_ns)
    };
    for _ in 0..WARM_UP.div_ceil(CALLS) {
        row()?;
    }
    let mut times = (0..parts.max(1))
        .map(|_| row())
        .collect::<Result<Vec<u64>, CudaProblem>>()?;
    times.sort_unstable();
    let median_ns = times.get(times.len() / 2).copied().unwrap_or(0);
    Ok(median_ns * 1000 / u64::from(CALLS))
}
