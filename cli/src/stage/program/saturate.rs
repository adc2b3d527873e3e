//! Keeps the GPU busy and counts what is finished.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use vcuda_driver_api::cuda::{CUcontext, CUevent, CUstream};
use vcuda_driver_open::{Calls, Cuda, CudaProblem};

use super::{WORK, kernels};
use crate::stage::protocol::{Shape, Work};

/// Whether the GPU is to be let be. Who ends that unparks the thread that rests.
#[derive(Debug, Default)]
pub(super) struct Rest(pub(super) AtomicBool);

impl Rest {
    /// Returns once this is over, at once if it is not asked for; `drained` is called before the wait.
    fn take(&self, drained: impl FnOnce() -> Result<(), CudaProblem>) -> Result<(), CudaProblem> {
        if self.0.load(Ordering::Acquire) {
            drained()?;
            while self.0.load(Ordering::Acquire) {
                thread::park();
            }
        }
        Ok(())
    }
}

/// Submits `work` over and over. Returns only on an error.
pub(super) fn forever(
    cuda: &Cuda,
    context: CUcontext,
    work: Work,
    done: &AtomicU64,
    rest: &Rest,
) -> Result<Infallible, CudaProblem> {
    cuda.set_current(context)?;
    let (calls, stream) = (cuda.calls()?, cuda.stream()?);
    let kernel = cuda.kernel(kernels(), WORK)?;
    let launch = || calls.launch(stream, kernel, work.iterations);
    match work.shape {
        Shape::Synchronized => loop {
            rest.take(|| Ok(()))?;
            launch()?;
            calls.synchronize(stream)?;
            done.fetch_add(work.iterations, Ordering::Release);
        },
        Shape::Launches => {
            let counted = Counted::new(done, work, work.iterations);
            in_groups(cuda, &calls, stream, &counted, rest, launch)
        }
        Shape::Graph { kernels } => {
            let graph = cuda.captured(stream, || (0..kernels).try_for_each(|_| launch()))?;
            let counted = Counted::new(done, work, work.iterations.saturating_mul(kernels.into()));
            in_groups(cuda, &calls, stream, &counted, rest, || {
                calls.replay(stream, graph)
            })
        }
    }
}

/// How submissions are grouped, and where what is done is counted.
struct Counted<'a> {
    done: &'a AtomicU64,
    group: u32,
    depth: u32,
    /// Iterations of a group.
    iterations: u64,
}

impl<'a> Counted<'a> {
    /// Each submission is `each` iterations.
    fn new(done: &'a AtomicU64, work: Work, each: u64) -> Counted<'a> {
        Counted {
            done,
            group: work.group,
            depth: work.depth,
            iterations: each.saturating_mul(work.group.into()),
        }
    }
}

/// Keeps the groups of submissions in flight.
fn in_groups(
    cuda: &Cuda,
    calls: &Calls<'_>,
    stream: CUstream,
    counted: &Counted<'_>,
    rest: &Rest,
    submit: impl Fn() -> Result<(), CudaProblem>,
) -> Result<Infallible, CudaProblem> {
    let mut idle: Vec<CUevent> = (0..counted.depth)
        .map(|_| cuda.event())
        .collect::<Result<_, _>>()?;
    let mut in_flight: VecDeque<CUevent> = VecDeque::new();
    let finish = |event: CUevent| {
        calls.wait(event)?;
        counted.done.fetch_add(counted.iterations, Ordering::Release);
        Ok::<_, CudaProblem>(event)
    };
    loop {
        rest.take(|| {
            for event in in_flight.drain(..) {
                idle.push(finish(event)?);
            }
            Ok(())
        })?;
        let event = match idle.pop() {
            Some(event) => event,
            None => match in_flight.pop_front() {
                Some(oldest) => finish(oldest)?,
                None => cuda.event()?,
            },
        };
        (0..counted.group).try_for_each(|_| submit())?;
        calls.record(stream, event)?;
        in_flight.push_back(event);
    }
}
