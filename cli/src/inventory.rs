//! GPUs of this machine, real or simulated.

mod sensors;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use thiserror::Error;
use vcuda_driver_open::{Nvml, NvmlGpu, NvmlProblem};
use vcuda_machine::Machine;
use vcuda_region::GpuUuid;

use crate::config::Environment;
use crate::failure::{Failure, failed};
use vcuda_quota::MemorySize;

pub(crate) use sensors::Sensors;

/// A GPU as the user names it: by index in `vcuda smi`, or by UUID, which may be shortened as for `CUDA_VISIBLE_DEVICES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuSelector {
    /// Index in NVML's order.
    Index(usize),
    /// Beginning of a UUID, in lower case after `GPU-`.
    Uuid(String),
}

impl fmt::Display for GpuSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GpuSelector::Index(index) => write!(f, "{index}"),
            GpuSelector::Uuid(prefix) => f.write_str(prefix),
        }
    }
}

/// Failure to parse a selector.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SelectorError {
    /// Neither digits nor `GPU-...`.
    #[error("neither an index nor a UUID (GPU-...); `vcuda smi` lists both")]
    Neither,
    /// The UUID of a MIG instance.
    #[error("a MIG instance is isolated by the hardware already and gets no quota; give a whole GPU")]
    Mig,
}

impl FromStr for GpuSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(index) = text.parse() {
            return Ok(GpuSelector::Index(index));
        }
        if text.starts_with("MIG-") {
            return Err(SelectorError::Mig);
        }
        let digits = text.strip_prefix("GPU-").ok_or(SelectorError::Neither)?;
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') {
            return Err(SelectorError::Neither);
        }
        Ok(GpuSelector::Uuid(format!("GPU-{}", digits.to_ascii_lowercase())))
    }
}

/// Facts about a GPU that a quota or a table needs.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// UUID.
    pub uuid: GpuUuid,
    /// Product name.
    pub name: String,
    /// Total memory, including the driver's own part (bytes).
    pub memory_total_bytes: u64,
    /// Memory used by all processes (bytes).
    pub memory_used_bytes: u64,
    /// Memory that the driver keeps for itself (bytes).
    pub memory_reserved_bytes: u64,
    /// CUDA's number of the GPU with `CUDA_DEVICE_ORDER=PCI_BUS_ID`; `None` where CUDA may count otherwise.
    pub cuda_number: Option<usize>,
}

/// Source of the list of GPUs.
#[derive(Debug)]
pub enum Inventory {
    /// NVIDIA's driver.
    Real(Nvml),
    /// A simulated machine.
    Simulated(Machine),
}

impl Inventory {
    /// Source of the real GPUs.
    pub fn real() -> Result<Inventory, Failure> {
        let nvml = Nvml::open().map_err(|problem| no_gpu(&problem))?;
        match nvml.gpus() {
            Ok(gpus) if gpus.is_empty() => {
                Err(Failure::Usage("the NVIDIA driver shows no GPU; use --sim".to_owned()))
            }
            Ok(_) => Ok(Inventory::Real(nvml)),
            Err(problem) => Err(no_gpu(&problem)),
        }
    }

    /// Source of the GPUs of the machine in `directory`, created if missing.
    pub(crate) fn simulated(directory: &Path) -> Result<Inventory, Failure> {
        Ok(Inventory::Simulated(Machine::open_or_create(directory)?))
    }

    /// Source of GPUs for `smi` and `set`: the simulated machine if requested (by the option or `VCUDA_SIM`), else real
    /// GPUs, else the user's simulated machine if it exists.
    pub(crate) fn find(environment: &Environment, is_simulated: bool) -> Result<Inventory, Failure> {
        if is_simulated || environment.machine.is_some() {
            return Inventory::simulated(&environment.machine_dir(None)?);
        }
        Inventory::real().or_else(|failure| match environment.machine_dir(None) {
            Ok(directory) if directory.join("machine.toml").exists() => Inventory::simulated(&directory),
            _ => Err(failure),
        })
    }

    /// All GPUs by index, with their present use.
    pub fn gpus(&self) -> Result<Vec<Gpu>, Failure> {
        match self {
            Inventory::Real(nvml) => real_gpus(nvml).map_err(failed),
            Inventory::Simulated(machine) => simulated_gpus(machine),
        }
    }
}

fn no_gpu(problem: &NvmlProblem) -> Failure {
    Failure::Usage(format!(
        "{problem}; use --sim for a simulated GPU, or `vcuda doctor` to see what is missing"
    ))
}

