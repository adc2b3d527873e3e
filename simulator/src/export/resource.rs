//! Device resources: multiprocessors for green contexts (CUDA Driver API, "Green Contexts").
//!
//! A resource of multiprocessors is a range of their numbers. Its origin is stored in the structure's padding ("should not
//! be directly modified outside of the API that created it"), so that foreign structures are detected. Work queues are
//! accepted without effect.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::export::prelude::*;
use crate::object::device::Device;
use crate::object::resource::{DESCRIPTIONS, Description, Sms};

export! {
    cuDeviceGetDevResource => |ordinal, place, kind| answer(device(ordinal)?, None, place, kind);
    cuDevSmResourceSplitByCount => split_by_count;
    cuDevResourceGenerateDesc => describe;
}

/// Mark of structures filled in by this library.
const MAGIC: u32 = 0x5e5a_11ed;

/// Content of the padding: device, first multiprocessor, id of the split (0: a query), alignment.
#[derive(Clone, Copy, Debug)]
struct Origin {
    ordinal: CUdevice,
    first: u32,
    split: u32,
}

impl Origin {
    fn read(resource: &CUdevResource) -> Option<Origin> {
        let word = |index: usize| {
            let bytes = resource._internal_padding.get(index * 4..index * 4 + 4)?;
            bytes.try_into().ok().map(u32::from_ne_bytes)
        };
        (word(0)? == MAGIC).then_some(())?;
        Some(Origin { ordinal: word(1)? as CUdevice, first: word(2)?, split: word(3)? })
    }

    fn write(self, resource: &mut CUdevResource) {
        let words = [MAGIC, self.ordinal as u32, self.first, self.split];
        for (place, byte) in
            resource._internal_padding.iter_mut().zip(words.into_iter().flat_map(u32::to_ne_bytes))
        {
            *place = byte;
        }
    }
}

/// "The alignment is 8" on compute capability 9.0 and later, else 2; the smallest partition of 8.x has 4.
fn rules(device: &Device) -> (u32, u32) {
    match device.config.capability().0 {
        9.. => (8, 8),
        8 => (4, 2),
        7 => (2, 2),
        _ => (1, 1),
    }
}

fn empty() -> CUdevResource {
    CUdevResource {
        r#type: CUdevResourceType::INVALID,
        _internal_padding: [0; 92],
        value: CUdevResource_value { _oversize: [0; 40] },
        nextResource: core::ptr::null_mut(),
    }
}

fn of_sms(device: &Device, sms: Sms, split: u32, alignment: u32) -> CUdevResource {
    let mut resource = empty();
    if sms.count == 0 {
        return resource;
    }
    resource.r#type = CUdevResourceType::SM;
    resource.value.sm = CUdevSmResource {
        smCount: sms.count,
        minSmPartitionSize: rules(device).0,
        smCoscheduledAlignment: alignment,
        flags: 0,
        localityDomainId: 0,
    };
    let origin = Origin { ordinal: device.ordinal, first: sms.first, split };
    origin.write(&mut resource);
    resource
}

/// Returns the resources of a device, context or green context.
pub(crate) fn answer(
    device: &Device,
    sms: Option<Sms>,
    place: *mut CUdevResource,
    kind: CUdevResourceType,
) -> CUresult {
    let sms = sms.unwrap_or(Sms { first: 0, count: device.config.sms });
    let resource = match kind {
        CUdevResourceType::SM => of_sms(device, sms, 0, rules(device).1),
        CUdevResourceType::WORKQUEUE_CONFIG => {
            let mut resource = empty();
            resource.r#type = kind;
            resource.value.wqConfig = CUdevWorkqueueConfigResource {
                device: device.ordinal,
                // The default of CUDA_DEVICE_MAX_CONNECTIONS.
                wqConcurrencyLimit: 8,
                sharingScope: CUdevWorkqueueConfigScope::DEVICE_CTX,
            };
            resource
        }
        CUdevResourceType::WORKQUEUE => CUdevResource { r#type: kind, ..empty() },
        _ => return Err(CUerror::INVALID_RESOURCE_TYPE),
    };
    put(place, resource)
}

/// The multiprocessors of a resource to split. "The output results cannot be split again without first creating a
/// descriptor and a green context" (`CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION`; docs/hardware.md, "green contexts").
fn input(resource: *const CUdevResource) -> Result<(&'static Device, Sms, Origin), CUerror> {
    let resource = get(resource)?;
    if resource.r#type != CUdevResourceType::SM {
        return Err(CUerror::INVALID_RESOURCE_TYPE);
    }
    let origin = Origin::read(&resource).ok_or(CUerror::INVALID_RESOURCE_CONFIGURATION)?;
    // SAFETY: the type says that this member counts; all bit patterns are valid numbers.
    let count = unsafe { resource.value.sm }.smCount;
    let device = device(origin.ordinal)?;
    let is_within = origin.first.checked_add(count).is_some_and(|end| end <= device.config.sms);
    if count == 0 || !is_within {
        return Err(CUerror::INVALID_RESOURCE_CONFIGURATION);
    }
    let sms = Sms { first: origin.first, count };
    Ok((device, sms, origin))
}

