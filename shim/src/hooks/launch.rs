//! Launches of kernels: every way there is, one path. What a launch costs and whether it waits: [`crate::compute`].

use vcuda_driver_api::prelude::*;
use vcuda_limiter::predict::Key;

use super::table::Handlers;
use crate::compute::{self, Launches};
use crate::driver::{Bypass, Call, Handled};
use crate::runtime::stream::Stream;

/// What the table must know of these handlers.
pub(super) const HANDLERS: Handlers = Handlers {
    may_move_memory: false,
    // The two atomic exchanges would be a quarter of the whole hook.
    defers_cancellation: false,
};

/// No launch is metered: the driver alone is asked.
#[inline]
pub(super) fn idle() -> bool {
    compute::idle()
}

#[inline]
fn meter(
    call: &Call<'_, CUresult>,
    function: CUfunction,
    blocks: u64,
    shared_bytes: c_uint,
    stream: Stream,
) -> Handled {
    let launches = Launches::get().ok_or(Bypass::NoLimit)?;
    let key = Key::kernel(function.0, blocks, shared_bytes);
    Ok(launches.launch(call, stream, key, Key::function(function.0))?)
}

/// Blocks of a grid. What wraps is no grid: the driver refuses it.
#[inline]
fn blocks(x: c_uint, y: c_uint, z: c_uint) -> u64 {
    u64::from(x).wrapping_mul(u64::from(y)).wrapping_mul(u64::from(z))
}

/// The launches that take a grid, a stream and parameters.
macro_rules! with_grid {
    ($($(#[$meta:meta])* $name:ident $stream:ident ($($extra:ident: $ty:ty),*);)*) => {$(
        $(#[$meta])*
        #[expect(clippy::too_many_arguments, reason = "the driver's prototype")]
        #[inline]
        pub(super) fn $name(
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
            $($extra: $ty),*
        ) -> Handled {
            meter(call, function, blocks(grid_x, grid_y, grid_z), shared_bytes, Stream::$stream(stream))
        }
    )*};
}

with_grid! {
    /// `cuLaunchKernel`.
    kernel legacy (_extra: *mut *mut c_void);
    /// `cuLaunchKernel_ptsz`.
    kernel_per_thread per_thread (_extra: *mut *mut c_void);
    /// `cuLaunchCooperativeKernel`.
    cooperative legacy ();
    /// `cuLaunchCooperativeKernel_ptsz`.
    cooperative_per_thread per_thread ();
}

/// The functions behind `unless` in the rows of launches: whether a launch was paid for at once ([`compute::at_once`]).
macro_rules! goes {
    ($($(#[$meta:meta])* $name:ident $stream:ident;)*) => {$(
        $(#[$meta])*
        #[expect(clippy::too_many_arguments, reason = "the driver's prototype")]
        #[inline(always)]
        pub(super) fn $name(
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
            compute::at_once(function.0, blocks, shared_bytes, Stream::$stream(stream))
        }
    )*};
}

goes! {
    /// Of `cuLaunchKernel`.
    kernel_goes legacy;
    /// Of `cuLaunchKernel_ptsz`.
    kernel_goes_per_thread per_thread;
}

/// Of `cuLaunchKernelEx`.
#[inline(always)]
pub(super) fn kernel_ex_goes(
    config: *const CUlaunchConfig,
    function: CUfunction,
    _params: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> bool {
    config_goes(config, function, Stream::legacy)
}

/// Of `cuLaunchKernelEx_ptsz`.
#[inline(always)]
pub(super) fn kernel_ex_goes_per_thread(
    config: *const CUlaunchConfig,
    function: CUfunction,
    _params: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> bool {
    config_goes(config, function, Stream::per_thread)
}

#[inline(always)]
fn config_goes(
    config: *const CUlaunchConfig,
    function: CUfunction,
    stream: impl Fn(CUstream) -> Stream,
) -> bool {
    // SAFETY: null, or the structure that the driver is about to read (CUDA Driver API, `cuLaunchKernelEx`).
    let Some(config) = (unsafe { config.as_ref() }) else {
        return false;
    };
    let blocks = blocks(config.gridDimX, config.gridDimY, config.gridDimZ);
    compute::at_once(function.0, blocks, config.sharedMemBytes, stream(config.hStream))
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
    by_config(call, config, function, Stream::legacy)
}

/// `cuLaunchKernelEx_ptsz`.
#[inline]
pub(super) fn kernel_ex_per_thread(
    call: &Call<'_, CUresult>,
    config: *const CUlaunchConfig,
    function: CUfunction,
    _params: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> Handled {
    by_config(call, config, function, Stream::per_thread)
}

#[inline]
fn by_config(
    call: &Call<'_, CUresult>,
    config: *const CUlaunchConfig,
    function: CUfunction,
    stream: impl Fn(CUstream) -> Stream,
) -> Handled {
    Bypass::BadArgument.when(config.is_null())?;
    // SAFETY: not null, so it is the structure that the driver is about to read (CUDA Driver API, `cuLaunchKernelEx`).
    let config = unsafe { config.read() };
    let blocks = blocks(config.gridDimX, config.gridDimY, config.gridDimZ);
    meter(
        call,
        function,
        blocks,
        config.sharedMemBytes,
        stream(config.hStream),
    )
}

/// `cuLaunch`: one block on the default stream.
pub(super) fn single(call: &Call<'_, CUresult>, function: CUfunction) -> Handled {
    meter(call, function, 1, 0, Stream::legacy(CUstream::NULL))
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
    meter(call, function, blocks, 0, Stream::legacy(stream))
}

/// Most devices that one launch can span here.
const DEVICES_MAX: usize = 16;

/// `cuLaunchCooperativeKernelMultiDevice`: each device's part is paid before any of them goes.
pub(super) fn multi_device(
    call: &Call<'_, CUresult>,
    list: *mut CUDA_LAUNCH_PARAMS,
    devices: c_uint,
    _flags: c_uint,
) -> Handled {
    let launches = Launches::get().ok_or(Bypass::NoLimit)?;
    let count = (devices as usize).min(DEVICES_MAX);
    Bypass::BadArgument.when(list.is_null())?;
    let mut admitted = [const { None }; DEVICES_MAX];
    for (at, place) in admitted.iter_mut().enumerate().take(count) {
        // SAFETY: the list has as many entries as the caller says (CUDA Driver API), and `at` is below that.
        let entry = unsafe { list.add(at) };
        // SAFETY: as above.
        let launch = unsafe { entry.read() };
        let blocks = blocks(launch.gridDimX, launch.gridDimY, launch.gridDimZ);
        let key = Key::kernel(launch.function.0, blocks, launch.sharedMemBytes);
        *place = launches.admit(
            Stream::legacy(launch.hStream),
            key,
            Key::function(launch.function.0),
        );
    }
    let answer = call.real();
    for launch in admitted.iter().flatten() {
        launches.admitted(launch, answer.is_ok());
    }
    Ok(answer?)
}
