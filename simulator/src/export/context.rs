//! Contexts (CUDA Driver API, "Context Management").

use core::sync::atomic::Ordering;
use std::sync::Arc;

use crate::export::prelude::*;
use crate::object::context::{CONTEXTS, Context, check_flags, context};
use crate::object::current::{pop as pop_stack, push as push_stack, replace, top};

export! {
    cuCtxCreate => create::<3010>;
    cuCtxCreate_v2 => create::<3020>;
    cuCtxCreate_v3 => create_with_affinity;
    cuCtxCreate_v4 => create_with_parameters;
    cuCtxDestroy | cuCtxDestroy_v2 | cuCtxDetach => destroy;
    cuCtxPushCurrent | cuCtxPushCurrent_v2 => |handle| push_stack(context(handle.0)?);
    cuCtxPopCurrent | cuCtxPopCurrent_v2 => pop;
    cuCtxSetCurrent => set_current;
    cuCtxGetCurrent => get_current;
    cuCtxGetDevice => |place| put(place, current()?.device.ordinal);
    cuCtxGetDevice_v2 => |place, handle| put(place, given(handle)?.device.ordinal);
    cuCtxGetFlags => |place| put(place, current()?.flags.load(Ordering::Relaxed));
    cuCtxSetFlags => set_flags;
    cuCtxGetId => |handle, place| put(place, given(handle)?.public_id());
    cuCtxSynchronize_v2 => |handle| crate::semantics::stream::synchronize_context(&*given(handle)?);
    cuCtxSetLimit => set_limit;
    cuCtxGetLimit => get_limit;
    cuCtxGetApiVersion => |handle, place| put(place, given(handle)?.api_version);
    cuCtxEnablePeerAccess => enable_peer_access;
    cuCtxDisablePeerAccess => disable_peer_access;
}

/// Creates a context, which becomes current to the calling thread.
fn create<const API_VERSION: u32>(place: *mut CUcontext, flags: c_uint, ordinal: CUdevice) -> CUresult {
    let device = device(ordinal)?;
    let flags = check_flags(flags)?;
    if !is_possible(place) {
        return Err(CUerror::INVALID_VALUE);
    }
    let context = Context::create(device, flags, API_VERSION, false, None)?;
    let handle = CUcontext(context.handle);
    push_stack(context)?;
    put(place, handle)
}

/// Creates a context with execution affinity, which needs MPS: `CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY`.
fn create_with_affinity(
    place: *mut CUcontext,
    parameters: *mut CUexecAffinityParam,
    count: c_int,
    flags: c_uint,
    ordinal: CUdevice,
) -> CUresult {
    if !parameters.is_null() || count != 0 {
        device(ordinal)?;
        return Err(CUerror::UNSUPPORTED_EXEC_AFFINITY);
    }
    create::<3020>(place, flags, ordinal)
}

/// Creates a context with parameters. "ctxCreateParams ... can be NULL"; sharing with graphics is not simulated.
fn create_with_parameters(
    place: *mut CUcontext,
    parameters: *mut CUctxCreateParams,
    flags: c_uint,
    ordinal: CUdevice,
) -> CUresult {
    if parameters.is_null() {
        return create::<3020>(place, flags, ordinal);
    }
    let parameters = get(parameters)?;
    if !parameters.cigParams.is_null() {
        device(ordinal)?;
        return Err(CUerror::NOT_SUPPORTED);
    }
    create_with_affinity(
        place,
        parameters.execAffinityParams,
        parameters.numExecAffinityParams,
        flags,
        ordinal,
    )
}

/// "If ctx is current to the calling thread then ctx will also be popped from the current thread's context
/// stack." A primary or a green context is not destroyed by this call (`CUDA_ERROR_INVALID_CONTEXT`;
/// docs/hardware.md, "objects that are not the caller's").
fn destroy(handle: CUcontext) -> CUresult {
    let context = context(handle.0)?;
    if context.is_primary || context.green.is_some() {
        return Err(CUerror::INVALID_CONTEXT);
    }
    crate::semantics::context::destroy(&context)?;
    if top().is_some_and(|top| top.handle == context.handle) {
        pop_stack();
    }
    Ok(())
}

