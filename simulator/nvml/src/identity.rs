//! Identity of a device: name, UUID, serial number, board, PCI address, architecture.

use crate::answer::{field, put, put_text, version};
use crate::state::{Device, constant, device};
use vcuda_driver_api::prelude::*;

exports! {
    nvmlDeviceGetName => |handle, target, length| put_text(target, length, &device(handle)?.config.name);
    nvmlDeviceGetBrand => |handle, target| constant(handle, target, nvmlBrandType_t::NVIDIA);
    nvmlDeviceGetIndex => |handle, target| put(target, device(handle)?.number());
    // The device's own, whichever other devices are present.
    nvmlDeviceGetMinorNumber => minor_number;
    nvmlDeviceGetUUID => |handle, target, length| put_text(target, length, &device(handle)?.config.uuid);
    nvmlDeviceGetSerial => |handle, target, length| put_text(target, length, &serial_number(device(handle)?));
    // Constants (docs/hardware.md, "constants of NVML"): simulated boards have no firmware.
    nvmlDeviceGetVbiosVersion => |handle, target, length|
        device(handle).and_then(|_| put_text(target, length, "00.00.00.00.00"));
    nvmlDeviceGetBoardPartNumber => |handle, target, length|
        device(handle).and_then(|_| put_text(target, length, "000-00000-0000-000"));
    // Derived from the PCI bus, as a board has one GPU.
    nvmlDeviceGetBoardId => |handle, target| put(target, board_id(device(handle)?));
    nvmlDeviceGetMultiGpuBoard => |handle, target| constant(handle, target, 0);
    nvmlDeviceOnSameBoard => |one, other, target|
        put(target, c_int::from(device(one)?.index == device(other)?.index));
    nvmlDeviceGetPciInfo | nvmlDeviceGetPciInfo_v2 => pci_info_legacy;
    nvmlDeviceGetPciInfo_v3 => pci_info;
    nvmlDeviceGetPciInfoExt => pci_info_extended;
    nvmlDeviceGetBusType => |handle, target| constant(handle, target, NVML_BUS_TYPE_PCIE);
    nvmlDeviceGetCudaComputeCapability => compute_capability;
    nvmlDeviceGetArchitecture => architecture;
    nvmlDeviceGetNumGpuCores => |handle, target| put(target, core_count(device(handle)?));
}

/// PCI device 1 (docs/hardware.md, "constants of NVML") of the vendor NVIDIA, 10de.
const PCI_DEVICE: c_uint = 0x0001_10de;
/// PCI class "display controller", subclass "3D controller".
const PCI_CLASS: (c_uint, c_uint) = (0x03, 0x02);

/// Domain, bus, device.
pub(crate) type PciAddress = (u32, u32, u32);

/// The 16 bytes that a UUID's text writes in hexadecimal.
pub(crate) fn uuid_bytes(uuid: &str) -> Option<[u8; 16]> {
    let digits: String = uuid.strip_prefix("GPU-")?.chars().filter(|letter| *letter != '-').collect();
    u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32).map(u128::to_be_bytes)
}

/// 13 digits derived from the UUID.
pub(crate) fn serial_number(device: Device) -> String {
    let bytes = device.config.uuid.bytes();
    let hash = bytes.fold(0_u64, |hash, byte| hash.wrapping_mul(131).wrapping_add(u64::from(byte)));
    format!("{:013}", hash % 10_000_000_000_000)
}

fn board_id(device: Device) -> c_uint {
    let (domain, bus, _) = address(device);
    domain << 16 | bus << 8
}

pub(crate) fn minor_number(handle: nvmlDevice_t, target: *mut c_uint) -> nvmlReturn_t {
    put(target, c_uint::try_from(device(handle)?.index).unwrap_or(c_uint::MAX))
}

