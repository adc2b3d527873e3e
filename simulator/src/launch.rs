//! Kernel launches (CUDA Driver API, "Execution Control").
//!
//! A launch is checked, its arguments are looked at once, and one command goes to the machine. `pace.rs` says
//! how long a kernel runs, `arguments.rs` reads arguments, `api.rs` has the exported functions, `old_api.rs`
//! the deprecated ones.

pub(crate) mod api;
pub(crate) mod arguments;
pub(crate) mod old_api;
pub(crate) mod pace;

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use vcuda_driver_api::prelude::*;
use vcuda_machine::{Command, DriverProfile};

use crate::attributes::{BLOCKS_PER_MULTIPROCESSOR, THREADS_PER_MULTIPROCESSOR};
use crate::capture;
use crate::graph::node::Operation;
use crate::hostfunc;
use crate::launch::arguments::{Arguments, Given};
use crate::launch::pace::Pace;
use crate::limits::FREE_LOCAL;
use crate::module::Function;
use crate::process::process;
use crate::stream::queue::Stream;

/// The size of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Blocks in each direction.
    pub(crate) grid: [u32; 3],
    /// Threads of a block in each direction.
    pub(crate) block: [u32; 3],
    /// Bytes of dynamic shared memory of a block.
    pub(crate) shared: u32,
}

impl Shape {
    /// Blocks of the grid.
    #[inline]
    fn blocks(&self) -> u64 {
        self.grid
            .iter()
            .fold(1, |product: u64, size| product.saturating_mul(u64::from(*size)))
    }

    /// Threads of a block.
    #[inline]
    fn threads(&self) -> u64 {
        self.block
            .iter()
            .fold(1, |product: u64, size| product.saturating_mul(u64::from(*size)))
    }

    /// Blocks that one multiprocessor holds at once: by threads and by number. Registers and shared memory are
    /// not modelled.
    #[inline]
    fn blocks_per_sm(&self) -> u64 {
        let threads = self.threads().next_multiple_of(32);
        (u64::from(THREADS_PER_MULTIPROCESSOR.unsigned_abs()) / threads.max(1))
            .clamp(1, u64::from(BLOCKS_PER_MULTIPROCESSOR.unsigned_abs()))
    }

    /// Multiprocessors that it occupies, of `sms`.
    #[inline]
    fn sms(&self, sms: u32) -> u32 {
        let needed = self.blocks().div_ceil(self.blocks_per_sm());
        u32::try_from(needed).unwrap_or(u32::MAX).clamp(1, sms.max(1))
    }

    /// Against the limits of "Compute Capabilities, Technical Specifications" and the function's own.
    ///
    /// # Errors
    /// `INVALID_VALUE` for a dimension that is zero or too large, too many threads, or more dynamic shared
    /// memory than the function may have.
    #[inline]
    fn check(&self, function: &Function) -> CUresult {
        const GRID: [u32; 3] = [i32::MAX.unsigned_abs(), 65535, 65535];
        const BLOCK: [u32; 3] = [1024, 1024, 64];
        let fits = |sizes: &[u32; 3], limits: &[u32; 3]| {
            sizes
                .iter()
                .zip(limits)
                .all(|(size, limit)| (1..=*limit).contains(size))
        };
        if fits(&self.grid, &GRID)
            && fits(&self.block, &BLOCK)
            && self.threads() <= u64::from(function.max_threads())
            && self.shared <= function.max_dynamic_shared()
        {
            return Ok(());
        }
        Err(CUerror::INVALID_VALUE)
    }
}

/// A launch as a graph's node keeps it.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// What runs.
    pub(crate) function: Arc<Function>,
    /// What the caller named: a function's or a kernel's handle.
    pub(crate) named: usize,
    /// How large.
    pub(crate) shape: Shape,
    /// With what.
    pub(crate) arguments: Arc<Arguments>,
    /// Whether all blocks must be resident together.
    pub(crate) is_cooperative: bool,
}

impl Kernel {
    /// Checks a launch and copies what it needs.
    ///
    /// # Errors
    /// As [`launch`].
    pub(crate) fn new(
        function: Arc<Function>,
        named: usize,
        shape: Shape,
        given: Given,
        is_cooperative: bool,
    ) -> Result<Kernel, CUerror> {
        check(&function, &shape, given, is_cooperative)?;
        let arguments = Arc::new(given.copy(&function.parameters)?);
        Ok(Kernel {
            function,
            named,
            shape,
            arguments,
            is_cooperative,
        })
    }

    /// How long it runs and on how many multiprocessors.
    pub(crate) fn cost(&self) -> (u64, u32) {
        let sms = self.function.sms;
        let duration_ns = self
            .function
            .pace
            .duration_ns(self.shape.blocks(), sms, self.arguments.first());
        (duration_ns, self.occupied())
    }

    fn occupied(&self) -> u32 {
        self.shape.sms(self.function.sms)
    }
}

/// All checks of a launch.
#[inline]
fn check(function: &Function, shape: &Shape, given: Given, is_cooperative: bool) -> CUresult {
    shape.check(function)?;
    given.check(&function.parameters)?;
    if is_cooperative && shape.blocks() > shape.blocks_per_sm() * u64::from(function.sms) {
        return Err(CUerror::COOPERATIVE_LAUNCH_TOO_LARGE);
    }
    Ok(())
}

/// Launches a kernel in a stream, or makes a node of it where the stream is capturing.
///
/// # Errors
/// `INVALID_HANDLE` where function and stream are of different contexts; `INVALID_VALUE` for sizes or
/// arguments; `COOPERATIVE_LAUNCH_TOO_LARGE`; those of capture.
#[inline]
pub(crate) fn launch(
    stream: &Stream,
    named: usize,
    shape: Shape,
    given: Given,
    is_cooperative: bool,
) -> CUresult {
    let function = crate::module::function_for(CUfunction(named), stream)?;
    if let Some(recording) = capture::intercept(stream)? {
        let kernel = Kernel::new(function, named, shape, given, is_cooperative)?;
        return recording.add(Operation::Kernel(kernel)).map(drop);
    }
    check(&function, &shape, given, is_cooperative)?;
    if function.info.local_bytes > FREE_LOCAL {
        let context = crate::context::context(stream.context)?;
        crate::limits::of(&context).need_local(u64::from(function.info.local_bytes))?;
    }
    let argument = if function.pace.needs_argument() {
        given.first()?
    } else {
        0
    };
    let sms = shape.sms(stream.sms);
    let duration_ns = function.pace.duration_ns(shape.blocks(), stream.sms, argument);
    let command = match function.pace {
        Pace::Rendezvous => Command::Rendezvous {
            duration_ns,
            rendezvous: (argument >> 32) as u16,
            parties: (argument >> 48) as u8,
            sms,
        },
        Pace::Fed => return hostfunc::spin(stream, argument, sms),
        _ => Command::Kernel { duration_ns, sms },
    };
    let ticket = stream.submit(command)?;
    if BLOCKS.load(Ordering::Relaxed) {
        process()?.client.wait(ticket);
    }
    Ok(())
}

/// `driver.launch_blocks`. Kernels that wait for the host (`vcuda_fed`) are not waited for, nor are graphs.
static BLOCKS: AtomicBool = AtomicBool::new(false);

/// Takes what the profile says.
pub(crate) fn arm(driver: &DriverProfile) {
    BLOCKS.store(driver.launch_blocks, Ordering::Relaxed);
}