static SPLITS: AtomicU32 = AtomicU32::new(1);

/// `CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING` and `_MAX_POTENTIAL_CLUSTER_SIZE`.
const IGNORE_COSCHEDULING: c_uint = 1;
const LARGEST_CLUSTERS: c_uint = 2;

/// Splits into groups of `minCount` multiprocessors, rounded up to the device's unit. More than there are:
/// `CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION` (seen on an H200, 580.159.04).
fn split_by_count(
    result: *mut CUdevResource,
    groups: *mut c_uint,
    from: *const CUdevResource,
    remainder: *mut CUdevResource,
    flags: c_uint,
    least: c_uint,
) -> CUresult {
    process()?;
    let wanted = get(groups.cast_const())?;
    let (device, sms, origin) = input(from)?;
    if flags & !(IGNORE_COSCHEDULING | LARGEST_CLUSTERS) != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    if origin.split != 0 || least > sms.count {
        return Err(CUerror::INVALID_RESOURCE_CONFIGURATION);
    }
    // docs/hardware.md, "green contexts": without co-scheduling, pairs.
    let (smallest, alignment) = if flags & IGNORE_COSCHEDULING != 0 {
        (2.min(rules(device).0), 2.min(rules(device).1))
    } else {
        rules(device)
    };
    let size = least.next_multiple_of(alignment).max(smallest);
    let possible = sms.count / size;
    if result.is_null() {
        return put(groups, possible);
    }
    if possible == 0 {
        return Err(CUerror::INVALID_RESOURCE_CONFIGURATION);
    }
    let made = possible.min(wanted);
    let split = SPLITS.fetch_add(1, Ordering::Relaxed);
    for index in 0..made {
        let group = Sms { first: sms.first + index * size, count: size };
        put_at(result, index as usize, of_sms(device, group, split, alignment));
    }
    let rest = Sms { first: sms.first + made * size, count: sms.count - made * size };
    put_if_wanted(remainder, of_sms(device, rest, split, alignment));
    put(groups, made)
}

/// Makes a description of resources of one device; multiprocessors must be of one split.
fn describe(place: *mut CUdevResourceDesc, resources: *mut CUdevResource, count: c_uint) -> CUresult {
    process()?;
    let resources = get_array(resources.cast_const(), count as usize)?;
    if place.is_null() || resources.is_empty() {
        return Err(CUerror::INVALID_VALUE);
    }
    let mut description: Option<Description> = None;
    let mut splits = Vec::new();
    for resource in &resources {
        let (ordinal, sms) = match resource.r#type {
            CUdevResourceType::SM => {
                let (device, sms, origin) = input(resource)?;
                splits.push(origin.split);
                (device.ordinal, Some(sms))
            }
            CUdevResourceType::WORKQUEUE_CONFIG => {
                // SAFETY: the type says that this member counts; all bit patterns are valid numbers.
                let config = unsafe { resource.value.wqConfig };
                (device(config.device)?.ordinal, None)
            }
            CUdevResourceType::WORKQUEUE => continue,
            _ => return Err(CUerror::INVALID_RESOURCE_TYPE),
        };
        let whole = description.get_or_insert(Description { ordinal, sms: None });
        if whole.ordinal != ordinal {
            return Err(CUerror::INVALID_RESOURCE_CONFIGURATION);
        }
        whole.sms = match (whole.sms, sms) {
            (Some(one), Some(more)) => {
                Some(Sms { first: one.first.min(more.first), count: one.count + more.count })
            }
            (one, more) => one.or(more),
        };
    }
    let is_one_split = splits.iter().all(|split| *split != 0 && Some(split) == splits.first());
    if splits.len() > 1 && !is_one_split {
        return Err(CUerror::INVALID_RESOURCE_CONFIGURATION);
    }
    let description = description.ok_or(CUerror::INVALID_RESOURCE_CONFIGURATION)?;
    put(place, CUdevResourceDesc(DESCRIPTIONS.insert(description)))
}
