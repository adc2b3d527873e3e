//! What a stage and its tenants say to each other: one JSON document per line, on the tenant's stdin and stdout.

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
        /// With what.
        work: Work,
    },
    /// Let the GPU be, once what is in flight is done.
    Rest,
    /// Keep it busy again, with what it was kept busy with before.
    Resume,
    /// Say how much work is done so far.
    Count,
    /// Time a call.
    Time {
        /// Which.
        call: Call,
        /// How often it is timed; each time is that of many calls in a row.
        parts: u32,
    },
}

/// Work that is submitted over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Work {
    /// Of `vcuda_work`, in each kernel.
    pub(crate) iterations: u64,
    /// How kernels are submitted.
    pub(crate) shape: Shape,
    /// Submissions that are waited for together: small work is not to be slowed by the waiting.
    pub(crate) group: u32,
    /// Groups in flight, so that the GPU does not wait for a program that waits for a processor.
    pub(crate) depth: u32,
}

/// How kernels are submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Shape {
    /// One by one, without waiting for them.
    Launches,
    /// As a graph of so many, one after the other.
    Graph {
        /// At least one.
        kernels: u32,
    },
    /// One by one, each waited for.
    Synchronized,
}

/// A call whose cost is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Call {
    /// Of a kernel with so many iterations.
    Launch {
        /// Short: the calls must never wait for the GPU.
        iterations: u64,
    },
    /// `cuMemAlloc` and `cuMemFree`.
    AllocateAndFree {
        /// The size.
        bytes: u32,
    },
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
    /// What a call takes.
    Timed {
        /// Of many in a row, the median of the parts (picoseconds).
        ps_per_call: u64,
        /// Of single ones, at most so long for 99 of 100 (ns).
        p99_ns: u64,
    },
    /// Something went wrong that should not.
    Failed {
        /// What.
        message: String,
    },
}
