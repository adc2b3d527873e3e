//! Program images (PTX text, cubin, fatbin): facts that can be read without a compiler.
//!
//! Kernels compute nothing here, so only names, parameter layouts, sizes and values of variables are read. Sources of the
//! layouts: PTX ISA ("Kernel and Function Directives", "Variables"); the ELF specification; CUDA Binary Utilities for a
//! cubin's sections. The fatbin container and the attributes of `.nv.info` are undocumented, and were derived from real
//! files.

mod elf;
mod fatbin;
mod ptx;

use core::ffi::{CStr, c_void};

use vcuda_driver_api::CUerror;

/// A parameter in a kernel's parameter buffer (bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) offset: usize,
    pub(crate) size: usize,
}

/// Facts of a kernel in an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelInfo {
    pub(crate) name: String,
    /// Parameters; `None` if the image does not tell.
    pub(crate) parameters: Option<Vec<Parameter>>,
    /// Statically declared shared memory (bytes).
    pub(crate) shared_bytes: u32,
    /// Local memory per thread (bytes).
    pub(crate) local_bytes: u32,
    /// Registers per thread; 0 if unknown (PTX).
    pub(crate) registers: u32,
    /// Product of `.maxntid`/`.reqntid`; 0 if unlimited.
    pub(crate) max_threads: u32,
}

/// Facts of a variable in an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GlobalInfo {
    pub(crate) name: String,
    pub(crate) bytes: usize,
    /// First bytes of its value; the rest is zero.
    pub(crate) value: Vec<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) kernels: Vec<KernelInfo>,
    pub(crate) globals: Vec<GlobalInfo>,
    /// Whether the payload could not be read (an unknown compression); every kernel's name is then accepted.
    pub(crate) is_opaque: bool,
    pub(crate) bytes: usize,
    /// `CU_FUNC_ATTRIBUTE_PTX_VERSION` and `BINARY_VERSION`: 10 x major + minor of the architecture.
    pub(crate) architecture: u32,
}

/// Format of an image, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Elf,
    Fatbin,
    /// A structure that points to a fatbin, as nvcc leaves in a program's `.nvFatBinSegment`.
    FatbinWrapper,
    Text,
}

const WRAPPER_MAGIC: u32 = 0x4662_43b1;

fn format(start: [u8; 4]) -> Option<Format> {
    match u32::from_le_bytes(start) {
        0x464c_457f => Some(Format::Elf),
        fatbin::MAGIC => Some(Format::Fatbin),
        WRAPPER_MAGIC => Some(Format::FatbinWrapper),
        _ => start
            .iter()
            .take_while(|&&byte| byte != 0)
            .all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
            .then_some(Format::Text),
    }
}

impl Image {
    /// Parses an image whose length is known. Errors: `CUDA_ERROR_INVALID_IMAGE` for bytes of no known format or
    /// damaged ones, `CUDA_ERROR_INVALID_PTX` for text that is not PTX.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Image, CUerror> {
        let start = bytes.first_chunk::<4>().ok_or(CUerror::INVALID_IMAGE)?;
        let mut image = match format(*start).ok_or(CUerror::INVALID_IMAGE)? {
            Format::Elf => elf::parse(bytes).ok_or(CUerror::INVALID_IMAGE)?,
            Format::Fatbin => fatbin::parse(bytes).ok_or(CUerror::INVALID_IMAGE)?,
            Format::FatbinWrapper => return Err(CUerror::INVALID_IMAGE),
            Format::Text => {
                let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
                let text = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default());
                ptx::parse(&text).ok_or(CUerror::INVALID_PTX)?
            }
        };
        image.bytes = bytes.len();
        Ok(image)
    }

    /// Parses an image known by its address only; its length is in its headers. Errors: as [`Image::parse`];
    /// `CUDA_ERROR_INVALID_VALUE` for a null pointer.
    pub(crate) fn load(address: *const c_void) -> Result<Image, CUerror> {
        Image::parse(slice_of(address)?)
    }
}

/// The bytes of an image at an address.
pub(crate) fn slice_of<'a>(address: *const c_void) -> Result<&'a [u8], CUerror> {
    let start: [u8; 4] = crate::base::ffi::get(address.cast())?;
    match format(start).ok_or(CUerror::INVALID_IMAGE)? {
        Format::Elf => {
            let header: [u8; 64] = crate::base::ffi::get(address.cast())?;
            let table = elf::section_table(&header).ok_or(CUerror::INVALID_IMAGE)?;
            // SAFETY: an ELF image reaches at least to the end of its section headers.
            let with_table = unsafe { bytes_at(address, table.end) };
            let length = elf::length(with_table).ok_or(CUerror::INVALID_IMAGE)?;
            // SAFETY: the section headers say that the image reaches this far.
            Ok(unsafe { bytes_at(address, length) })
        }
        Format::Fatbin => {
            let header: [u8; 16] = crate::base::ffi::get(address.cast())?;
            let length = fatbin::length(&header).ok_or(CUerror::INVALID_IMAGE)?;
            // SAFETY: the container's header says that it reaches this far.
            Ok(unsafe { bytes_at(address, length) })
        }
        Format::FatbinWrapper => {
            let wrapper: Wrapper = crate::base::ffi::get(address.cast())?;
            let start: [u8; 4] = crate::base::ffi::get(wrapper.data.cast())?;
            if format(start) != Some(Format::Fatbin) {
                return Err(CUerror::INVALID_IMAGE);
            }
            slice_of(wrapper.data)
        }
        // SAFETY: "PTX as a NULL-terminated string" (`cuModuleLoadData`).
        Format::Text => Ok(unsafe { CStr::from_ptr(address.cast()) }.to_bytes()),
    }
}

/// # Safety
/// `length` bytes at the address must be readable and stay so during the call into the driver.
unsafe fn bytes_at<'a>(address: *const c_void, length: usize) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(address.cast(), length) }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Wrapper {
    magic: u32,
    version: u32,
    data: *const c_void,
    file: *const c_void,
}

/// A little-endian number in foreign bytes; `None` past the end.
fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(*bytes.get(offset..)?.first_chunk()?)).ok()
}

/// A part of foreign bytes; `None` past the end, for any numbers.
fn part(bytes: &[u8], offset: usize, length: usize) -> Option<&[u8]> {
    bytes.get(offset..offset.checked_add(length)?)
}