/// Pops a context; an empty stack is `CUDA_ERROR_INVALID_CONTEXT`.
fn pop(place: *mut CUcontext) -> CUresult {
    process()?;
    let context = pop_stack().ok_or(CUerror::INVALID_CONTEXT)?;
    put_if_wanted(place, CUcontext(context.handle));
    Ok(())
}

/// "If ctx is NULL, unbinds the current CUDA context"; "if there is already a CUDA context bound to the
/// calling CPU thread, it is replaced".
fn set_current(handle: CUcontext) -> CUresult {
    process()?;
    replace(if handle.is_null() { None } else { Some(context(handle.0)?) })
}

/// "If no context is bound to the calling CPU thread then *pctx is set to NULL and CUDA_SUCCESS is returned."
fn get_current(place: *mut CUcontext) -> CUresult {
    process()?;
    put(place, CUcontext(top().map_or(0, |context| context.handle)))
}

/// The given context, or the current one if null (`cuCtxGetDevice_v2`, `cuCtxGetApiVersion` and others).
pub(crate) fn given(handle: CUcontext) -> Result<Arc<Context>, CUerror> {
    if handle.is_null() { current() } else { context(handle.0) }
}

fn set_flags(flags: c_uint) -> CUresult {
    current()?.flags.store(check_flags(flags)?, Ordering::Relaxed);
    Ok(())
}

/// Index of a limit. "CUDA_ERROR_UNSUPPORTED_LIMIT if the limit is not supported by the active device": synchronisation
/// depth is unsupported from compute capability 9.0 on.
fn limit_index(context: &Context, limit: CUlimit) -> Result<usize, CUerror> {
    match limit {
        CUlimit::DEV_RUNTIME_SYNC_DEPTH if context.device.config.capability().0 >= 9 => {
            Err(CUerror::UNSUPPORTED_LIMIT)
        }
        CUlimit::STACK_SIZE
        | CUlimit::PRINTF_FIFO_SIZE
        | CUlimit::MALLOC_HEAP_SIZE
        | CUlimit::DEV_RUNTIME_SYNC_DEPTH
        | CUlimit::DEV_RUNTIME_PENDING_LAUNCH_COUNT
        | CUlimit::MAX_L2_FETCH_GRANULARITY
        | CUlimit::PERSISTING_L2_CACHE_SIZE => Ok(limit.0 as usize),
        CUlimit::SHMEM_SIZE | CUlimit::CIG_ENABLED | CUlimit::CIG_SHMEM_FALLBACK_ENABLED => {
            Err(CUerror::UNSUPPORTED_LIMIT)
        }
        _ => Err(CUerror::INVALID_VALUE),
    }
}

/// Sets a limit to exactly the given value, although "the driver is free to modify the requested value". Its cost is in
/// `object/limits.rs`.
fn set_limit(limit: CUlimit, value: usize) -> CUresult {
    let context = current()?;
    crate::object::context::limits_of(&context).set(limit_index(&context, limit)?, value as u64)
}

fn get_limit(place: *mut usize, limit: CUlimit) -> CUresult {
    let context = current()?;
    put(place, crate::object::context::limits_of(&context).get(limit_index(&context, limit)?) as usize)
}

/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`, `CUDA_ERROR_INVALID_CONTEXT` for the current context itself or
/// none, `CUDA_ERROR_PEER_ACCESS_UNSUPPORTED` on one and the same device, flags must be 0.
fn enable_peer_access(peer: CUcontext, flags: c_uint) -> CUresult {
    let own = current()?;
    let peer = context(peer.0)?;
    if flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    if peer.handle == own.handle {
        return Err(CUerror::INVALID_CONTEXT);
    }
    if peer.device.gpu == own.device.gpu {
        return Err(CUerror::PEER_ACCESS_UNSUPPORTED);
    }
    let mut peers = own.peers.lock();
    if peers.contains(&peer.handle) {
        return Err(CUerror::PEER_ACCESS_ALREADY_ENABLED);
    }
    peers.push(peer.handle);
    Ok(())
}

fn disable_peer_access(peer: CUcontext) -> CUresult {
    let own = current()?;
    CONTEXTS.get(peer.0).ok_or(CUerror::INVALID_CONTEXT)?;
    let mut peers = own.peers.lock();
    let at = peers.iter().position(|known| *known == peer.0).ok_or(CUerror::PEER_ACCESS_NOT_ENABLED)?;
    peers.remove(at);
    Ok(())
}
