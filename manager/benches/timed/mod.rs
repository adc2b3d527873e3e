//! Time of a call in a benchmark.

use vcuda_region::clock::now_ns;

/// Time for which a call is repeated (ns), and the number of calls at least.
const SPAN_NS: u64 = 1_000_000_000;
const CALLS_MIN: usize = 20;

/// Prints the median time of a call.
#[expect(clippy::print_stdout, reason = "the figure is what the benchmark is for")]
pub(crate) fn report(name: &str, mut call: impl FnMut()) {
    // To warm up.
    call();
    let begun_ns = now_ns();
    let mut times = Vec::new();
    while times.len() < CALLS_MIN || now_ns() - begun_ns < SPAN_NS {
        let called_ns = now_ns();
        call();
        times.push(now_ns() - called_ns);
    }
    times.sort_unstable();
    let median_us = times.get(times.len() / 2).copied().unwrap_or_default() / 1_000;
    println!("{name}: {median_us} us (median of {} calls)", times.len());
}
