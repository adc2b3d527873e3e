//! What a call costs its caller.

use std::thread;
use std::time::Duration;

use vcuda_driver_open::{Cuda, CudaProblem};
use vcuda_region::clock;

use super::{WORK, kernels};
use crate::stage::protocol::{Call, Reply};

/// Calls in a row: enough for the clock not to count, and fewer than the driver queues (about a thousand) or the shim lets be
/// in flight (half a millisecond of work).
const CALLS: u32 = 128;
/// Calls before the first that is timed: first uses, predictions.
const WARM_UP: u32 = 1024;

/// The time of one call: the median of `parts` rows of [`CALLS`], and the 99th percentile of as many that are timed one by one.
/// Between two rows everything that was launched has ended and twice as long again has passed, so that a tenant stays within
/// its share.
pub(super) fn timed(cuda: &Cuda, call: Call, parts: u32) -> Result<Reply, CudaProblem> {
    let (calls, stream) = (cuda.calls()?, cuda.stream()?);
    let kernel = cuda.kernel(kernels(), WORK)?;
    let one = || match call {
        Call::Launch { iterations } => calls.launch(stream, kernel, iterations),
        Call::AllocateAndFree { bytes } => calls.allocate_and_free(bytes as usize),
    };
    let row = |each: &mut dyn FnMut() -> Result<(), CudaProblem>| {
        let start_ns = clock::now_ns();
        (0..CALLS).try_for_each(|_| each())?;
        let called_ns = clock::now_ns() - start_ns;
        calls.synchronize(stream)?;
        thread::sleep(Duration::from_nanos(2 * (clock::now_ns() - start_ns)));
        Ok(called_ns)
    };
    for _ in 0..WARM_UP.div_ceil(CALLS) {
        row(&mut || one())?;
    }
    let mut rows = (0..parts.max(1))
        .map(|_| row(&mut || one()))
        .collect::<Result<Vec<u64>, CudaProblem>>()?;
    let mut singles = Vec::new();
    for _ in 0..parts.max(1) {
        row(&mut || {
            let start_ns = clock::now_ns();
            one()?;
            singles.push(clock::now_ns() - start_ns);
            Ok(())
        })?;
    }
    rows.sort_unstable();
    singles.sort_unstable();
    let median_ns = rows.get(rows.len() / 2).copied().unwrap_or(0);
    Ok(Reply::Timed {
        ps_per_call: median_ns * 1000 / u64::from(CALLS),
        p99_ns: singles.get(singles.len() * 99 / 100).copied().unwrap_or(0),
    })
}
