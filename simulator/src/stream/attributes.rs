//! Stream attributes (`cuStreamGetAttribute`, `cuStreamSetAttribute`, `cuStreamCopyAttributes`): kept, and
//! without an effect on the simulated GPU.

use vcuda_driver_api::prelude::*;

use crate::ffi::{export, get, put};
use crate::stream::queue::Stream;
use crate::stream::{Null, resolve};

export! {
    cuStreamCopyAttributes => copy::<false>;
    cuStreamCopyAttributes_ptsz => copy::<true>;
    cuStreamGetAttribute => get_attribute::<false>;
    cuStreamGetAttribute_ptsz => get_attribute::<true>;
    cuStreamSetAttribute => set_attribute::<false>;
    cuStreamSetAttribute_ptsz => set_attribute::<true>;
}

/// The value of one attribute, as the API's union holds it.
type Value = [u8; size_of::<CUlaunchAttributeValue>()];

/// What was set, by attribute.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attributes(Vec<(CUlaunchAttributeID, Value)>);

/// The attributes that a stream has.
const KNOWN: [CUlaunchAttributeID; 5] = [
    CUlaunchAttributeID::ACCESS_POLICY_WINDOW,
    CUlaunchAttributeID::SYNCHRONIZATION_POLICY,
    CUlaunchAttributeID::PRIORITY,
    CUlaunchAttributeID::MEM_SYNC_DOMAIN_MAP,
    CUlaunchAttributeID::MEM_SYNC_DOMAIN,
];

impl Attributes {
    fn value(&self, id: CUlaunchAttributeID, stream: &Stream) -> Value {
        if let Some((_, value)) = self.0.iter().find(|(known, _)| *known == id) {
            return *value;
        }
        let default = match id {
            CUlaunchAttributeID::PRIORITY => stream.priority.to_ne_bytes(),
            CUlaunchAttributeID::SYNCHRONIZATION_POLICY => CUsynchronizationPolicy::AUTO.0.to_ne_bytes(),
            _ => [0; 4],
        };
        let mut value = [0; size_of::<Value>()];
        value
            .iter_mut()
            .zip(default)
            .for_each(|(byte, default)| *byte = default);
        value
    }

    fn set(&mut self, id: CUlaunchAttributeID, value: Value) {
        self.0.retain(|(known, _)| *known != id);
        self.0.push((id, value));
    }
}

fn check(id: CUlaunchAttributeID) -> CUresult {
    if KNOWN.contains(&id) {
        Ok(())
    } else {
        Err(CUerror::INVALID_VALUE)
    }
}

/// Both streams must be of one context.
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
    let value = stream.attributes.lock().value(id, &stream);
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
