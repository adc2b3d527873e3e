//! Keeps the GPU busy and counts what is finished.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

use vcuda_driver_api::cuda::{CUcontext, CUevent, CUstream};

use super::{WORK, kernels};
use crate::cuda::calls::Calls;
use crate::cuda::{Cuda, CudaProblem};
use crate::stage::protocol::{Shape, Work};

/// Submits `work` over and over. Returns only on an error.
pub(super) fn forever(
    cuda: &Cuda,
    context: CUcontext,
    work: Work,
    done: &AtomicU64,
) -> Result<Infallible, CudaProblem> {
    cuda.set_current(context)?;
    let (calls, stream) = (cuda.calls()?, cuda.stream()?);
    let kernel = cuda.kernel(kernels(), WORK)?;
    let launch = || calls.launch(stream, kernel, work.iterations);
    match work.shape {
        Shape::Synchronized => loop {
            launch()?;
            calls.synchronize(stream)?;
            done.fetch_add(work.iterations, Ordering::Release);
        },
        Shape::Launches => {
            let each = work.iterations;
            in_groups(cuda, &calls, stream, work, each, done, launch)
        }
        Shape::Graph { kernels } => {
            let graph = cuda.captured(stream, || (0..kernels).try_for_each(|_| launch()))?;
            let each = work.iterations.saturating_mul(kernels.into());
            in_groups(cuda, &calls, stream, work, each, done, || {
                calls.replay(stream, graph)
            })
        }
    }
}

/// Keeps the groups of submissions in flight; each submission is `each` iterations.
fn in_groups(
    cuda: &Cuda,
    calls: &Calls<'_>,
    stream: CUstream,
    work: Work,
    each: u64,
    done: &AtomicU64,
    submit: impl Fn() -> Result<(), CudaProblem>,
) -> Result<Infallible, CudaProblem> {
    let submit_group = |event: CUevent| {
        (0..work.group).try_for_each(|_| submit())?;
        calls.record(stream, event)
    };
    let mut events: Vec<CUevent> = Vec::new();
    for _ in 0..work.depth {
        let event = cuda.event()?;
        submit_group(event)?;
        events.push(event);
    }
    loop {
        for event in &events {
            calls.wait(*event)?;
            done.fetch_add(each.saturating_mul(work.group.into()), Ordering::Release);
            submit_group(*event)?;
        }
    }
}
