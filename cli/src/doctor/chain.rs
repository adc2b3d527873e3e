//! Chain from a program to its limit: preload, shim, entry points of the driver, answers of CUDA and NVML.

use std::path::Path;
use std::process::Command;

use vcuda_region::limits::Limits;

use super::probe::{Report, SHIM};
use super::{Finding, tenants};
use crate::config::Environment;
use crate::installation;
use crate::inventory::Inventory;
use vcuda_quota::{MemorySize, NO_MEMORY_LIMIT};

/// Checks inside a tenant: its limits, and the chain for a program started here.
pub(super) fn check_this_tenant(directory: &Path, is_container: bool) -> Vec<Finding> {
    let name = directory.file_name().unwrap_or(directory.as_os_str()).to_string_lossy();
    let mut findings = tenants::own(&name, directory);
    match probe(&[]) {
        Ok(report) => {
            let limits = Limits::read(directory).ok();
            let uuid = report.gpu_uuid.as_deref().and_then(|uuid| uuid.parse().ok());
            let limit = limits.and_then(|limits| limits.memory_limit_bytes(limits.find(&uuid?)?).ok());
            let limit = limit.filter(|limit| *limit != NO_MEMORY_LIMIT);
            findings.extend(links(&report, limit, is_container));
        }
        Err(finding) => findings.push(finding),
    }
    findings
}

/// Checks outside a tenant: the chain for a program under `vcuda run`, with half of the smallest GPU.
pub(super) fn check_new_tenant(is_simulated: bool, environment: &Environment) -> Vec<Finding> {
    let inventory = if is_simulated {
        environment.machine_dir(None).and_then(|directory| Inventory::simulated(&directory))
    } else {
        Inventory::real()
    };
    // Failures of driver or machine were reported before.
    let Ok(gpus) = inventory.and_then(|inventory| inventory.gpus()) else {
        return Vec::new();
    };
    let Some(smallest) = gpus.iter().map(|gpu| gpu.memory_total_bytes).min() else {
        return Vec::new();
    };
    let limit = smallest / 2;
    let (memory, name) = (format!("{limit}B"), format!("doctor-{}", std::process::id()));
    let mut arguments = vec!["run", "--name", &name, "--memory", &memory];
    if is_simulated {
        arguments.push("--sim");
    }
    arguments.push("--");
    match probe(&arguments) {
        Ok(report) => {
            let quota = format!("{}: half of the smallest GPU", MemorySize(limit));
            let own = Finding::ok("quota of this check", quota);
            std::iter::once(own).chain(links(&report, Some(limit), false)).collect()
        }
        Err(finding) => vec![finding],
    }
}

/// Runs this program's probe, through `vcuda` with `arguments` if there are any.
fn probe(arguments: &[&str]) -> Result<Report, Finding> {
    let broken = |seen: String| Finding::broken("probe", seen, "the line above names the reason");
    let executable = installation::executable().map_err(|failure| broken(failure.to_string()))?;
    let mut command = Command::new(&executable);
    if !arguments.is_empty() {
        command.args(arguments).arg(&executable);
    }
    let output = command.arg("doctor-probe").output().map_err(|error| broken(error.to_string()))?;
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    serde_json::from_slice(&output.stdout).map_err(|_| {
        Finding::broken(
            "probe",
            format!("a test program did not run ({}): {words}", output.status),
            "see its words",
        )
    })
}

