//! Structures that describe copies of rows and slices: their ends, and the number of bytes.

use vcuda_driver_api::prelude::*;

use super::memory::Word;
use crate::driver::real;

/// An end of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Device memory or an array.
    Device,
    /// Memory of the host.
    Host,
    /// Memory whose kind the driver tells by its address.
    Unified(CUdeviceptr),
}

/// Whether a copy between these ends stays on devices.
pub(super) fn both_on_device(from: End, to: End) -> bool {
    is_on_device(from) && is_on_device(to)
}

fn is_on_device(end: End) -> bool {
    match end {
        End::Device => true,
        End::Host => false,
        End::Unified(address) => is_device_memory(address),
    }
}

/// Whether an address is device memory. An address that the driver does not know is the host's.
fn is_device_memory(address: CUdeviceptr) -> bool {
    let mut kind: c_uint = 0;
    let attribute = CUpointer_attribute::MEMORY_TYPE;
    // SAFETY: this attribute is an unsigned int (CUDA Driver API, `cuPointerGetAttribute`); any address may be asked for.
    let answer = unsafe { real::cuPointerGetAttribute((&raw mut kind).cast(), attribute, address) };
    answer.is_ok() && kind == CUmemorytype::DEVICE.0
}

/// A structure that describes a copy.
pub(super) trait Shape: Copy {
    /// Source and target.
    fn ends(&self) -> (End, End);
    /// Size of the copy (bytes).
    fn bytes(&self) -> u64;
}

fn end(kind: CUmemorytype, address: u64) -> End {
    match kind {
        CUmemorytype::HOST => End::Host,
        CUmemorytype::UNIFIED => End::Unified(address),
        _ => End::Device,
    }
}

fn volume<const N: usize>(sides: [u64; N]) -> u64 {
    sides.into_iter().fold(1, u64::saturating_mul)
}

macro_rules! shapes {
    ($($name:ident [$($side:ident)*];)*) => {$(
        impl Shape for $name {
            fn ends(&self) -> (End, End) {
                (
                    end(self.srcMemoryType, self.srcDevice.wide()),
                    end(self.dstMemoryType, self.dstDevice.wide()),
                )
            }

            fn bytes(&self) -> u64 {
                volume([$(self.$side.wide()),*])
            }
        }
    )*};
}

shapes! {
    CUDA_MEMCPY2D [WidthInBytes Height];
    CUDA_MEMCPY2D_v1 [WidthInBytes Height];
    CUDA_MEMCPY3D [WidthInBytes Height Depth];
    CUDA_MEMCPY3D_v1 [WidthInBytes Height Depth];
    CUDA_MEMCPY3D_PEER [WidthInBytes Height Depth];
}

impl Shape for CUDA_MEMCPY3D_BATCH_OP {
    fn ends(&self) -> (End, End) {
        let end = |operand: &CUmemcpy3DOperand| {
            if operand.r#type == CUmemcpy3DOperandType::POINTER {
                // SAFETY: the type says that the pointer is the union's member.
                End::Unified(unsafe { operand.op.ptr }.ptr)
            } else {
                End::Device
            }
        };
        (end(&self.src), end(&self.dst))
    }

    /// For an array the extent counts elements, whose size only the driver knows: the result is then too small.
    fn bytes(&self) -> u64 {
        volume([self.extent.width as u64, self.extent.height as u64, self.extent.depth as u64])
    }
}
