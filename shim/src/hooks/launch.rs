//! Launches of kernels: every launching function, one path. A launch's cost and wait: [`crate::compute`].

use vcuda_driver_api::prelude::*;
use vcuda_limiter::predict::Key;

use super::table::Handlers;
use crate::compute::{self, Launches};
use crate::driver::saved_answer::{is_there, peek};
use crate::driver::{Bypass, Call, DefaultStream, Handled};
use crate::memory::state;
use crate::runtime::limits;
use crate::runtime::stream::Stream;

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers {
    may_move_memory: false,
    // The two atomic exchanges would be a quarter of the whole hook.
    defers_cancellation: false,
    passes_gate: true,
};

/// Whether no launch is metered, so that the driver alone answers.
#[inline]
pub(super) fn idle() -> bool {
    limits::is_idle()
}

#[inline]
fn meter(
    call: &Call<'_, CUresult>,
    function: CUfunction,
    blocks: u64,
    shared_bytes: c_uint,
    stream: CUstream,
) -> Handled {
    let stream = Stream::of_call(call, stream);
    let launches = Launches::get(state::get()).ok_or(Bypass::NoLimit)?;
    let key = Key::kernel(function.0, blocks, shared_bytes);
    Ok(launches.launch(call, stream, key, Key::function(function.0))?)
}

/// Number of blocks of a grid. If it wraps, it is no grid: the driver refuses it.
#[inline]
fn blocks(x: c_uint, y: c_uint, z: c_uint) -> u64 {
    u64::from(x).wrapping_mul(u64::from(y)).wrapping_mul(u64::from(z))
}

/// `cuLaunchKernel`.
#[expect(clippy::too_many_arguments, reason = "the driver's prototype")]
#[inline]
pub(super) fn kernel(
    call: &Call<'_, CUresult>,
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    shared_bytes: c_uint,
    stream: CUstream,
    _params: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> Handled {
    let blocks = blocks(grid_x, grid_y, grid_z);
    meter(call, function, blocks, shared_bytes, stream)
}

/// `cuLaunchCooperativeKernel`.
#[expect(clippy::too_many_arguments, reason = "the driver's prototype")]
#[inline]
pub(super) fn cooperative(
    call: &Call<'_, CUresult>,
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    shared_bytes: c_uint,
    stream: CUstream,
    _params: *mut *mut c_void,
) -> Handled {
    let blocks = blocks(grid_x, grid_y, grid_z);
    meter(call, function, blocks, shared_bytes, stream)
}

/// Whether a launch has nothing to pay behind the gate, or was paid for at once.
#[inline(always)]
fn is_paid(
    has_passed_gate: bool,
    function: CUfunction,
    blocks: u64,
    shared_bytes: c_uint,
    stream: Stream,
) -> bool {
    has_passed_gate && limits::is_unmetered()
        || compute::at_once(has_passed_gate, function.0, blocks, shared_bytes, stream)
}

/// Behind `unless` in the rows of `cuLaunchKernel`: whether a launch was paid for at once ([`compute::at_once`]), or has
/// nothing to pay and `has_passed_gate`. Without a gate such a launch never comes here, see [`idle`].
#[expect(clippy::too_many_arguments, reason = "the driver's prototype")]
#[inline(always)]
pub(super) fn is_kernel_paid(
    has_passed_gate: bool,
    default: DefaultStream,
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    shared_bytes: c_uint,
    stream: CUstream,
    _params: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> bool {
    let blocks = blocks(grid_x, grid_y, grid_z);
    let stream = Stream { handle: stream, default };
    is_paid(has_passed_gate, function, blocks, shared_bytes, stream)
}

/// As [`is_kernel_paid`], for `cuLaunchKernelEx`.
#[inline(always)]
pub(super) fn is_kernel_ex_paid(
    has_passed_gate: bool,
    default: DefaultStream,
    config: *const CUlaunchConfig,
    function: CUfunction,
    _params: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> bool {
    if !is_there(config) {
        return false;
    }
    // SAFETY: the structure that the driver is about to read (CUDA Driver API, `cuLaunchKernelEx`).
    let config = unsafe { &*config };
    let blocks = blocks(config.gridDimX, config.gridDimY, config.gridDimZ);
    let stream = Stream { handle: config.hStream, default };
    is_paid(has_passed_gate, function, blocks, config.sharedMemBytes, stream)
}

/// `cuLaunchKernelEx`.
#[inline]
pub(super) fn kernel_ex(
    call: &Call<'_, CUresult>,
    config: *const CUlaunchConfig,
    function: CUfunction,
    _params: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> Handled {
    Bypass::BadArgument.when(!is_there(config))?;
    // SAFETY: the structure that the driver is about to read (CUDA Driver API, `cuLaunchKernelEx`).
    let config = unsafe { config.read() };
    let blocks = blocks(config.gridDimX, config.gridDimY, config.gridDimZ);
    meter(call, function, blocks, config.sharedMemBytes, config.hStream)
}

/// `cuLaunch`: one block on the default stream.
pub(super) fn single(call: &Call<'_, CUresult>, function: CUfunction) -> Handled {
    meter(call, function, 1, 0, CUstream::NULL)
}

/// `cuLaunchGrid`: on the default stream.
pub(super) fn grid(call: &Call<'_, CUresult>, function: CUfunction, width: c_int, height: c_int) -> Handled {
    grid_async(call, function, width, height, CUstream::NULL)
}

/// `cuLaunchGridAsync`.
pub(super) fn grid_async(
    call: &Call<'_, CUresult>,
    function: CUfunction,
    width: c_int,
    height: c_int,
    stream: CUstream,
) -> Handled {
    let blocks = blocks(width.unsigned_abs(), height.unsigned_abs(), 1);
    meter(call, function, blocks, 0, stream)
}

/// Most devices that one launch can span here.
const DEVICES_MAX: usize = 16;

/// `cuLaunchCooperativeKernelMultiDevice`: the parts of all devices are paid for before any of them is launched.
pub(super) fn multi_device(
    call: &Call<'_, CUresult>,
    list: *mut CUDA_LAUNCH_PARAMS,
    devices: c_uint,
    _flags: c_uint,
) -> Handled {
    let launches = Launches::get(state::get()).ok_or(Bypass::NoLimit)?;
    let count = (devices as usize).min(DEVICES_MAX);
    let mut admitted = [const { None }; DEVICES_MAX];
    for (at, place) in admitted.iter_mut().enumerate().take(count) {
        let Some(launch) = peek(list.cast_const().wrapping_add(at)) else {
            break;
        };
        let blocks = blocks(launch.gridDimX, launch.gridDimY, launch.gridDimZ);
        let key = Key::kernel(launch.function.0, blocks, launch.sharedMemBytes);
        *place = launches.admit(Stream::of_call(call, launch.hStream), key, Key::function(launch.function.0));
    }
    let answer = call.real();
    for launch in admitted.iter().flatten() {
        launches.admitted(launch, answer.is_ok());
    }
    Ok(answer?)
}
