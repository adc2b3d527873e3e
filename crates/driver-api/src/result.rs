//! Result codes of both interfaces: open, so that a code newer than this list stays a valid error.
//!
//! [`CUresult`] and [`nvmlReturn_t`] are `Result<(), code>` over a non-zero number: `?` works, and the type has the
//! size, the calling convention and the values of the C enumeration (0 is `Ok(())`).

use std::ffi::CStr;
use std::fmt;
use std::num::NonZeroU32;

/// Common part of both result types: a C status of 32 bits.
pub trait Status: Copy + PartialEq + fmt::Debug {
    /// The number that C sees; 0 is success.
    fn code(self) -> u32;
    /// The result for a number from C.
    fn from_code(code: u32) -> Self;
}

/// Makes one open code type, its documented values, and its result type.
macro_rules! open_codes {
    (
        $(#[$error_doc:meta])* $error:ident, $(#[$result_doc:meta])* $result:ident,
        $prefix:literal { $($item:ident = $value:literal, $text:literal;)* }
    ) => {
        $(#[$error_doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $error(NonZeroU32);

        $(#[$result_doc])*
        #[allow(non_camel_case_types, reason = "the C name of the type")]
        pub type $result = Result<(), $error>;

        impl $error {
            $(
                #[doc = concat!("`", $prefix, stringify!($item), "`.")]
                pub const $item: Self = Self(NonZeroU32::new($value).unwrap());
            )*
            const KNOWN: &'static [(Self, &'static CStr, &'static CStr)] = &[$(
                (Self::$item, terminated(concat!($prefix, stringify!($item), "\0")), $text),
            )*];

            /// The error of this number; `None` for 0, which is success.
            pub const fn new(code: u32) -> Option<Self> {
                match NonZeroU32::new(code) {
                    Some(code) => Some(Self(code)),
                    None => None,
                }
            }

            /// The number.
            pub const fn code(self) -> u32 {
                self.0.get()
            }

            /// The code's documented name, as C text; `None` for a code outside the list.
            pub fn c_name(self) -> Option<&'static CStr> {
                Self::KNOWN.iter().find(|known| known.0 == self).map(|known| known.1)
            }

            /// The code's documented name; `None` for a code outside the list.
            pub fn name(self) -> Option<&'static str> {
                self.c_name().and_then(|name| name.to_str().ok())
            }

            /// The code's message for people, as C text; `None` for a code outside the list.
            pub fn message(self) -> Option<&'static CStr> {
                Self::KNOWN.iter().find(|known| known.0 == self).map(|known| known.2)
            }

            /// All documented codes, in ascending order.
            pub fn all() -> impl Iterator<Item = Self> {
                Self::KNOWN.iter().map(|known| known.0)
            }
        }

        impl Status for $result {
            fn code(self) -> u32 {
                self.err().map_or(0, $error::code)
            }

            fn from_code(code: u32) -> Self {
                $error::new(code).map_or(Ok(()), Err)
            }
        }

        impl fmt::Debug for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => write!(f, "{name}"),
                    None => write!(f, concat!($prefix, "({})"), self.code()),
                }
            }
        }

        impl fmt::Display for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match (self.name(), self.message().and_then(|text| text.to_str().ok())) {
                    (Some(name), Some(text)) => write!(f, "{name} ({}): {text}", self.code()),
                    _ => write!(f, concat!($prefix, "({}): a code that this version does not know"), self.code()),
                }
            }
        }

        impl std::error::Error for $error {}

        const _: () = assert!(size_of::<$result>() == 4 && align_of::<$result>() == 4);
    };
}

/// `text` as a C string. It ends with its only NUL.
const fn terminated(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    }
}

