//! Checks of the machine: vcuda's files, driver, GPUs and their modes.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use vcuda_driver_api::nvml::nvmlComputeMode_t;
use vcuda_driver_open::{Nvml, NvmlProblem};
use vcuda_machine::Machine;

use super::Finding;
use crate::config::Environment;
use crate::installation;

const MPS_PIPES: &str = "/tmp/nvidia-mps";

pub(super) fn findings(is_simulated: bool, environment: &Environment) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(hidden(environment));
    if is_simulated {
        findings.push(simulated_machine(environment));
        findings.push(Finding::ok(
            "simulated GPU",
            "for programs of the driver API: kernels take time and compute nothing; what uses the CUDA runtime needs a real GPU",
        ));
        return findings;
    }
    findings.extend(driver());
    findings.extend(wsl());
    findings.extend(mps(environment));
    findings
}

/// Finding if `CUDA_VISIBLE_DEVICES` hides every GPU.
fn hidden(environment: &Environment) -> Option<Finding> {
    let value = environment.visible.as_ref()?.to_string_lossy();
    let first = value.split(',').next().unwrap_or_default().trim();
    (first.is_empty() || first.starts_with("-1")).then(|| {
        let seen = format!("CUDA_VISIBLE_DEVICES is \"{value}\": it hides every GPU");
        Finding::broken("visible GPUs", seen, "unset it, or give the GPUs with `vcuda run --gpu`")
    })
}

/// Checks of the runtime directory and of the installed libraries.
pub(super) fn own_files(is_simulated: bool, environment: &Environment) -> Vec<Finding> {
    let root = match environment.runtime_root() {
        Ok(root) => root,
        Err(failure) => {
            let remedy = "set XDG_RUNTIME_DIR to a directory that only you can write";
            return vec![Finding::broken("runtime directory", failure.to_string(), remedy)];
        }
    };
    let mut findings = vec![on_tmpfs(&root)];
    findings.push(match installation::shim(&root) {
        Ok(path) => Finding::ok("shim library", path.display().to_string()),
        Err(failure) => Finding::broken("shim library", failure.to_string(), installation::REMEDY),
    });
    if is_simulated {
        findings.push(match installation::simulator(&root) {
            Ok(path) => Finding::ok("simulated driver", path.display().to_string()),
            Err(failure) => Finding::broken("simulated driver", failure.to_string(), installation::REMEDY),
        });
    }
    findings
}

/// Check that the directory is on a tmpfs: a mapped file on a disk can stall a launch during writeback.
fn on_tmpfs(root: &Path) -> Finding {
    let shown = root.display().to_string();
    match statfs(root) {
        Ok(found) if found.filesystem_type() == TMPFS_MAGIC => Finding::ok("runtime directory", shown),
        Ok(_) => Finding::note(
            "runtime directory",
            format!("{shown}, not on tmpfs: launches may stall at writeback"),
            "set XDG_RUNTIME_DIR to a directory on tmpfs, such as /run/user/$UID",
        ),
        Err(error) => Finding::broken("runtime directory", format!("{shown}: {error}"), "make it readable"),
    }
}

fn simulated_machine(environment: &Environment) -> Finding {
    match environment.machine_dir(None) {
        Ok(path) if path.join("machine.toml").exists() => match Machine::open_or_create(&path) {
            Ok(machine) => {
                let seen = format!("{}, {} GPU(s)", path.display(), machine.config().gpus.len());
                Finding::ok("simulated machine", seen)
            }
            Err(failure) => {
                Finding::broken("simulated machine", failure.to_string(), "remove it, it is made afresh")
            }
        },
        Ok(path) => Finding::ok("simulated machine", format!("{}, made at its first use", path.display())),
        Err(failure) => {
            Finding::broken("simulated machine", failure.to_string(), "name a directory in VCUDA_SIM")
        }
    }
}

/// Checks of the driver and its GPUs.
fn driver() -> Vec<Finding> {
    let nvml = match Nvml::open() {
        Ok(nvml) => nvml,
        Err(problem) => {
            let remedy = match problem {
                NvmlProblem::NoDriver => {
                    "install NVIDIA's driver, in a container start it with the GPU; or use --sim"
                }
                _ => "restart after a driver update; `nvidia-smi` shows more",
            };
            return vec![Finding::broken("NVIDIA driver", problem.to_string(), remedy)];
        }
    };
    let version = nvml.driver_version().unwrap_or_else(|problem| problem.to_string());
    let mut findings = vec![Finding::ok("NVIDIA driver", version)];
    match nvml.gpus() {
        Ok(gpus) if gpus.is_empty() => {
            findings.push(Finding::broken(
                "GPUs",
                "none",
                "give the container a GPU; `nvidia-smi -L` must list it",
            ));
        }
        Ok(gpus) => {
            for (index, gpu) in gpus.into_iter().enumerate() {
                let link = format!("GPU {index}");
                findings
                    .push(Finding::ok(&link, nvml.name(gpu).unwrap_or_else(|problem| problem.to_string())));
                if nvml.is_mig(gpu).unwrap_or(false) {
                    findings.push(Finding::note(
                        &link,
                        "divided by MIG: its instances are isolated by the hardware and get no quota from vcuda",
                        "use the instances as they are, or `nvidia-smi -i INDEX -mig 0` to share the whole GPU",
                    ));
                }
                findings.extend(nvml.compute_mode(gpu).ok().and_then(|mode| exclusive(&link, mode)));
            }
        }
        Err(problem) => {
            findings.push(Finding::broken("GPUs", problem.to_string(), "`nvidia-smi` shows more"))
        }
    }
    findings
}

/// Finding if a GPU's mode prevents sharing.
fn exclusive(link: &str, mode: nvmlComputeMode_t) -> Option<Finding> {
    let seen = match mode {
        nvmlComputeMode_t::DEFAULT => return None,
        nvmlComputeMode_t::PROHIBITED => "compute mode PROHIBITED: no program gets a context",
        _ => "an exclusive compute mode: a second tenant gets CUDA_ERROR_DEVICE_UNAVAILABLE",
    };
    Some(Finding::broken(link, seen, "as root: nvidia-smi -i INDEX -c DEFAULT"))
}

fn wsl() -> Option<Finding> {
    let version = fs::read_to_string("/proc/version").unwrap_or_default();
    (version.to_ascii_lowercase().contains("microsoft") || Path::new("/dev/dxg").exists()).then(|| {
        Finding::note(
            "WSL2",
            "NVML shows no memory per process here: overhead of contexts is estimated",
            "leave some room in the quotas",
        )
    })
}

fn mps(environment: &Environment) -> Option<Finding> {
    let pipes = environment.mps_pipes.clone().unwrap_or_else(|| PathBuf::from(MPS_PIPES));
    pipes.join("control").exists().then(|| {
        Finding::note(
            "MPS",
            format!("a control daemon's pipes are in {}: tenants' kernels run together", pipes.display()),
            "shares then mean time with a kernel resident; `echo quit | nvidia-cuda-mps-control` ends MPS",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Health;

    #[test]
    fn exclusive_modes_are_broken() {
        assert_eq!(exclusive("GPU 0", nvmlComputeMode_t::DEFAULT), None);
        for mode in [nvmlComputeMode_t::PROHIBITED, nvmlComputeMode_t::EXCLUSIVE_PROCESS] {
            assert_eq!(exclusive("GPU 0", mode).map(|finding| finding.health), Some(Health::Broken));
        }
    }
}
