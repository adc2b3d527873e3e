//! Primary contexts (CUDA Driver API, "Primary Context Management").

use core::ffi::{c_int, c_uint};
use core::sync::atomic::Ordering;
use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use crate::context::{Context, check_flags};
use crate::device::{Device, Primary, device};
use crate::ffi::{export, put};

export! {
    cuDevicePrimaryCtxRetain => retain;
    cuDevicePrimaryCtxRelease => release;
    cuDevicePrimaryCtxRelease_v2 => release;
    cuDevicePrimaryCtxSetFlags => set_flags_v1;
    cuDevicePrimaryCtxSetFlags_v2 => set_flags;
    cuDevicePrimaryCtxGetState => get_state;
    cuDevicePrimaryCtxReset => reset;
    cuDevicePrimaryCtxReset_v2 => reset;
}

/// What `cuCtxGetApiVersion` says of contexts of this interface.
const API_VERSION: u32 = 3020;

/// "Retains the primary context on the device, creating it if it does not exist"; it is not made current.
fn retain(place: *mut CUcontext, ordinal: CUdevice) -> CUresult {
    let device = device(ordinal)?;
    if place.is_null() {
        return Err(CUerror::INVALID_VALUE);
    }
    put(place, CUcontext(retain_on(device)?.handle))
}

/// `cuDevicePrimaryCtxRetain`.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) fn retain_on(device: &'static Device) -> Result<Arc<Context>, CUerror> {
    let mut primary = device.primary.lock();
    let context = match &primary.context {
        Some(context) => Arc::clone(context),
        None => {
            let again = Some(primary.handle).filter(|handle| *handle != 0);
            let context = Context::create(device, primary.flags, API_VERSION, true, again)?;
            primary.handle = context.handle;
            primary.context = Some(Arc::clone(&context));
            context
        }
    };
    primary.retained += 1;
    Ok(context)
}

/// "The primary context will be automatically reset once the last reference to it is released"; a release
/// without a retain is `CUDA_ERROR_INVALID_CONTEXT`.
fn release(ordinal: CUdevice) -> CUresult {
    release_on(device(ordinal)?)
}

/// `cuDevicePrimaryCtxRelease`.
///
/// # Errors
/// `CUDA_ERROR_INVALID_CONTEXT`.
pub(crate) fn release_on(device: &'static Device) -> CUresult {
    let mut primary = device.primary.lock();
    if primary.retained == 0 {
        return Err(CUerror::INVALID_CONTEXT);
    }
    primary.retained -= 1;
    if primary.retained == 0 {
        end(&mut primary)
    } else {
        Ok(())
    }
}

/// "Destroy all allocations and reset all state on the primary context"; "resetting the primary context does
/// not release it".
fn reset(ordinal: CUdevice) -> CUresult {
    end(&mut device(ordinal)?.primary.lock())
}

fn end(primary: &mut Primary) -> CUresult {
    match primary.context.take() {
        Some(context) => context.destroy(),
        None => Ok(()),
    }
}

/// Before CUDA 11: "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE" while it is.
fn set_flags_v1(ordinal: CUdevice, flags: c_uint) -> CUresult {
    if device(ordinal)?.primary.lock().context.is_some() {
        return Err(CUerror::PRIMARY_CONTEXT_ACTIVE);
    }
    set_flags(ordinal, flags)
}

/// Since CUDA 11 also while the context is active.
fn set_flags(ordinal: CUdevice, flags: c_uint) -> CUresult {
    let mut primary = device(ordinal)?.primary.lock();
    primary.flags = check_flags(flags)?;
    if let Some(context) = &primary.context {
        context.flags.store(flags, Ordering::Relaxed);
    }
    Ok(())
}

fn get_state(ordinal: CUdevice, flags: *mut c_uint, active: *mut c_int) -> CUresult {
    let primary = device(ordinal)?.primary.lock();
    put(flags, primary.flags)?;
    put(active, c_int::from(primary.context.is_some()))
}