/// Reads `domain:bus:device.function`; domain and function may be left out.
pub(crate) fn pci_address(text: &str) -> Option<PciAddress> {
    let number = |digits: &str| u32::from_str_radix(digits, 16).ok();
    let without_function = text.split_once('.').map_or(text, |(address, _)| address);
    let parts: Vec<&str> = without_function.split(':').collect();
    match parts.as_slice() {
        [domain, bus, device] => Some((number(domain)?, number(bus)?, number(device)?)),
        [bus, device] => Some((0, number(bus)?, number(device)?)),
        _ => None,
    }
}

fn address(device: Device) -> PciAddress {
    pci_address(&device.config.pci_bus_id).unwrap_or_default()
}

/// Versions 1 and 2, whose structure ends before `busId`: nothing beyond is written.
fn pci_info_legacy(handle: nvmlDevice_t, target: *mut nvmlPciInfo_t) -> nvmlReturn_t {
    let (domain, bus, slot) = address(device(handle)?);
    if target.is_null() {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    let legacy = [domain, bus, slot, PCI_DEVICE, PCI_DEVICE];
    put(target.cast::<[c_char; 16]>(), field(&format!("{domain:04X}:{bus:02X}:{slot:02X}.0")))?;
    // SAFETY: the five numbers follow the 16 characters in every version of the structure.
    let numbers = unsafe { target.byte_add(16) };
    put(numbers.cast(), legacy)
}

fn pci_info(handle: nvmlDevice_t, target: *mut nvmlPciInfo_t) -> nvmlReturn_t {
    let (domain, bus, slot) = address(device(handle)?);
    let info = nvmlPciInfo_t {
        busIdLegacy: field(&format!("{domain:04X}:{bus:02X}:{slot:02X}.0")),
        domain,
        bus,
        device: slot,
        pciDeviceId: PCI_DEVICE,
        pciSubSystemId: PCI_DEVICE,
        busId: field(&format!("{domain:08X}:{bus:02X}:{slot:02X}.0")),
    };
    put(target, info)
}

fn pci_info_extended(handle: nvmlDevice_t, target: *mut nvmlPciInfoExt_t) -> nvmlReturn_t {
    let (domain, bus, slot) = address(device(handle)?);
    version(target, nvmlPciInfoExt_v1)?;
    let info = nvmlPciInfoExt_t {
        version: nvmlPciInfoExt_v1,
        domain,
        bus,
        device: slot,
        pciDeviceId: PCI_DEVICE,
        pciSubSystemId: PCI_DEVICE,
        baseClass: PCI_CLASS.0,
        subClass: PCI_CLASS.1,
        busId: field(&format!("{domain:08X}:{bus:02X}:{slot:02X}.0")),
    };
    put(target, info)
}

fn compute_capability(handle: nvmlDevice_t, major: *mut c_int, minor: *mut c_int) -> nvmlReturn_t {
    let capability = device(handle)?.config.capability();
    if minor.is_null() {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    put(major, c_int::try_from(capability.0).unwrap_or(0))?;
    put(minor, c_int::try_from(capability.1).unwrap_or(0))
}

/// CUDA C++ Programming Guide, "Compute Capabilities".
fn architecture(handle: nvmlDevice_t, target: *mut c_uint) -> nvmlReturn_t {
    let architecture = match device(handle)?.config.capability() {
        (3, _) => architecture::KEPLER,
        (5, _) => architecture::MAXWELL,
        (6, _) => architecture::PASCAL,
        (7, 5) => architecture::TURING,
        (7, _) => architecture::VOLTA,
        (8, 9) => architecture::ADA,
        (8, _) => architecture::AMPERE,
        (9, _) => architecture::HOPPER,
        (10 | 12, _) => architecture::BLACKWELL,
        _ => architecture::UNKNOWN,
    };
    put(target, architecture)
}

/// Multiprocessors times their FP32 lanes (CUDA C++ Programming Guide, "Arithmetic Instructions").
fn core_count(device: Device) -> c_uint {
    let lanes = match device.config.capability() {
        (3, _) => 192,
        (6 | 8, 0) | (7, _) => 64,
        _ => 128,
    };
    device.config.sms * lanes
}
