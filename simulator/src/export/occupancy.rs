//! Occupancy (CUDA Driver API, "Occupancy"): blocks per multiprocessor by threads, registers, shared memory
//! and the number of blocks, as the CUDA C++ Programming Guide ("Hardware Multithreading") describes it.

use crate::export::function::UNCOUNTED_REGISTERS;
use crate::export::prelude::*;
use crate::object::attributes::{
    BLOCKS_PER_MULTIPROCESSOR, REGISTERS, SHARED_PER_MULTIPROCESSOR, SHARED_RESERVED,
    THREADS_PER_MULTIPROCESSOR,
};
use crate::object::library::function;
use crate::object::module::Function;

export! {
    cuOccupancyMaxActiveBlocksPerMultiprocessor => max_active_blocks;
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags => max_active_blocks_with_flags;
    cuOccupancyMaxPotentialBlockSize => |grid, block, function, shared_of, shared, limit|
        max_potential_block_size_with_flags(grid, block, function, shared_of, shared, limit, 0);
    cuOccupancyMaxPotentialBlockSizeWithFlags => max_potential_block_size_with_flags;
}

/// Unit in which registers are assigned to warps.
const REGISTER_UNIT: u64 = 256;
const WARP: u64 = 32;

/// Number of blocks of a size that fit on one multiprocessor.
fn blocks(function: &Function, threads: u64, dynamic_shared: u64) -> u64 {
    if threads > u64::from(function.max_threads())
        || dynamic_shared > u64::from(function.max_dynamic_shared())
    {
        return 0;
    }
    let warps = threads.div_ceil(WARP).max(1);
    let registers = match function.info.registers {
        0 => u64::from(UNCOUNTED_REGISTERS),
        count => u64::from(count),
    };
    let registers = (registers * WARP).next_multiple_of(REGISTER_UNIT) * warps;
    let shared = u64::from(function.info.shared_bytes) + dynamic_shared + SHARED_RESERVED as u64;
    let by_threads = THREADS_PER_MULTIPROCESSOR as u64 / (warps * WARP);
    let by_registers = REGISTERS as u64 / registers;
    let by_shared = SHARED_PER_MULTIPROCESSOR as u64 / shared;
    by_threads.min(by_registers).min(by_shared).min(BLOCKS_PER_MULTIPROCESSOR as u64)
}

fn max_active_blocks(
    place: *mut c_int,
    handle: CUfunction,
    block_size: c_int,
    dynamic_shared: usize,
) -> CUresult {
    let function = function(handle)?;
    let threads =
        u64::try_from(block_size).ok().filter(|threads| *threads > 0).ok_or(CUerror::INVALID_VALUE)?;
    put(place, blocks(&function, threads, dynamic_shared as u64) as c_int)
}

/// `CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE` has no effect on devices whose caching does not affect occupancy.
fn max_active_blocks_with_flags(
    place: *mut c_int,
    handle: CUfunction,
    block_size: c_int,
    dynamic_shared: usize,
    flags: c_uint,
) -> CUresult {
    if flags > 1 {
        return Err(CUerror::INVALID_VALUE);
    }
    max_active_blocks(place, handle, block_size, dynamic_shared)
}

/// The block size with the most resident threads; the largest of equal ones.
fn max_potential_block_size_with_flags(
    grid_size: *mut c_int,
    block_size: *mut c_int,
    handle: CUfunction,
    shared_of: CUoccupancyB2DSize,
    dynamic_shared: usize,
    limit: c_int,
    flags: c_uint,
) -> CUresult {
    let function = function(handle)?;
    if flags > 1 || limit < 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let largest = match limit as u32 {
        0 => function.max_threads(),
        limit => limit.min(function.max_threads()),
    };
    let mut best = (0, 0, 0);
    for warps in (1..=largest.div_ceil(WARP as u32)).rev() {
        let threads = (u64::from(warps) * WARP).min(u64::from(largest));
        let shared = match shared_of {
            // SAFETY: "block_size_to_dynamic_s_mem_size" is the program's function of this type.
            Some(shared_of) => unsafe { shared_of(threads as c_int) },
            None => dynamic_shared,
        };
        let resident = blocks(&function, threads, shared as u64);
        if resident * threads > best.0 {
            best = (resident * threads, threads, resident);
        }
    }
    put(block_size, best.1 as c_int)?;
    put(grid_size, (best.2 * u64::from(function.sms)) as c_int)
}
