//! What the demo and its tenants say to each other: one JSON document per line, on the tenant's stdin and stdout.

use serde::{Deserialize, Serialize};

/// What a tenant is asked to do. It answers each with one [`Reply`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Measure how much work the GPU does in a millisecond.
    Calibrate,
    /// Ask CUDA for free and total memory.
    Memory,
    /// Ask NVML for free and total memory.
    Nvml,
    /// Allocate.
    Allocate {
        /// How much.
        bytes: u64,
    },
    /// Free everything.
    Free,
    /// Keep the GPU busy from now on.
    Saturate {
        /// Length of each kernel.
        iterations: u64,
    },
    /// Say how much work is done so far.
    Count,
}

/// A tenant's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The GPU is open.
    Ready,
    /// Iterations of `vcuda_work` per millisecond of GPU time.
    Calibrated {
        /// At least 1.
        iterations_per_ms: u64,
    },
    /// Free and total memory.
    Memory { free_bytes: u64, total_bytes: u64 },
    /// Done.
    Done,
    /// The driver refused with `CUDA_ERROR_OUT_OF_MEMORY`.
    OutOfMemory,
    /// Work finished so far.
    Count {
        /// Iterations of finished kernels.
        iterations: u64,
        /// When (`CLOCK_MONOTONIC`).
        at_ns: u64,
    },
    /// Something went wrong that should not.
    Failed {
        /// What.
        message: String,
    },
}