open_codes! {
    /// An error of the CUDA driver API (CUDA Driver API, "Data types used by CUDA driver": `CUresult`).
    CUerror,
    /// Result of a function of the CUDA driver API.
    CUresult, "CUDA_ERROR_" {
        INVALID_VALUE = 1, c"invalid argument";
        OUT_OF_MEMORY = 2, c"out of memory";
        NOT_INITIALIZED = 3, c"initialization error";
        DEINITIALIZED = 4, c"driver shutting down";
        PROFILER_DISABLED = 5, c"profiler disabled while using external profiling tool";
        PROFILER_NOT_INITIALIZED = 6, c"profiler not initialized";
        PROFILER_ALREADY_STARTED = 7, c"profiler already started";
        PROFILER_ALREADY_STOPPED = 8, c"profiler already stopped";
        STUB_LIBRARY = 34, c"the loaded driver library is a stub";
        CALL_REQUIRES_NEWER_DRIVER = 36, c"this call needs a newer driver";
        DEVICE_UNAVAILABLE = 46, c"CUDA-capable device(s) is/are busy or unavailable";
        MULTICAST_RESOURCE_FULL = 47, c"multicast resources are exhausted";
        NO_DEVICE = 100, c"no CUDA-capable device is detected";
        INVALID_DEVICE = 101, c"invalid device ordinal";
        DEVICE_NOT_LICENSED = 102, c"device has no valid licence";
        INVALID_IMAGE = 200, c"device kernel image is invalid";
        INVALID_CONTEXT = 201, c"invalid device context";
        CONTEXT_ALREADY_CURRENT = 202, c"context already current";
        MAP_FAILED = 205, c"mapping of buffer object failed";
        UNMAP_FAILED = 206, c"unmapping of buffer object failed";
        ARRAY_IS_MAPPED = 207, c"array is mapped";
        ALREADY_MAPPED = 208, c"resource already mapped";
        NO_BINARY_FOR_GPU = 209, c"no kernel image is available for execution on the device";
        ALREADY_ACQUIRED = 210, c"resource already acquired";
        NOT_MAPPED = 211, c"resource not mapped";
        NOT_MAPPED_AS_ARRAY = 212, c"resource not mapped as array";
        NOT_MAPPED_AS_POINTER = 213, c"resource not mapped as pointer";
        ECC_UNCORRECTABLE = 214, c"uncorrectable ECC error encountered";
        UNSUPPORTED_LIMIT = 215, c"limit is not supported on this architecture";
        CONTEXT_ALREADY_IN_USE = 216, c"exclusive-thread device already in use by a different thread";
        PEER_ACCESS_UNSUPPORTED = 217, c"peer access is not supported between these two devices";
        INVALID_PTX = 218, c"a PTX JIT compilation failed";
        INVALID_GRAPHICS_CONTEXT = 219, c"invalid OpenGL or DirectX context";
        NVLINK_UNCORRECTABLE = 220, c"uncorrectable NVLink error detected during the execution";
        JIT_COMPILER_NOT_FOUND = 221, c"PTX JIT compiler library not found";
        UNSUPPORTED_PTX_VERSION = 222, c"the provided PTX was compiled with an unsupported toolchain";
        JIT_COMPILATION_DISABLED = 223, c"PTX JIT compilation was disabled";
        UNSUPPORTED_EXEC_AFFINITY = 224, c"the provided execution affinity is not supported";
        UNSUPPORTED_DEVSIDE_SYNC = 225, c"device-side synchronization is not supported here";
        CONTAINED = 226, c"an error was contained to this process";
        INSUFFICIENT_LOADER_VERSION = 227, c"the loader is too old for this image";
        INVALID_SOURCE = 300, c"device kernel source is invalid";
        FILE_NOT_FOUND = 301, c"file not found";
        SHARED_OBJECT_SYMBOL_NOT_FOUND = 302, c"shared object symbol not found";
        SHARED_OBJECT_INIT_FAILED = 303, c"shared object initialization failed";
        OPERATING_SYSTEM = 304, c"OS call failed or operation not supported on this OS";
        INVALID_HANDLE = 400, c"invalid resource handle";
        ILLEGAL_STATE = 401, c"the operation cannot be performed in the present state";
        LOSSY_QUERY = 402, c"the answer does not fit the older interface that was asked";
        NOT_FOUND = 500, c"named symbol not found";
        NOT_READY = 600, c"device not ready";
        ILLEGAL_ADDRESS = 700, c"an illegal memory access was encountered";
        LAUNCH_OUT_OF_RESOURCES = 701, c"too many resources requested for launch";
        LAUNCH_TIMEOUT = 702, c"the launch timed out and was terminated";
        LAUNCH_INCOMPATIBLE_TEXTURING = 703, c"launch uses incompatible texturing mode";
        PEER_ACCESS_ALREADY_ENABLED = 704, c"peer access is already enabled";
        PEER_ACCESS_NOT_ENABLED = 705, c"peer access has not been enabled";
        PRIMARY_CONTEXT_ACTIVE = 708, c"cannot set while device is active in this process";
        CONTEXT_IS_DESTROYED = 709, c"context is destroyed";
        ASSERT = 710, c"device-side assert triggered";
        TOO_MANY_PEERS = 711, c"peer mapping resources exhausted";
        HOST_MEMORY_ALREADY_REGISTERED = 712, c"part or all of the requested memory range is already mapped";
        HOST_MEMORY_NOT_REGISTERED = 713, c"pointer does not correspond to a registered memory region";
        HARDWARE_STACK_ERROR = 714, c"hardware stack error";
        ILLEGAL_INSTRUCTION = 715, c"an illegal instruction was encountered";
        MISALIGNED_ADDRESS = 716, c"misaligned address";
        INVALID_ADDRESS_SPACE = 717, c"operation not supported on global/shared address space";
        INVALID_PC = 718, c"invalid program counter";
        LAUNCH_FAILED = 719, c"unspecified launch failure";
        COOPERATIVE_LAUNCH_TOO_LARGE = 720, c"too many blocks in cooperative launch";
        TENSOR_MEMORY_LEAK = 721, c"tensor memory was not freed before the kernel ended";
        NOT_PERMITTED = 800, c"operation not permitted";
        NOT_SUPPORTED = 801, c"operation not supported";
        SYSTEM_NOT_READY = 802, c"system not yet initialized";
        SYSTEM_DRIVER_MISMATCH = 803, c"system has unsupported display driver / cuda driver combination";
        COMPAT_NOT_SUPPORTED_ON_DEVICE = 804, c"forward compatibility was attempted on unsupported hardware";
        MPS_CONNECTION_FAILED = 805, c"MPS client failed to connect to the MPS control daemon or server";
        MPS_RPC_FAILURE = 806, c"the remote call between MPS server and client failed";
        MPS_SERVER_NOT_READY = 807, c"MPS server is not ready";
        MPS_MAX_CLIENTS_REACHED = 808, c"MPS clients are exhausted";
        MPS_MAX_CONNECTIONS_REACHED = 809, c"MPS device connections are exhausted";
        MPS_CLIENT_TERMINATED = 810, c"the MPS server ended this client";
        CDP_NOT_SUPPORTED = 811, c"dynamic parallelism is not supported here";
        CDP_VERSION_MISMATCH = 812, c"dynamic parallelism version mismatch";
        STREAM_CAPTURE_UNSUPPORTED = 900, c"operation not permitted when stream is capturing";
        STREAM_CAPTURE_INVALIDATED = 901, c"operation failed due to a previous error during capture";
        STREAM_CAPTURE_MERGE = 902, c"operation would result in a merge of separate capture sequences";
        STREAM_CAPTURE_UNMATCHED = 903, c"capture was not ended in the same stream as it began";
        STREAM_CAPTURE_UNJOINED = 904, c"capturing stream has unjoined work";
        STREAM_CAPTURE_ISOLATION = 905, c"dependency created on uncaptured work in another stream";
        STREAM_CAPTURE_IMPLICIT = 906, c"operation would make the legacy stream depend on a capturing blocking stream";
        CAPTURED_EVENT = 907, c"operation not permitted on an event last recorded in a capturing stream";
        STREAM_CAPTURE_WRONG_THREAD = 908, c"attempt to terminate a thread-local capture sequence from another thread";
        TIMEOUT = 909, c"wait operation timed out";
        GRAPH_EXEC_UPDATE_FAILURE = 910, c"the graph update violates constraints of the executable graph";
        EXTERNAL_DEVICE = 911, c"an error happened on an external device";
        INVALID_CLUSTER_SIZE = 912, c"the cluster size is invalid for this kernel";
        FUNCTION_NOT_LOADED = 913, c"the function is not loaded";
        INVALID_RESOURCE_TYPE = 914, c"the resource type is invalid for this operation";
        INVALID_RESOURCE_CONFIGURATION = 915, c"the resources do not fit this operation";
        KEY_ROTATION = 916, c"a key rotation is in progress";
        STREAM_DETACHED = 917, c"the stream is detached from its context";
        GRAPH_RECAPTURE_FAILURE = 918, c"a recaptured node does not fit the executable graph";
        FABRIC_NOT_READY = 919, c"the fabric is not ready";
        UNKNOWN = 999, c"unknown error";
    }
}

