//! Memory of graphs on a device.

use crate::export::prelude::*;
use crate::object::graph_memory::reserve_of;

export! {
    cuDeviceGraphMemTrim => |ordinal| device(ordinal).map(|device| _ = reserve_of(device).trim(0));
    cuDeviceGetGraphMemAttribute => get_attribute;
    cuDeviceSetGraphMemAttribute => set_attribute;
}

fn get_attribute(ordinal: CUdevice, attribute: CUgraphMem_attribute, value: *mut c_void) -> CUresult {
    let counts = reserve_of(device(ordinal)?).counts();
    let answer = match attribute {
        CUgraphMem_attribute::USED_MEM_CURRENT => counts.used,
        CUgraphMem_attribute::USED_MEM_HIGH => counts.used_high,
        CUgraphMem_attribute::RESERVED_MEM_CURRENT => counts.reserved,
        CUgraphMem_attribute::RESERVED_MEM_HIGH => counts.reserved_high,
        _ => return Err(CUerror::INVALID_VALUE),
    };
    put(value.cast::<u64>(), answer)
}

/// "High watermarks may only be reset to zero"; other values are invalid (docs/hardware.md, "graphs' memory").
fn set_attribute(ordinal: CUdevice, attribute: CUgraphMem_attribute, value: *mut c_void) -> CUresult {
    let reserve = reserve_of(device(ordinal)?);
    if get(value.cast::<u64>())? != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    match attribute {
        CUgraphMem_attribute::USED_MEM_HIGH => reserve.reset_marks(true, false),
        CUgraphMem_attribute::RESERVED_MEM_HIGH => reserve.reset_marks(false, true),
        _ => return Err(CUerror::INVALID_VALUE),
    }
    Ok(())
}