fn real_gpus(nvml: &Nvml) -> Result<Vec<Gpu>, NvmlProblem> {
    let mut gpus = Vec::new();
    let all = nvml.gpus()?;
    for gpu in all.iter().copied() {
        // A GPU with another form of UUID (a MIG instance) cannot have a quota.
        let Ok(uuid) = nvml.uuid(gpu)?.parse() else {
            continue;
        };
        let (memory_total_bytes, memory_used_bytes) = real_memory(nvml, gpu, &uuid)?;
        gpus.push(Gpu {
            uuid,
            name: nvml.name(gpu)?,
            memory_total_bytes,
            memory_used_bytes,
            memory_reserved_bytes: nvml.reserved_bytes(gpu),
            cuda_number: cuda_number(nvml, gpu, &all),
        });
    }
    Ok(gpus)
}

/// CUDA's number of one of all GPUs in the order of PCI addresses. `None` if NVML tells no addresses, or if MIG divides a
/// GPU: CUDA then counts instances.
fn cuda_number(nvml: &Nvml, gpu: NvmlGpu, all: &[NvmlGpu]) -> Option<usize> {
    if all.iter().any(|gpu| nvml.is_mig(*gpu).unwrap_or(false)) {
        return None;
    }
    let own = nvml.pci_address(gpu).ok()?;
    let addresses: Result<Vec<_>, _> = all.iter().map(|gpu| nvml.pci_address(*gpu)).collect();
    Some(addresses.ok()?.iter().filter(|other| **other < own).count())
}

/// Total and used memory of a GPU (bytes). If NVML does not tell (GB10), the CUDA driver tells the total, and NVML the use
/// of processes.
fn real_memory(nvml: &Nvml, gpu: NvmlGpu, uuid: &GpuUuid) -> Result<(u64, u64), NvmlProblem> {
    let untold = match nvml.memory(gpu) {
        Ok(memory) => return Ok((memory.total, memory.used)),
        Err(problem) if problem.is_unsupported() => problem,
        Err(problem) => return Err(problem),
    };
    let gpus = vcuda_driver_open::memory_of_gpus(None).map_err(NvmlProblem::Untold)?;
    let own = gpus.iter().find(|gpu| gpu.uuid == *uuid.as_bytes());
    let total_bytes = own.map(|own| own.total_bytes).ok_or(untold)?;
    Ok((total_bytes, nvml.used_by_processes(gpu)?))
}

fn simulated_gpus(machine: &Machine) -> Result<Vec<Gpu>, Failure> {
    // With device nodes, the simulated driver counts those GPUs alone that have one where the program runs.
    let counts_all = !machine.config().driver.device_nodes;
    let gpus = machine.config().gpus.iter().enumerate();
    gpus.map(|(index, gpu)| {
        let memory = machine.memory(index);
        Ok(Gpu {
            uuid: gpu.uuid.parse().map_err(failed)?,
            name: gpu.name.clone(),
            memory_total_bytes: memory.total_bytes,
            memory_used_bytes: memory.used_bytes,
            memory_reserved_bytes: 0,
            cuda_number: counts_all.then_some(index),
        })
    })
    .collect()
}

/// The selected GPUs, each once and in the given order; all GPUs without selectors.
pub fn chosen(gpus: &[Gpu], selectors: &[GpuSelector]) -> Result<Vec<Gpu>, Failure> {
    if selectors.is_empty() {
        return Ok(gpus.to_vec());
    }
    let mut chosen: Vec<Gpu> = Vec::new();
    for selector in selectors {
        let gpu = match selector {
            GpuSelector::Index(index) => gpus.get(*index).ok_or_else(|| {
                let there = match gpus.len() {
                    1 => "one GPU, index 0".to_owned(),
                    count => format!("{count} GPUs, indices 0 to {}", count.saturating_sub(1)),
                };
                Failure::Usage(format!("--gpu {index}: this machine has {there} (see `vcuda smi`)"))
            })?,
            GpuSelector::Uuid(prefix) => {
                let mut matching = gpus.iter().filter(|gpu| gpu.uuid.to_string().starts_with(prefix));
                match (matching.next(), matching.next()) {
                    (Some(gpu), None) => gpu,
                    (None, _) => {
                        let known: Vec<String> = gpus.iter().map(|gpu| gpu.uuid.to_string()).collect();
                        let known = known.join(", ");
                        return Err(Failure::Usage(format!("--gpu {prefix}: no such GPU; there is {known}")));
                    }
                    (Some(_), Some(_)) => {
                        return Err(Failure::Usage(format!(
                            "--gpu {prefix}: means several GPUs; give more digits"
                        )));
                    }
                }
            }
        };
        if !chosen.iter().any(|known| known.uuid == gpu.uuid) {
            chosen.push(gpu.clone());
        }
    }
    Ok(chosen)
}

