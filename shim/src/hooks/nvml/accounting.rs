//! NVML's accounting: the tenant's own living processes, with the ledger's peak of memory.

use vcuda_driver_api::prelude::*;

use super::array::{get_all, is_usable, put_all};
use super::{Part, Process};
use crate::driver::saved_answer::peek;
use crate::driver::{Bypass, Call, Handled, real};

/// `nvmlDeviceGetAccountingPids`.
pub(in super::super) fn accounting_pids(
    _call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    count: *mut c_uint,
    pids: *mut c_uint,
) -> Handled<NvmlError> {
    let part = Part::of_device(device)?;
    Bypass::BadArgument.when(!is_usable(count, pids))?;
    let own = part.processes();
    let mut listed = get_all(0, |count, pids| {
        // SAFETY: room for as many PIDs as it says.
        unsafe { real::nvmlDeviceGetAccountingPids(device, count, pids) }
    })?;
    listed.retain(|pid| own.iter().any(|process| process.pid == *pid));
    Ok(put_all(count, pids, &listed)?)
}

/// The process of this PID, if it is the tenant's own. NVML's answer about any other is that there is none.
fn of_own(
    call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    pid: c_uint,
) -> Result<Option<Process>, NvmlError> {
    let Ok(part) = Part::of_device(device) else {
        call.real()?;
        return Ok(None);
    };
    // If accounting is off, or the place for the answer wild, NVML says so.
    call.real()?;
    let own = part.processes().into_iter().find(|process| process.pid == pid);
    own.map(Some).ok_or(NvmlError::NOT_FOUND)
}

/// `nvmlDeviceGetAccountingStats`.
pub(in super::super) fn accounting_stats(
    call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    pid: c_uint,
    stats: *mut nvmlAccountingStats_t,
) -> Handled<NvmlError> {
    let before = peek(stats.cast_const());
    match of_own(call, device, pid) {
        Ok(Some(process)) if before.is_some() => {
            // SAFETY: NVML returned success, so it has just written the structure.
            unsafe { (*stats).maxMemoryUsage = process.peak_bytes };
            Ok(())
        }
        Ok(_) => Ok(()),
        Err(why) => {
            if let Some(before) = before {
                // SAFETY: readable before; NVML may have written another process's figures here.
                unsafe { stats.write(before) };
            }
            Err(why.into())
        }
    }
}

/// `nvmlDeviceGetAccountingStats_v2`: the structure names the process.
pub(in super::super) fn accounting_stats_v2(
    call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    stats: *mut nvmlAccountingStats_v2_t,
) -> Handled<NvmlError> {
    let before = peek(stats.cast_const()).ok_or(Bypass::BadArgument)?;
    match of_own(call, device, before.pid) {
        Ok(Some(process)) => {
            // SAFETY: NVML returned success, so it has just written the structure.
            unsafe { (*stats).maxMemoryUsage = process.peak_bytes };
            Ok(())
        }
        Ok(None) => Ok(()),
        Err(why) => {
            // SAFETY: readable before; NVML may have written another process's figures here.
            unsafe { stats.write(before) };
            Err(why.into())
        }
    }
}