open_codes! {
    /// An error of NVML (NVML API reference, `nvmlReturn_t`).
    NvmlError,
    /// Result of a function of NVML.
    nvmlReturn_t, "NVML_ERROR_" {
        UNINITIALIZED = 1, c"Uninitialized";
        INVALID_ARGUMENT = 2, c"Invalid Argument";
        NOT_SUPPORTED = 3, c"Not Supported";
        NO_PERMISSION = 4, c"Insufficient Permissions";
        ALREADY_INITIALIZED = 5, c"Already Initialized";
        NOT_FOUND = 6, c"Not Found";
        INSUFFICIENT_SIZE = 7, c"Insufficient Size";
        INSUFFICIENT_POWER = 8, c"Insufficient External Power";
        DRIVER_NOT_LOADED = 9, c"Driver Not Loaded";
        TIMEOUT = 10, c"Timeout";
        IRQ_ISSUE = 11, c"Interrupt Request Issue";
        LIBRARY_NOT_FOUND = 12, c"NVML Shared Library Not Found";
        FUNCTION_NOT_FOUND = 13, c"Function Not Found";
        CORRUPTED_INFOROM = 14, c"Corrupted infoROM";
        GPU_IS_LOST = 15, c"GPU is lost";
        RESET_REQUIRED = 16, c"GPU requires reset";
        OPERATING_SYSTEM = 17, c"Operating system error";
        LIB_RM_VERSION_MISMATCH = 18, c"Driver/library version mismatch";
        IN_USE = 19, c"In use by another client";
        MEMORY = 20, c"Insufficient Memory";
        NO_DATA = 21, c"No data";
        VGPU_ECC_NOT_SUPPORTED = 22, c"vGPU operation not available while ECC is enabled";
        INSUFFICIENT_RESOURCES = 23, c"Insufficient Resources";
        FREQ_NOT_SUPPORTED = 24, c"Frequency Not Supported";
        ARGUMENT_VERSION_MISMATCH = 25, c"Argument Version Mismatch";
        DEPRECATED = 26, c"Deprecated";
        NOT_READY = 27, c"Not Ready";
        GPU_NOT_FOUND = 28, c"No GPU Found";
        INVALID_STATE = 29, c"Invalid State";
        RESET_TYPE_NOT_SUPPORTED = 30, c"Reset Type Not Supported";
        UNKNOWN = 999, c"Unknown Error";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_codes_stay_errors() {
        let strange = CUresult::from_code(4711);
        assert_eq!(strange.code(), 4711);
        assert_eq!(format!("{:?}", strange.unwrap_err()), "CUDA_ERROR_(4711)");
        assert_eq!(nvmlReturn_t::from_code(0), Ok(()));
    }

    #[test]
    fn codes_carry_their_names() {
        assert_eq!(CUerror::OUT_OF_MEMORY.code(), 2);
        assert_eq!(CUerror::OUT_OF_MEMORY.name(), Some("CUDA_ERROR_OUT_OF_MEMORY"));
        assert_eq!(NvmlError::NOT_SUPPORTED.name(), Some("NVML_ERROR_NOT_SUPPORTED"));
        assert!(CUerror::all().is_sorted() && NvmlError::all().is_sorted());
    }
}
