//! Stream attributes (`cuStreamGetAttribute`, `cuStreamSetAttribute`, `cuStreamCopyAttributes`), stored without an effect
//! on the simulated GPU.

use vcuda_driver_api::prelude::*;

use crate::base::ffi::{get, put};
use crate::object::stream::attributes::Value;
use crate::semantics::stream::{Null, resolve};

export! {
    cuStreamCopyAttributes => copy::<false>;
    cuStreamCopyAttributes_ptsz => copy::<true>;
    cuStreamGetAttribute => get_attribute::<false>;
    cuStreamGetAttribute_ptsz => get_attribute::<true>;
    cuStreamSetAttribute => set_attribute::<false>;
    cuStreamSetAttribute_ptsz => set_attribute::<true>;
}

/// The attributes that a stream has.
const KNOWN: [CUlaunchAttributeID; 5] = [
    CUlaunchAttributeID::ACCESS_POLICY_WINDOW,
    CUlaunchAttributeID::SYNCHRONIZATION_POLICY,
    CUlaunchAttributeID::PRIORITY,
    CUlaunchAttributeID::MEM_SYNC_DOMAIN_MAP,
    CUlaunchAttributeID::MEM_SYNC_DOMAIN,
];

fn check(id: CUlaunchAttributeID) -> CUresult {
    if KNOWN.contains(&id) { Ok(()) } else { Err(CUerror::INVALID_VALUE) }
}

/// Copies attributes; both streams must belong to one context.
fn copy<const PER_THREAD: bool>(to: CUstream, from: CUstream) -> CUresult {
    let to = resolve(to, Null::of(PER_THREAD))?;
    let from = resolve(from, Null::of(PER_THREAD))?;
    if to.context_unique != from.context_unique {
        return Err(CUerror::INVALID_VALUE);
    }
    let attributes = from.attributes.lock().clone();
    *to.attributes.lock() = attributes;
    Ok(())
}

fn get_attribute<const PER_THREAD: bool>(
    stream: CUstream,
    id: CUlaunchAttributeID,
    place: *mut CUlaunchAttributeValue,
) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    check(id)?;
    let value = stream.attributes.lock().value(id, stream.priority);
    put(place.cast::<Value>(), value)
}

fn set_attribute<const PER_THREAD: bool>(
    stream: CUstream,
    id: CUlaunchAttributeID,
    value: *const CUlaunchAttributeValue,
) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    check(id)?;
    let value = get(value.cast::<Value>())?;
    stream.attributes.lock().set(id, value);
    Ok(())
}
