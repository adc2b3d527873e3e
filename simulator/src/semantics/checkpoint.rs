//! What calls meet while the process is locked, or its state is in the host's memory (docs/hardware.md, "checkpoint of a
//! process").

use vcuda_driver_api::{CUerror, CUresult};
use vcuda_machine::{Barrier, Client};

use crate::base::thread::permit;
use crate::object::process::process;

/// What a function does while its process is locked or away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// It answers as ever.
    Answers,
    /// It waits for the unlock.
    Waits,
    /// Locked it answers; away it ends the process with SIGSEGV.
    Faults,
    /// Locked it answers; away it is `CUDA_ERROR_OPERATING_SYSTEM`.
    Refuses,
}

/// Waits as the called function waits. The price of a running process is a load and a comparison. Error:
/// `CUDA_ERROR_OPERATING_SYSTEM` of `cuMemGetInfo` while the state is away.
#[inline]
pub(crate) fn pass(name: &str) -> CUresult {
    match process() {
        Ok(process) if !process.client.is_undisturbed() => pass_slowly(&process.client, name),
        _ => Ok(()),
    }
}

#[cold]
fn pass_slowly(client: &Client, name: &str) -> CUresult {
    let class = class(name);
    // A host function is part of the work that a lock waits for.
    if class == Class::Answers || permit().is_err() {
        return Ok(());
    }
    loop {
        match (client.barrier(), class) {
            ((Barrier::Open, _), _) | ((Barrier::Locked, _), Class::Faults | Class::Refuses) => return Ok(()),
            ((Barrier::Away, _), Class::Faults) => fault(),
            ((Barrier::Away, _), Class::Refuses) => return Err(CUerror::OPERATING_SYSTEM),
            ((_, seen), _) => client.await_change(seen),
        }
    }
}

/// Class of an exported function. Functions that were not tried on a GPU answer if they ask or synchronise, else wait.
fn class(name: &str) -> Class {
    let versioned = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    let base = versioned
        .rsplit_once("_v")
        .filter(|(_, version)| version.bytes().all(|digit| digit.is_ascii_digit()))
        .map_or(versioned, |(base, _)| base);
    match base {
        "cuMemGetInfo" => Class::Refuses,
        "cuCtxSynchronize"
        | "cuStreamQuery"
        | "cuStreamSynchronize"
        | "cuEventQuery"
        | "cuEventSynchronize"
        | "cuEventElapsedTime" => Class::Faults,
        "cuCtxSetCurrent" | "cuCtxPushCurrent" | "cuCtxPopCurrent" | "cuThreadExchangeStreamCaptureMode" => {
            Class::Answers
        }
        _ if ["Get", "TotalMem", "IsCapturing", "Capability", "cuCheckpoint"]
            .iter()
            .any(|part| base.contains(part)) =>
        {
            Class::Answers
        }
        _ => Class::Waits,
    }
}

/// Ends the process as the driver's wrong access does.
fn fault() -> ! {
    // SAFETY: raises a signal in the calling thread and touches no memory.
    unsafe { libc::raise(libc::SIGSEGV) };
    // A handler that returns would be called again and again.
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_the_classes_that_the_gpu_showed() {
        for (names, expected) in [
            (
                "cuDriverGetVersion cuDeviceGetCount cuDeviceTotalMem_v2 cuCtxGetCurrent cuCtxSetCurrent",
                Class::Answers,
            ),
            (
                "cuStreamIsCapturing_ptsz cuStreamGetCtx cuMemPoolGetAttribute cuCheckpointProcessUnlock",
                Class::Answers,
            ),
            (
                "cuInit cuCtxCreate_v2 cuMemAlloc_v2 cuMemAllocHost_v2 cuMemcpyDtoH_v2_ptds cuLaunchKernel",
                Class::Waits,
            ),
            ("cuStreamCreate cuEventCreate cuEventRecord_ptsz cuMemFree_v2", Class::Waits),
            (
                "cuStreamQuery_ptsz cuStreamSynchronize cuEventQuery cuEventElapsedTime_v2 cuCtxSynchronize",
                Class::Faults,
            ),
            ("cuMemGetInfo_v2", Class::Refuses),
        ] {
            for name in names.split(' ') {
                assert_eq!(class(name), expected, "{name}");
            }
        }
    }
}
