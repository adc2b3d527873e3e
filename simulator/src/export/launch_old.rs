//! Deprecated launches, whose state is kept with a function (CUDA Driver API, "Execution Control").

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::export::prelude::*;
use crate::object::arguments::Given;
use crate::object::kernel::Shape;
use crate::object::library::function;
use crate::semantics::launch::launch;

export! {
    cuFuncSetBlockShape => set_block_shape;
    cuFuncSetSharedSize => |function, bytes| with_state(function, |state| state.shared = bytes);
    cuParamSetSize => set_size;
    cuParamSeti => |function, offset, value| set_bytes(function, offset, &value.to_ne_bytes());
    cuParamSetf => |function, offset, value| set_bytes(function, offset, &value.to_ne_bytes());
    cuParamSetv => set_vector;
    cuLaunch => |function| launch_grid_in(function, 1, 1, CUstream::NULL);
    cuLaunchGrid => |function, width, height| launch_grid_in(function, width, height, CUstream::NULL);
    cuLaunchGridAsync => launch_grid_in;
}

/// Maximum size of a kernel's parameters ("4 KB").
const LIMIT: usize = 4096;

/// Settings of a function. The documentation permits `cuLaunchKernel` to reset them; here they stay.
#[derive(Clone, Debug, Default)]
struct State {
    block: [u32; 3],
    shared: u32,
    arguments: Vec<u8>,
}

/// Settings by function handle; handles are never reused.
static STATES: Mutex<Option<HashMap<usize, State>>> = Mutex::new(None);

fn with_state<R>(handle: CUfunction, change: impl FnOnce(&mut State) -> R) -> Result<R, CUerror> {
    function(handle)?;
    let mut states = STATES.lock();
    Ok(change(states.get_or_insert_default().entry(handle.0).or_default()))
}

fn set_block_shape(function: CUfunction, x: c_int, y: c_int, z: c_int) -> CUresult {
    let size = |value: c_int| u32::try_from(value).map_err(|_| CUerror::INVALID_VALUE);
    let block = [size(x)?, size(y)?, size(z)?];
    if block.contains(&0) {
        return Err(CUerror::INVALID_VALUE);
    }
    with_state(function, |state| state.block = block)
}

fn set_size(function: CUfunction, bytes: c_uint) -> CUresult {
    let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= LIMIT).ok_or(CUerror::INVALID_VALUE)?;
    with_state(function, |state| state.arguments.resize(bytes, 0))
}

fn set_bytes(function: CUfunction, offset: c_int, bytes: &[u8]) -> CUresult {
    let start = usize::try_from(offset).map_err(|_| CUerror::INVALID_VALUE)?;
    let end = start.checked_add(bytes.len()).filter(|end| *end <= LIMIT).ok_or(CUerror::INVALID_VALUE)?;
    with_state(function, |state| {
        if state.arguments.len() < end {
            state.arguments.resize(end, 0);
        }
        state.arguments[start..end].copy_from_slice(bytes);
    })
}

fn set_vector(function: CUfunction, offset: c_int, from: *mut c_void, bytes: c_uint) -> CUresult {
    let bytes = crate::base::ffi::get_array(from.cast::<u8>().cast_const(), bytes as usize)?;
    set_bytes(function, offset, &bytes)
}

/// Launches a grid. A block shape that was never set is zero, and refused (docs/hardware.md, "old interfaces":
/// `INVALID_VALUE`).
fn launch_grid_in(function: CUfunction, width: c_int, height: c_int, stream: CUstream) -> CUresult {
    let stream = resolve(stream, Null::Legacy)?;
    let size = |value: c_int| u32::try_from(value).map_err(|_| CUerror::INVALID_VALUE);
    let grid = [size(width)?, size(height)?, 1];
    let State { block, shared, arguments } = with_state(function, |state| state.clone())?;
    let given = if arguments.is_empty() {
        Given::Nothing
    } else {
        Given::Packed(arguments.as_ptr(), arguments.len())
    };
    launch(&stream, function.0, Shape { grid, block, shared }, given, false)
}
