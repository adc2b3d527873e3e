//! Kernel launches.

use std::sync::Arc;

use crate::export::prelude::*;
use crate::object::arguments::Given;
use crate::object::kernel::Shape;
use crate::object::stream::{Role, Stream};
use crate::semantics::event::mark;
use crate::semantics::launch::launch;
use crate::semantics::ordering;

export! {
    cuLaunchKernel / cuLaunchKernel_ptsz =>
        |null, function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra| {
            let shape = Shape { grid: [gx, gy, gz], block: [bx, by, bz], shared };
            kernel(null, stream, function, shape, Given::read(parameters, extra), false)
        };
    cuLaunchKernelEx / cuLaunchKernelEx_ptsz => kernel_ex;
    // The parameters of a cooperative kernel are an array of pointers.
    cuLaunchCooperativeKernel / cuLaunchCooperativeKernel_ptsz =>
        |null, function, gx, gy, gz, bx, by, bz, shared, stream, parameters| {
            let shape = Shape { grid: [gx, gy, gz], block: [bx, by, bz], shared };
            kernel(null, stream, function, shape, Given::read(parameters, core::ptr::null_mut()), true)
        };
    cuLaunchCooperativeKernelMultiDevice => cooperative_on_several;
}

#[inline]
fn kernel(
    null: Null,
    stream: CUstream,
    function: CUfunction,
    shape: Shape,
    given: Result<Given, CUerror>,
    is_cooperative: bool,
) -> CUresult {
    let stream = resolve(stream, null)?;
    launch(&stream, function.0, shape, given?, is_cooperative)
}

/// The modelled attributes of a launch.
#[derive(Debug, Default)]
struct Asked {
    is_cooperative: bool,
    /// Events to record behind the kernel. A real device may trigger them while it runs.
    events: Vec<Arc<crate::object::event::Event>>,
}

/// Reads the attributes. Known attributes without an effect here are accepted. Errors: `INVALID_VALUE` for an unknown
/// attribute; `NOT_SUPPORTED` for a device-updatable node.
fn read_attributes(config: &CUlaunchConfig) -> Result<Asked, CUerror> {
    /// The last known `CU_LAUNCH_ATTRIBUTE_*` (CUDA 13).
    const LAST: u32 = CUlaunchAttributeID::SHARED_MEMORY_MODE.0;
    let mut asked = Asked::default();
    for attribute in get_array(config.attrs.cast_const(), config.numAttrs as usize)? {
        match attribute.id {
            CUlaunchAttributeID::COOPERATIVE => {
                // SAFETY: the id says that this member counts; all bit patterns are valid numbers.
                asked.is_cooperative |= unsafe { attribute.value.cooperative } != 0;
            }
            CUlaunchAttributeID::PROGRAMMATIC_EVENT => {
                // SAFETY: as above.
                let event = unsafe { attribute.value.programmaticEvent }.event;
                asked.events.push(crate::object::event::event(event)?);
            }
            CUlaunchAttributeID::LAUNCH_COMPLETION_EVENT => {
                // SAFETY: as above.
                let event = unsafe { attribute.value.launchCompletionEvent }.event;
                asked.events.push(crate::object::event::event(event)?);
            }
            CUlaunchAttributeID::DEVICE_UPDATABLE_KERNEL_NODE => return Err(CUerror::NOT_SUPPORTED),
            CUlaunchAttributeID(id) if id <= LAST => {}
            _ => return Err(CUerror::INVALID_VALUE),
        }
    }
    Ok(asked)
}

fn kernel_ex(
    null: Null,
    config: *const CUlaunchConfig,
    function: CUfunction,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    let config = get(config)?;
    let stream = resolve(config.hStream, null)?;
    let shape = Shape {
        grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
        block: [config.blockDimX, config.blockDimY, config.blockDimZ],
        shared: config.sharedMemBytes,
    };
    let asked = read_attributes(&config)?;
    launch(&stream, function.0, shape, Given::read(parameters, extra)?, asked.is_cooperative)?;
    for event in asked.events {
        if crate::semantics::capture::record(&stream)?.is_none() {
            mark(&event, &stream)?;
        }
    }
    Ok(())
}

/// Launches one kernel on each of several devices, in streams of the caller. By default each waits for earlier work of
/// all the streams, and later work in each stream waits for all the kernels. Errors: beside those of a launch:
/// `INVALID_VALUE` for unknown flags, no device, a default stream, sizes that differ, or two entries on one device;
/// `NOT_SUPPORTED` in a capture (docs/hardware.md, "states of a capture").
fn cooperative_on_several(list: *mut CUDA_LAUNCH_PARAMS, count: c_uint, flags: c_uint) -> CUresult {
    const NO_PRE: c_uint = CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC;
    const NO_POST: c_uint = CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC;
    let entries = get_array(list.cast_const(), count as usize)?;
    let shape = |entry: &CUDA_LAUNCH_PARAMS| Shape {
        grid: [entry.gridDimX, entry.gridDimY, entry.gridDimZ],
        block: [entry.blockDimX, entry.blockDimY, entry.blockDimZ],
        shared: entry.sharedMemBytes,
    };
    let first = shape(entries.first().ok_or(CUerror::INVALID_VALUE)?);
    let mut streams: Vec<Arc<Stream>> = Vec::new();
    for entry in &entries {
        let stream = resolve(entry.hStream, Null::Legacy)?;
        let is_repeated = streams.iter().any(|other| other.gpu == stream.gpu);
        if !matches!(stream.role, Role::Created(_)) || shape(entry) != first || is_repeated {
            return Err(CUerror::INVALID_VALUE);
        }
        if crate::semantics::capture::intercept(&stream)?.is_some() {
            return Err(CUerror::NOT_SUPPORTED);
        }
        streams.push(stream);
    }
    if flags & !(NO_PRE | NO_POST) != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    if flags & NO_PRE == 0 {
        join_all(&streams)?;
    }
    for (entry, stream) in entries.iter().zip(&streams) {
        let given = Given::read(entry.kernelParams, core::ptr::null_mut())?;
        launch(stream, entry.function.0, first, given, true)?;
    }
    if flags & NO_POST == 0 {
        join_all(&streams)?;
    }
    Ok(())
}

/// Makes each stream wait for all the others.
fn join_all(streams: &[Arc<Stream>]) -> CUresult {
    let marks = streams.iter().map(|stream| ordering::mark(stream)).collect::<Result<Vec<_>, _>>()?;
    for (index, stream) in streams.iter().enumerate() {
        for (_, mark) in marks.iter().enumerate().filter(|(other, _)| *other != index) {
            let ticket = mark.ticket();
            ordering::submit(stream, vcuda_machine::Command::Wait { ticket })?;
        }
    }
    Ok(())
}
