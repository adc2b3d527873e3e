//! The probe: this program, started as a tenant's program would be, reports how it reaches the driver.

use std::fs;
use std::io::{self, Write as _};

use serde::{Deserialize, Serialize};
use vcuda_driver_open::{Cuda, CudaProblem, Nvml};
use vcuda_region::GpuUuid;

use crate::config::Environment;
use crate::failure::Failure;

/// Beginning of the shim's file name in a process's maps. A manager installs it as `libvcuda_shim-<version>-<crc32>.so`.
pub(super) const SHIM: &str = "libvcuda_shim";

/// Observations of the probe. Paths are those of the files that contain the functions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) preload: Option<String>,
    pub(crate) shim: Option<String>,
    /// The reason why the driver cannot be used.
    pub(crate) driver_problem: Option<String>,
    /// File of `cuMemAlloc_v2` by `dlsym`.
    pub(crate) by_dlsym: Option<String>,
    /// File of `cuMemAlloc` by `cuGetProcAddress`.
    pub(crate) by_proc_address: Option<String>,
    /// UUID of the first GPU.
    pub(crate) gpu_uuid: Option<String>,
    /// Total memory of the GPU by `cuDeviceTotalMem` (bytes), which needs no context: a tenant may have no room for one.
    pub(crate) cuda_total_bytes: Option<u64>,
    /// Total memory of that GPU by NVML (bytes).
    pub(crate) nvml_total_bytes: Option<u64>,
}

pub(crate) fn probe(environment: &Environment) -> Result<(), Failure> {
    let mut report = Report {
        preload: environment.preload.as_ref().map(|value| value.to_string_lossy().into_owned()),
        shim: shim(),
        ..Report::default()
    };
    if let Err(problem) = ask_driver(&mut report) {
        report.driver_problem = Some(problem.to_string());
    }
    report.nvml_total_bytes = report.gpu_uuid.as_deref().and_then(nvml_total);
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &report)?;
    Ok(writeln!(out)?)
}

fn ask_driver(report: &mut Report) -> Result<(), CudaProblem> {
    let cuda = Cuda::load()?;
    report.by_dlsym = cuda.symbol_address("cuMemAlloc_v2").and_then(holder);
    report.by_proc_address = holder(cuda.proc_address("cuMemAlloc")?);
    cuda.init()?;
    let device = cuda.device(0)?;
    report.gpu_uuid = Some(GpuUuid::from_bytes(cuda.uuid(device)?).to_string());
    report.cuda_total_bytes = Some(cuda.total_memory(device)?);
    Ok(())
}

fn nvml_total(uuid: &str) -> Option<u64> {
    let nvml = Nvml::open().ok()?;
    let gpu = nvml.find(uuid).ok()??;
    nvml.memory(gpu).ok().map(|memory| memory.total)
}

pub(crate) fn shim() -> Option<String> {
    mapped(|line| line.contains(SHIM))
}

/// File whose mapping contains `address`.
fn holder(address: usize) -> Option<String> {
    mapped(|line| range(line).is_some_and(|range| range.contains(&address)))
}

/// Path of this process's first mapping that satisfies `wanted`.
fn mapped(wanted: impl Fn(&str) -> bool) -> Option<String> {
    let maps = fs::read("/proc/self/maps").ok()?;
    String::from_utf8_lossy(&maps).lines().find(|line| wanted(line)).and_then(path).map(str::to_owned)
}

/// Addresses in a line of `/proc/PID/maps` (proc(5)).
fn range(line: &str) -> Option<std::ops::Range<usize>> {
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

/// Path in such a line, if there is one.
fn path(line: &str) -> Option<&str> {
    line.find('/').and_then(|at| line.get(at..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_read() {
        let line = "7f00a000-7f00b000 r-xp 00000000 00:15 42       /usr/lib/libc.so.6";
        assert_eq!(range(line), Some(0x7f00_a000..0x7f00_b000));
        assert_eq!(path(line), Some("/usr/lib/libc.so.6"));
        assert_eq!(path("7f00a000-7f00b000 rw-p 00000000 00:00 0"), None);
        let here = maps_are_read as fn() as usize;
        assert!(holder(here).unwrap().contains("vcuda"));
    }
}