impl Gpu {
    /// Maximum memory for programs (bytes).
    pub(crate) fn usable_bytes(&self) -> u64 {
        self.memory_total_bytes.saturating_sub(self.memory_reserved_bytes)
    }
}

/// Refuses a quota beyond the memory of the smallest of `gpus`.
pub(crate) fn fits(quota: MemorySize, gpus: &[Gpu]) -> Result<(), Failure> {
    let smallest = gpus.iter().min_by_key(|gpu| gpu.usable_bytes());
    let Some(gpu) = smallest.filter(|gpu| gpu.usable_bytes() < quota.0) else {
        return Ok(());
    };
    let kept = match gpu.memory_reserved_bytes {
        0 => String::new(),
        bytes => format!(", of which the driver keeps {}", MemorySize(bytes)),
    };
    Err(Failure::Usage(format!(
        "--memory {quota} ({} bytes) is more than {} has for programs: {} ({} bytes){kept}; ask for at most that",
        quota.0,
        gpu.uuid,
        MemorySize(gpu.usable_bytes()),
        gpu.usable_bytes(),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(digit: u8, memory_total_bytes: u64) -> Gpu {
        let uuid = GpuUuid::from_bytes([digit; 16]);
        Gpu {
            uuid,
            name: format!("GPU {digit}"),
            memory_total_bytes,
            memory_used_bytes: 0,
            memory_reserved_bytes: 0,
            cuda_number: None,
        }
    }

    fn select(text: &str) -> Result<Vec<u8>, String> {
        let gpus = [gpu(0x10, 80 << 30), gpu(0x11, 40 << 30)];
        let selectors: Vec<GpuSelector> = text.split(',').map(|one| one.parse().unwrap()).collect();
        let chosen = chosen(&gpus, &selectors).map_err(|failure| failure.to_string())?;
        Ok(chosen.iter().map(|gpu| gpu.uuid.as_bytes()[0]).collect())
    }

    #[test]
    fn a_quota_beyond_what_a_gpu_gives_is_refused_with_the_figure() {
        let mut gpus = [gpu(0x10, 80 << 30), gpu(0x11, 40 << 30)];
        assert!(fits(MemorySize(40 << 30), &gpus).is_ok());
        let refused = fits(MemorySize((40 << 30) + 1), &gpus).unwrap_err().to_string();
        assert!(
            refused.contains("--memory 40 GiB") && refused.contains("40 GiB (42949672960 bytes)"),
            "{refused}"
        );
        // The driver's own memory is not available to programs.
        gpus[1].memory_reserved_bytes = 1 << 30;
        assert!(fits(MemorySize(39 << 30), &gpus).is_ok());
        let refused = fits(MemorySize(40 << 30), &gpus).unwrap_err().to_string();
        assert!(refused.contains("41875931136 bytes"), "{refused}");
        assert!(refused.contains("keeps 1 GiB"), "{refused}");
    }

    #[test]
    fn selectors() {
        assert_eq!("2".parse(), Ok(GpuSelector::Index(2)));
        assert_eq!("GPU-1F".parse(), Ok(GpuSelector::Uuid("GPU-1f".to_owned())));
        assert_eq!("MIG-1f".parse::<GpuSelector>(), Err(SelectorError::Mig));
        for text in ["", "-1", "gpu0", "GPU-", "GPU-xyz", "all"] {
            assert_eq!(text.parse::<GpuSelector>(), Err(SelectorError::Neither), "{text}");
        }
    }

    #[test]
    fn gpus_by_index_and_by_uuid_each_once() {
        assert_eq!(select("1"), Ok(vec![0x11]));
        assert_eq!(select("GPU-1010,0,1"), Ok(vec![0x10, 0x11]));
        assert!(select("2").unwrap_err().contains("2 GPUs, indices 0 to 1"));
        assert!(select("GPU-77").unwrap_err().contains("no such GPU; there is GPU-10101010-"));
        assert!(select("GPU-1").unwrap_err().contains("several"));
    }
}