/// Findings, one per link. `limit_bytes` is the memory limit that must be visible, if there is one.
fn links(report: &Report, limit_bytes: Option<u64>, is_container: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.push(match (&report.shim, &report.preload) {
        (Some(path), _) => Finding::ok("shim in the process", path.clone()),
        (None, _) if is_container => Finding::broken(
            "shim in the process",
            "not loaded, and a program that is started here is not limited",
            "the preload file above says why; if that is well: is the image's loader glibc's, 2.17 or later?",
        ),
        (None, Some(preload)) => Finding::broken(
            "shim in the process",
            format!("not loaded, though LD_PRELOAD is {preload}"),
            "`LD_DEBUG=libs CMD` shows why the loader dropped it: another architecture or C library?",
        ),
        (None, None) => Finding::broken(
            "shim in the process",
            "not loaded: LD_PRELOAD is empty",
            "something between `vcuda run` and the program clears the environment (env -i, sudo, su); pass LD_PRELOAD on",
        ),
    });
    if let Some(problem) = &report.driver_problem {
        let remedy = "as for any CUDA program: `nvidia-smi` must work here; or use --sim";
        findings.push(Finding::broken("CUDA driver", problem.clone(), remedy));
    }
    findings.extend(report.by_dlsym.as_ref().map(|path| door("door dlsym", path)));
    findings.extend(report.by_proc_address.as_ref().map(|path| door("door cuGetProcAddress", path)));
    if let Some(limit) = limit_bytes {
        findings.extend(report.cuda_total_bytes.map(|total| seen("limit seen by CUDA", limit, total)));
        findings.extend(report.nvml_total_bytes.map(|total| seen("limit seen by NVML", limit, total)));
    }
    findings
}

fn door(link: &str, path: &str) -> Finding {
    if path.contains(SHIM) {
        Finding::ok(link, "leads to the shim")
    } else {
        let remedy =
            "another preload is before the shim, or the program binds the driver past it; see docs/limits.md";
        Finding::broken(link, format!("leads to {path}, past the shim"), remedy)
    }
}

fn seen(link: &str, limit: u64, total: u64) -> Finding {
    let (wanted, found) = (MemorySize(limit), MemorySize(total));
    if total <= limit {
        Finding::ok(link, found.to_string())
    } else {
        Finding::broken(
            link,
            format!("{found}, not {wanted}"),
            "the doors above say which way passes the shim",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Health;

    fn whole() -> Report {
        let shim = Some(format!("/x/{SHIM}"));
        Report {
            preload: shim.clone(),
            shim: shim.clone(),
            by_dlsym: shim.clone(),
            by_proc_address: shim,
            cuda_total_bytes: Some(1 << 30),
            nvml_total_bytes: Some(1 << 30),
            ..Report::default()
        }
    }

    #[test]
    fn the_shim_is_known_by_the_name_that_a_manager_gives_it_too() {
        for name in ["libvcuda_shim.so", "libvcuda_shim-0.1.0-1a2b3c4d.so"] {
            let finding = door("dlsym", &format!("/usr/lib/vcuda/{name}"));
            assert_eq!(finding.health, Health::Ok, "{name}");
        }
        let past = door("dlsym", "/usr/lib/x86_64-linux-gnu/libcuda.so.1");
        assert_eq!(past.health, Health::Broken);
    }

    fn broken(report: &Report) -> Vec<String> {
        let findings = links(report, Some(1 << 30), false);
        findings.into_iter().filter(|one| one.health == Health::Broken).map(|one| one.link).collect()
    }

    #[test]
    fn each_broken_link_is_named() {
        assert!(broken(&whole()).is_empty());
        assert_eq!(broken(&Report { shim: None, ..whole() }), ["shim in the process"]);
        let past = Some("/usr/lib/libcuda.so.1".to_owned());
        assert_eq!(broken(&Report { by_dlsym: past.clone(), ..whole() }), ["door dlsym"]);
        assert_eq!(broken(&Report { by_proc_address: past, ..whole() }), ["door cuGetProcAddress"]);
        assert_eq!(broken(&Report { cuda_total_bytes: Some(2 << 30), ..whole() }), ["limit seen by CUDA"]);
        assert_eq!(broken(&Report { nvml_total_bytes: Some(2 << 30), ..whole() }), ["limit seen by NVML"]);
        let no_driver =
            Report { driver_problem: Some("x".to_owned()), shim: whole().shim, ..Report::default() };
        assert_eq!(broken(&no_driver), ["CUDA driver"]);
    }
}
