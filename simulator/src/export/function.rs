//! Attributes of functions and kernels (CUDA Driver API, "Execution Control").

use core::sync::atomic::Ordering;

use crate::base::image::KernelInfo;
use crate::export::prelude::*;
use crate::object::attributes::THREADS_PER_BLOCK;
use crate::object::library::function;
use crate::object::module::{Function, Settings};

export! {
    cuFuncGetAttribute => get_attribute;
    cuFuncSetAttribute => set_attribute;
    cuFuncSetCacheConfig => set_cache_config;
    // The string lives as long as the function.
    cuFuncGetName => |place, handle| put(place, function(handle)?.name.as_ptr());
    cuFuncLoad => |handle| function(handle).map(drop);
}

/// Registers per thread of code without a count, which only a compiler has (docs/hardware.md, "resources of a kernel").
pub(crate) const UNCOUNTED_REGISTERS: u32 = 32;

/// An attribute's value. Error: `CUDA_ERROR_INVALID_VALUE` for an unknown attribute.
pub(crate) fn value(
    attribute: CUfunction_attribute,
    info: &KernelInfo,
    architecture: u32,
    settings: &Settings,
) -> Result<c_int, CUerror> {
    use CUfunction_attribute as A;
    let or = |value: u32, other: u32| if value == 0 { other } else { value } as c_int;
    let set = |index: usize| settings.cluster[index].load(Ordering::Relaxed);
    Ok(match attribute {
        A::MAX_THREADS_PER_BLOCK => or(info.max_threads, THREADS_PER_BLOCK as u32),
        A::SHARED_SIZE_BYTES => info.shared_bytes as c_int,
        A::CONST_SIZE_BYTES | A::CACHE_MODE_CA | A::CLUSTER_SIZE_MUST_BE_SET => 0,
        A::LOCAL_SIZE_BYTES => info.local_bytes as c_int,
        A::NUM_REGS => or(info.registers, UNCOUNTED_REGISTERS),
        A::PTX_VERSION | A::BINARY_VERSION => architecture as c_int,
        A::MAX_DYNAMIC_SHARED_SIZE_BYTES => settings.max_dynamic_shared.load(Ordering::Relaxed),
        A::PREFERRED_SHARED_MEMORY_CARVEOUT => settings.carveout.load(Ordering::Relaxed),
        A::REQUIRED_CLUSTER_WIDTH => set(0),
        A::REQUIRED_CLUSTER_HEIGHT => set(1),
        A::REQUIRED_CLUSTER_DEPTH => set(2),
        A::NON_PORTABLE_CLUSTER_SIZE_ALLOWED => set(3),
        A::CLUSTER_SCHEDULING_POLICY_PREFERENCE => set(4),
        _ => return Err(CUerror::INVALID_VALUE),
    })
}

/// Sets an attribute; most are read-only.
pub(crate) fn set_value(
    attribute: CUfunction_attribute,
    value: c_int,
    shared_bytes: u32,
    settings: &Settings,
) -> CUresult {
    use CUfunction_attribute as A;
    let place = match attribute {
        // "The sum of this value and the function attribute SHARED_SIZE_BYTES cannot exceed the device
        // attribute MAX_SHARED_MEMORY_PER_BLOCK_OPTIN."
        A::MAX_DYNAMIC_SHARED_SIZE_BYTES if (0..=Function::opt_in_limit(shared_bytes)).contains(&value) => {
            &settings.max_dynamic_shared
        }
        A::PREFERRED_SHARED_MEMORY_CARVEOUT if (-1..=100).contains(&value) => &settings.carveout,
        A::REQUIRED_CLUSTER_WIDTH if value >= 0 => &settings.cluster[0],
        A::REQUIRED_CLUSTER_HEIGHT if value >= 0 => &settings.cluster[1],
        A::REQUIRED_CLUSTER_DEPTH if value >= 0 => &settings.cluster[2],
        A::NON_PORTABLE_CLUSTER_SIZE_ALLOWED if (0..=1).contains(&value) => &settings.cluster[3],
        A::CLUSTER_SCHEDULING_POLICY_PREFERENCE if (0..=2).contains(&value) => &settings.cluster[4],
        _ => return Err(CUerror::INVALID_VALUE),
    };
    place.store(value, Ordering::Relaxed);
    Ok(())
}

fn get_attribute(place: *mut c_int, attribute: CUfunction_attribute, handle: CUfunction) -> CUresult {
    let function = function(handle)?;
    put(place, value(attribute, &function.info, function.architecture, &function.settings)?)
}

fn set_attribute(handle: CUfunction, attribute: CUfunction_attribute, value: c_int) -> CUresult {
    let function = function(handle)?;
    set_value(attribute, value, function.info.shared_bytes, &function.settings)
}

fn set_cache_config(handle: CUfunction, config: CUfunc_cache) -> CUresult {
    function(handle)?;
    if config.0 > CUfunc_cache::EQUAL.0 { Err(CUerror::INVALID_VALUE) } else { Ok(()) }
}
