//! Identity of a device: name, UUID, serial number, board, PCI address, architecture.

use crate::answer::{field, put, put_text, version};
use crate::state::{Device, device};
use std::ffi::{c_char, c_int, c_uint};
use vcuda_driver_api::nvml::{
    NVML_BUS_TYPE_PCIE, architecture, nvmlBrandType_t, nvmlDevice_t, nvmlPciInfo_t, nvmlPciInfoExt_t,
    nvmlPciInfoExt_v1,
};
use vcuda_driver_api::{NvmlError, nvmlReturn_t};

/// PCI device 1 (docs/hardware.md, "constants of NVML") of the vendor NVIDIA, 10de.
const PCI_DEVICE: c_uint = 0x0001_10de;
/// PCI class "display controller", subclass "3D controller".
const PCI_CLASS: (c_uint, c_uint) = (0x03, 0x02);

/// Domain, bus, device.
pub(crate) type PciAddress = (u32, u32, u32);

pub(crate) fn name(handle: nvmlDevice_t, target: *mut c_char, length: c_uint) -> nvmlReturn_t {
    put_text(target, length, &device(handle)?.config.name)
}

pub(crate) fn brand(handle: nvmlDevice_t, target: *mut nvmlBrandType_t) -> nvmlReturn_t {
    device(handle)?;
    put(target, nvmlBrandType_t::NVIDIA)
}

pub(crate) fn index(handle: nvmlDevice_t, target: *mut c_uint) -> nvmlReturn_t {
    put(target, device(handle)?.number())
}

/// The minor number is the device's own, whichever other devices are present.
pub(crate) fn minor_number(handle: nvmlDevice_t, target: *mut c_uint) -> nvmlReturn_t {
    let device = device(handle)?;
    put(target, c_uint::try_from(device.index).unwrap_or(c_uint::MAX))
}

pub(crate) fn uuid(handle: nvmlDevice_t, target: *mut c_char, length: c_uint) -> nvmlReturn_t {
    put_text(target, length, &device(handle)?.config.uuid)
}

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

pub(crate) fn serial(handle: nvmlDevice_t, target: *mut c_char, length: c_uint) -> nvmlReturn_t {
    put_text(target, length, &serial_number(device(handle)?))
}

/// Constant (docs/hardware.md, "constants of NVML"): simulated boards have no firmware.
pub(crate) fn vbios_version(handle: nvmlDevice_t, target: *mut c_char, length: c_uint) -> nvmlReturn_t {
    device(handle)?;
    put_text(target, length, "00.00.00.00.00")
}

/// Constant (docs/hardware.md, "constants of NVML").
pub(crate) fn board_part_number(handle: nvmlDevice_t, target: *mut c_char, length: c_uint) -> nvmlReturn_t {
    device(handle)?;
    put_text(target, length, "000-00000-0000-000")
}

/// Board id derived from the PCI bus, as a board has one GPU.
pub(crate) fn board_id(handle: nvmlDevice_t, target: *mut c_uint) -> nvmlReturn_t {
    let (domain, bus, _) = address(device(handle)?);
    put(target, domain << 16 | bus << 8)
}

pub(crate) fn multi_gpu_board(handle: nvmlDevice_t, target: *mut c_uint) -> nvmlReturn_t {
    device(handle)?;
    put(target, 0)
}

pub(crate) fn on_same_board(one: nvmlDevice_t, other: nvmlDevice_t, target: *mut c_int) -> nvmlReturn_t {
    put(target, c_int::from(device(one)?.index == device(other)?.index))
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
pub(crate) fn pci_info_legacy(handle: nvmlDevice_t, target: *mut nvmlPciInfo_t) -> nvmlReturn_t {
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

pub(crate) fn pci_info(handle: nvmlDevice_t, target: *mut nvmlPciInfo_t) -> nvmlReturn_t {
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

pub(crate) fn pci_info_extended(handle: nvmlDevice_t, target: *mut nvmlPciInfoExt_t) -> nvmlReturn_t {
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

pub(crate) fn bus_type(handle: nvmlDevice_t, target: *mut c_uint) -> nvmlReturn_t {
    device(handle)?;
    put(target, NVML_BUS_TYPE_PCIE)
}

pub(crate) fn compute_capability(handle: nvmlDevice_t, major: *mut c_int, minor: *mut c_int) -> nvmlReturn_t {
    let capability = device(handle)?.config.capability();
    if minor.is_null() {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    put(major, c_int::try_from(capability.0).unwrap_or(0))?;
    put(minor, c_int::try_from(capability.1).unwrap_or(0))
}

/// CUDA C++ Programming Guide, "Compute Capabilities".
pub(crate) fn architecture(handle: nvmlDevice_t, target: *mut c_uint) -> nvmlReturn_t {
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
pub(crate) fn core_count(handle: nvmlDevice_t, target: *mut c_uint) -> nvmlReturn_t {
    let config = device(handle)?.config;
    let lanes = match config.capability() {
        (3, _) => 192,
        (6 | 8, 0) | (7, _) => 64,
        _ => 128,
    };
    put(target, config.sms * lanes)
}
