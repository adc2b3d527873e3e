//! Accounting (NVML API reference, "Accounting Statistics"): off unless `machine.toml` says `accounting = true`. Switching
//! it needs rights that no process has here.
//!
//! The figures come from the machine's record, which has a process from its first use of the GPU on, dead or alive.
//! docs/hardware.md, "NVML accounting": the time of an ended process is that from its first kernel to its last; sums of
//! samples are not kept.

use crate::answer::{get, put, put_all};
use crate::state::{Device, device};
use crate::status::switch;
use std::collections::BTreeMap;
use vcuda_driver_api::prelude::*;
use vcuda_machine::ProcessReport;

exports! {
    nvmlDeviceGetAccountingMode => |handle, target|
        put(target, switch(device(handle)?.opened.machine.config().accounting));
    nvmlDeviceGetAccountingBufferSize => |handle, target| accounted(handle).and_then(|_| put(target, BUFFER));
    nvmlDeviceGetAccountingPids => pids;
    nvmlDeviceGetAccountingStats => |handle, pid, target| put(target, stats_of(handle, pid)?);
    nvmlDeviceGetAccountingStats_v2 => stats_v2;
}

/// Size of the circular buffer of real drivers, in processes (docs/hardware.md, "NVML accounting").
const BUFFER: c_uint = 4000;

/// The device of a handle, if accounting is on. Error: `NVML_ERROR_NOT_SUPPORTED` "if accounting mode is disabled".
fn accounted(handle: nvmlDevice_t) -> Result<Device, NvmlError> {
    let device = device(handle)?;
    if device.opened.machine.config().accounting { Ok(device) } else { Err(NvmlError::NOT_SUPPORTED) }
}

/// "In case of pid collision stats of only the latest process will be reported": the living one, else the last.
fn processes(device: Device) -> BTreeMap<c_uint, ProcessReport> {
    let report = device.opened.machine.report();
    let here = |process: &ProcessReport| process.gpu_uuid == device.config.uuid;
    report.processes.into_iter().filter(here).map(|process| (process.pid, process)).collect()
}

fn pids(handle: nvmlDevice_t, count: *mut c_uint, pids: *mut c_uint) -> nvmlReturn_t {
    let device = accounted(handle)?;
    let known: Vec<c_uint> = processes(device).into_keys().collect();
    put_all(pids, count, &known)
}

/// Percentage of its life in which kernels of the process ran, and its life (ns).
fn life(device: Device, process: &ProcessReport) -> (c_uint, u64) {
    let end = if process.alive { device.opened.machine.now_ns() } else { process.last_ns };
    let ns = end.saturating_sub(process.first_ns);
    let percent = (process.service_ns.min(ns) * 100).checked_div(ns).unwrap_or(0);
    (c_uint::try_from(percent).unwrap_or(100), ns)
}

fn stats_of(handle: nvmlDevice_t, pid: c_uint) -> Result<nvmlAccountingStats_t, NvmlError> {
    let device = accounted(handle)?;
    let process = processes(device).remove(&pid).ok_or(NvmlError::NOT_FOUND)?;
    let (percent, ns) = life(device, &process);
    Ok(nvmlAccountingStats_t {
        gpuUtilization: percent,
        memoryUtilization: 0,
        maxMemoryUsage: process.memory_peak_bytes,
        // "The time is reported as 0 if the process is not terminated".
        time: if process.alive { 0 } else { ns / 1_000_000 },
        startTime: device.opened.timestamp_us(process.first_ns),
        isRunning: c_uint::from(process.alive),
        reserved: [0; 5],
    })
}

/// Version 2, where the structure names the process.
fn stats_v2(handle: nvmlDevice_t, target: *mut nvmlAccountingStats_v2_t) -> nvmlReturn_t {
    device(handle)?;
    let asked = get(target)?;
    let of = stats_of(handle, asked.pid)?;
    put(
        target,
        nvmlAccountingStats_v2_t {
            pid: asked.pid,
            isRunning: of.isRunning,
            gpuUtilization: of.gpuUtilization,
            memoryUtilization: of.memoryUtilization,
            maxMemoryUsage: of.maxMemoryUsage,
            sampleCount: 0,
            sumGpuUtil: 0,
            sumFbUtil: 0,
            time: of.time,
            startTime: of.startTime,
        },
    )
}
