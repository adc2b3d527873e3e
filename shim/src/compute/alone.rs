//! Launches that no event can measure, because the table of streams is full or the driver records no event on the
//! stream. Each is waited for alone, and all of that time is charged (I16).

use core::time::Duration;

use vcuda_driver_api::prelude::*;
use vcuda_limiter::predict::{Part, Prediction};

use vcuda_region::clock::now_ns;

use super::device_limiter::DeviceLimiter;
use super::settle::charge;
use super::stream_table::context_of;
use super::{COSTS, Launches};
use crate::driver::{Relaxed, real};
use crate::runtime::capture;
use crate::runtime::stream::Stream;

/// Longest wait for such work (ns). The work may itself wait for a later call of this thread.
const LONGEST_NS: u64 = 2_000_000_000;
/// First and longest pause between two queries (ns).
const LOOKS_NS: (u64, u64) = (20_000, 500_000);

impl Launches {
    /// Waits for the work of a launch that was paid for as `predicted`, and charges the time since `from_ns`
    /// (`CLOCK_MONOTONIC`). A stream that is being captured may not be queried: its work counts as running until the
    /// capture ends.
    pub(super) fn await_alone(limiter: &DeviceLimiter, stream: Stream, predicted: &Prediction, from_ns: u64) {
        let _relaxed = Relaxed::enter();
        let context = context_of(stream).map_or(0, |context| context.0);
        let (mut entered_ns, mut charged_ns, mut pause_ns) = (from_ns, 0, LOOKS_NS.0);
        let paid_ns = |charged_ns: u64| predicted.cost_ns.max(charged_ns);
        loop {
            let answer = if capture::is_capturing(stream.handle, stream.default) {
                Err(CUerror::NOT_READY)
            } else {
                // SAFETY: the stream that the application has just launched on.
                unsafe { real::cuStreamQuery(stream.explicit()) }
            };
            let now = now_ns();
            let step_ns = charge(limiter, &limiter.view(now), context, (entered_ns, now));
            let before_ns = paid_ns(charged_ns);
            charged_ns += step_ns;
            limiter.bucket.settle(before_ns, paid_ns(charged_ns), 1000);
            entered_ns = now;
            if answer != Err(CUerror::NOT_READY) || now.saturating_sub(from_ns) >= LONGEST_NS {
                break;
            }
            std::thread::sleep(Duration::from_nanos(pause_ns));
            pause_ns = (pause_ns * 5 / 4).min(LOOKS_NS.1);
        }
        limiter.bucket.settle(paid_ns(charged_ns), charged_ns, 1000);
        limiter.meter.finish(predicted.cost_ns, 1);
        limiter.meter.charged_ns.fetch_add(charged_ns, core::sync::atomic::Ordering::Relaxed);
        let part = Part { index: predicted.index, count: 1 };
        COSTS.learn(&[part], predicted.cost_ns, entered_ns.saturating_sub(from_ns));
    }
}
