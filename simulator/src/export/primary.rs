//! Primary contexts (CUDA Driver API, "Primary Context Management").

use core::sync::atomic::Ordering;

use crate::export::prelude::*;
use crate::object::context::check_flags;
use crate::object::primary::primary;
use crate::semantics::context::{end_primary, release_on, retain_on};

export! {
    cuDevicePrimaryCtxRetain => retain;
    // "The primary context will be automatically reset once the last reference to it is released"; a release
    // without a retain is `CUDA_ERROR_INVALID_CONTEXT`.
    cuDevicePrimaryCtxRelease | cuDevicePrimaryCtxRelease_v2 => |ordinal| release_on(device(ordinal)?);
    cuDevicePrimaryCtxSetFlags => set_flags_v1;
    cuDevicePrimaryCtxSetFlags_v2 => set_flags;
    cuDevicePrimaryCtxGetState => get_state;
    // "Destroy all allocations and reset all state on the primary context"; "resetting the primary context does
    // not release it".
    cuDevicePrimaryCtxReset | cuDevicePrimaryCtxReset_v2 => |ordinal|
        end_primary(&mut primary(device(ordinal)?)?.lock());
}

/// "Retains the primary context on the device, creating it if it does not exist"; it is not made current.
fn retain(place: *mut CUcontext, ordinal: CUdevice) -> CUresult {
    let device = device(ordinal)?;
    if !is_possible(place) {
        return Err(CUerror::INVALID_VALUE);
    }
    put(place, CUcontext(retain_on(device)?.handle))
}

/// Sets flags before CUDA 11: "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE" while the context is active.
fn set_flags_v1(ordinal: CUdevice, flags: c_uint) -> CUresult {
    if primary(device(ordinal)?)?.lock().context.is_some() {
        return Err(CUerror::PRIMARY_CONTEXT_ACTIVE);
    }
    set_flags(ordinal, flags)
}

/// Sets flags since CUDA 11, also while the context is active.
fn set_flags(ordinal: CUdevice, flags: c_uint) -> CUresult {
    let mut primary = primary(device(ordinal)?)?.lock();
    primary.flags = check_flags(flags)?;
    if let Some(context) = &primary.context {
        context.flags.store(flags, Ordering::Relaxed);
    }
    Ok(())
}

fn get_state(ordinal: CUdevice, flags: *mut c_uint, active: *mut c_int) -> CUresult {
    let primary = primary(device(ordinal)?)?.lock();
    put(flags, primary.flags)?;
    put(active, c_int::from(primary.context.is_some()))
}
