//! Devices (CUDA Driver API, "Initialization", "Version Management", "Device Management" and "Peer Context Memory Access").
//! `object/attributes.rs` has the values of `cuDeviceGetAttribute`.

use crate::export::prelude::*;
use crate::object::attributes;
use crate::object::device::Device;
use crate::object::process::initialise;

export! {
    cuInit => init;
    // Reports the driver's version, also before `cuInit`.
    cuDriverGetVersion => |version| put(version, crate::object::process::cuda_version());
    cuDeviceGet => |place, ordinal| put(place, device(ordinal)?.ordinal);
    cuDeviceGetCount => |count| put(count, process()?.devices.len() as c_int);
    cuDeviceGetName => |name, room, ordinal| put_text(name, room, &device(ordinal)?.config.name);
    cuDeviceGetUuid | cuDeviceGetUuid_v2 => get_uuid;
    cuDeviceTotalMem_v2 => |bytes, ordinal| put(bytes, device(ordinal)?.config.memory_bytes as usize);
    // Total memory in the 32-bit form of CUDA before 3.2, at most 4 GiB - 1 (docs/hardware.md, "old interfaces": clamped).
    cuDeviceTotalMem => |bytes, ordinal|
        put(bytes, c_uint::try_from(device(ordinal)?.config.memory_bytes).unwrap_or(c_uint::MAX));
    cuDeviceGetAttribute => |place, attribute, ordinal|
        put(place, attributes::value(device(ordinal)?, attribute).ok_or(CUerror::INVALID_VALUE)?);
    cuDeviceComputeCapability => compute_capability;
    // `domain:bus:device.function`, hexadecimal; the string has at most 13 characters with its terminator.
    cuDeviceGetPCIBusId => |place, room, ordinal| put_text(place, room, &device(ordinal)?.config.pci_bus_id);
    cuDeviceGetByPCIBusId => get_by_pci_bus_id;
    // Peer access between two different GPUs: always possible; a GPU is not its own peer.
    cuDeviceCanAccessPeer => |place, ordinal, peer|
        put(place, c_int::from(device(ordinal)?.gpu != device(peer)?.gpu));
    cuDeviceGetP2PAttribute => get_p2p_attribute;
    // "If profiling is already enabled, then cuProfilerStart() has no effect"; there is no profiler.
    cuProfilerStart | cuProfilerStop => || current().map(drop);
}

/// "Currently, the Flags parameter must be 0" (`cuInit`). With `driver.looks_itself_up` it calls the `cuInit` that `dlsym`
/// finds in this process, as WSL2's library does.
fn init(flags: c_uint) -> CUresult {
    if flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    match crate::export::lookup::own_init()? {
        Some(init) => init(flags),
        None => initialise(crate::export::faults::arm),
    }
}

fn get_uuid(place: *mut CUuuid, ordinal: CUdevice) -> CUresult {
    let text = &device(ordinal)?.config.uuid;
    let mut bytes = [0; 16];
    let digits: Vec<u32> =
        text.trim_start_matches("GPU-").chars().filter_map(|digit| digit.to_digit(16)).collect();
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (pair[0] << 4 | pair[1]) as c_char;
    }
    put(place, CUuuid { bytes })
}

fn compute_capability(major: *mut c_int, minor: *mut c_int, ordinal: CUdevice) -> CUresult {
    let (device_major, device_minor) = device(ordinal)?.config.capability();
    put(major, device_major as c_int)?;
    put(minor, device_minor as c_int)
}

/// Finds a device by PCI address; `domain:bus:device` and `bus:device.function` are accepted too, as documented.
fn get_by_pci_bus_id(place: *mut CUdevice, bus_id: *const c_char) -> CUresult {
    let wanted = text(bus_id)?.to_str().ok().and_then(attributes::pci_address);
    let wanted = wanted.ok_or(CUerror::INVALID_VALUE)?;
    let is_it = |device: &&Device| attributes::pci_address(&device.config.pci_bus_id) == Some(wanted);
    put(place, process()?.devices.iter().find(is_it).ok_or(CUerror::INVALID_DEVICE)?.ordinal)
}

/// "Returns CUDA_ERROR_INVALID_DEVICE if srcDevice or dstDevice are not valid or if they represent the same
/// device."
fn get_p2p_attribute(
    place: *mut c_int,
    attribute: CUdevice_P2PAttribute,
    source: CUdevice,
    destination: CUdevice,
) -> CUresult {
    if device(source)?.gpu == device(destination)?.gpu {
        return Err(CUerror::INVALID_DEVICE);
    }
    let value = match attribute {
        CUdevice_P2PAttribute::ACCESS_SUPPORTED | CUdevice_P2PAttribute::CUDA_ARRAY_ACCESS_SUPPORTED => 1,
        CUdevice_P2PAttribute::PERFORMANCE_RANK
        | CUdevice_P2PAttribute::NATIVE_ATOMIC_SUPPORTED
        | CUdevice_P2PAttribute::ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED => 0,
        _ => return Err(CUerror::INVALID_VALUE),
    };
    put(place, value)
}
