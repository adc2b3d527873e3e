//! Launches as graph nodes store them, and the checks of a launch (CUDA Driver API, "Execution Control").
//!
//! Durations are in `base/pace.rs`, arguments in `arguments.rs`.

use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use crate::object::arguments::{Arguments, Given};
use crate::object::attributes::{BLOCKS_PER_MULTIPROCESSOR, THREADS_PER_MULTIPROCESSOR};
use crate::object::module::Function;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Number of blocks in each direction.
    pub(crate) grid: [u32; 3],
    /// Threads per block in each direction.
    pub(crate) block: [u32; 3],
    /// Dynamic shared memory per block (bytes).
    pub(crate) shared: u32,
}

impl Shape {
    /// Number of blocks of the grid.
    #[inline]
    pub(crate) fn blocks(&self) -> u64 {
        self.grid.iter().fold(1, |product: u64, size| product.saturating_mul(u64::from(*size)))
    }

    #[inline]
    fn threads(&self) -> u64 {
        self.block.iter().fold(1, |product: u64, size| product.saturating_mul(u64::from(*size)))
    }

    /// Number of blocks that fit on one multiprocessor, by threads and by number. Registers and shared memory are not
    /// modelled.
    #[inline]
    fn blocks_per_sm(&self) -> u64 {
        let threads = self.threads().next_multiple_of(32);
        (u64::from(THREADS_PER_MULTIPROCESSOR.unsigned_abs()) / threads.max(1))
            .clamp(1, u64::from(BLOCKS_PER_MULTIPROCESSOR.unsigned_abs()))
    }

    /// Number of multiprocessors that it occupies, at most `sms`.
    #[inline]
    pub(crate) fn sms(&self, sms: u32) -> u32 {
        let needed = self.blocks().div_ceil(self.blocks_per_sm());
        u32::try_from(needed).unwrap_or(u32::MAX).clamp(1, sms.max(1))
    }

    /// Checks the limits of "Compute Capabilities, Technical Specifications" and of the function. Error:
    /// `INVALID_VALUE` for a dimension that is zero or too large, too many threads, or more dynamic shared memory than
    /// the function may have.
    #[inline]
    fn check(&self, function: &Function) -> CUresult {
        const GRID: [u32; 3] = [i32::MAX.unsigned_abs(), 65535, 65535];
        const BLOCK: [u32; 3] = [1024, 1024, 64];
        let fits = |sizes: &[u32; 3], limits: &[u32; 3]| {
            sizes.iter().zip(limits).all(|(size, limit)| (1..=*limit).contains(size))
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

/// A launch in a graph node.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    pub(crate) function: Arc<Function>,
    /// Handle used by the caller, of a function or a kernel.
    pub(crate) named: usize,
    pub(crate) shape: Shape,
    pub(crate) arguments: Arc<Arguments>,
    /// Whether all blocks must be resident together.
    pub(crate) is_cooperative: bool,
}

impl Kernel {
    /// Checks a launch and copies what it needs.
    pub(crate) fn new(
        function: Arc<Function>,
        named: usize,
        shape: Shape,
        given: Given,
        is_cooperative: bool,
    ) -> Result<Kernel, CUerror> {
        check(&function, &shape, given, is_cooperative)?;
        let arguments = Arc::new(given.copy(&function.parameters)?);
        Ok(Kernel { function, named, shape, arguments, is_cooperative })
    }

    /// Duration and number of multiprocessors.
    pub(crate) fn cost(&self) -> (u64, u32) {
        let sms = self.function.sms;
        let duration_ns = self.function.pace.duration_ns(self.shape.blocks(), sms, self.arguments.first());
        (duration_ns, self.occupied())
    }

    fn occupied(&self) -> u32 {
        self.shape.sms(self.function.sms)
    }
}

/// Checks a launch. Errors: `INVALID_VALUE` for sizes or arguments; `COOPERATIVE_LAUNCH_TOO_LARGE`.
#[inline]
pub(crate) fn check(function: &Function, shape: &Shape, given: Given, is_cooperative: bool) -> CUresult {
    shape.check(function)?;
    given.check(&function.parameters)?;
    if is_cooperative && shape.blocks() > shape.blocks_per_sm() * u64::from(function.sms) {
        return Err(CUerror::COOPERATIVE_LAUNCH_TOO_LARGE);
    }
    Ok(())
}
