//! Checks of the running tenants: sound limits, denied memory, and the shim in their processes.

use std::fs;
use std::path::{Path, PathBuf};

use vcuda_manager_api::v1::{Container, ContainerDevice};
use vcuda_region::bypass::Bypass;
use vcuda_region::directory;
use vcuda_region::limits::Limits;
use vcuda_region::process::{Identity, ProcessView};
use vcuda_region::usage_reader::UsageReader;
use vcuda_region::{DeviceIndex, GpuUuid};

use super::manager::Answers;
use super::probe::SHIM;
use super::{Finding, loader, oversubscription};
use crate::config::{ENV_TENANT, Environment};
use vcuda_quota::{MemorySize, NO_MEMORY_LIMIT};

/// File names of the driver in a process's maps: NVIDIA's and the simulator's.
const DRIVERS: [&str; 2] = ["/libcuda.so.", "/libvcuda_simulator_cuda.so"];

pub(super) fn findings(is_simulated: bool, environment: &Environment, answers: &Answers) -> Vec<Finding> {
    if answers.containers.is_empty() {
        return vec![Finding::ok("tenants", "none is running")];
    }
    let each = answers.containers.iter().flat_map(|container| of_container(container, answers));
    each.chain(oversubscription::findings(is_simulated, environment, &answers.containers, |_| true)).collect()
}

/// Findings for one tenant: its memory on each GPU, what the audit found, and processes without the shim.
pub(super) fn of_container(container: &Container, answers: &Answers) -> Vec<Finding> {
    let link = format!("tenant {}", container.id);
    let path = directory::locate(answers.status.root.as_ref(), &container.id);
    let of_device = |device: &ContainerDevice| {
        let memory = MemoryUse {
            used_bytes: device.memory_used_bytes,
            limit_bytes: Some(device.memory_limit_bytes)
                .filter(|bytes| *bytes > 0)
                .unwrap_or(NO_MEMORY_LIMIT),
            denied: device.denied,
        };
        let finding = memory.finding(&link, &device.gpu_uuid, more_memory(&container.id, &path));
        let why = match answers.gpus.gpus.iter().find(|gpu| gpu.uuid == device.gpu_uuid) {
            None => "NVML does not list this GPU",
            Some(gpu) if !gpu.healthy => "this GPU is unhealthy",
            Some(_) => return finding,
        };
        Finding::note(&link, format!("{}; {why}", finding.seen), "see what is said of the GPU")
    };
    let audited = |found: &String| {
        let remedy = "vcuda events --container tells when; vcuda events --help has what to do";
        Finding::broken(&link, found.clone(), remedy)
    };
    let mut findings: Vec<Finding> = container.devices.iter().map(of_device).collect();
    findings.extend(container.findings.iter().map(audited));
    findings.extend(shims(&link, &path));
    findings
}

/// Findings for this process's tenant, by its files.
pub(super) fn own(name: &str, path: &Path) -> Vec<Finding> {
    let link = format!("tenant {name}");
    let unreadable = |seen: String| {
        let remedy = "its programs get no GPU memory; end them and start them again";
        vec![Finding::broken(&link, seen, remedy)]
    };
    let limits = match Limits::read(path) {
        Ok(limits) => limits,
        Err(error) => return unreadable(error.to_string()),
    };
    let (Ok(reader), Ok(me)) = (UsageReader::open(path), Identity::current()) else {
        return unreadable(format!("{}/usage cannot be read", path.display()));
    };
    let processes = reader.processes(limits.devices().count(), &ProcessView::new(me)).unwrap_or_default();
    let of_device = |(device, uuid): (DeviceIndex, GpuUuid)| {
        let used = processes.iter().filter_map(|one| one.devices.get(device.get()));
        let memory = MemoryUse {
            used_bytes: used.map(|used| used.used_bytes).sum(),
            limit_bytes: limits.memory_limit_bytes(device).unwrap_or(0),
            denied: reader.bucket(device).map_or(0, |bucket| bucket.denied),
        };
        memory.finding(&link, &uuid.to_string(), more_memory(name, path))
    };
    limits.devices().map(of_device).chain(shims(&link, path)).collect()
}

/// A quota of memory on a GPU and its use.
pub(super) struct MemoryUse {
    pub(super) used_bytes: u64,
    pub(super) limit_bytes: u64,
    /// Number of allocations beyond the quota.
    pub(super) denied: u64,
}

impl MemoryUse {
    /// The finding for the GPU `uuid`; `more` says how to raise the quota.
    pub(super) fn finding(&self, link: &str, uuid: &str, more: String) -> Finding {
        let seen =
            format!("{uuid}: {} of {} in use", MemorySize(self.used_bytes), words_of(self.limit_bytes));
        match self.denied {
            0 if self.used_bytes > self.limit_bytes => {
                Finding::note(link, format!("{seen}: nothing is taken away, and nothing more granted"), more)
            }
            0 => Finding::ok(link, seen),
            denied => {
                let seen =
                    format!("{seen}; {denied} allocation(s) denied because they would not have fitted");
                Finding::note(link, seen, more)
            }
        }
    }
}

/// Findings for processes of the tenant in the directory `path` that get past the shim or lack it. None if its files cannot be
/// read.
pub(super) fn shims(link: &str, path: &Path) -> Vec<Finding> {
    let (Ok(limits), Ok(reader), Ok(me)) = (Limits::read(path), UsageReader::open(path), Identity::current())
    else {
        return Vec::new();
    };
    let processes = reader.processes(limits.devices().count(), &ProcessView::new(me)).unwrap_or_default();
    let mut findings = Vec::new();
    for process in &processes {
        let pid = process.identity.pid;
        findings.extend(unshimmed(link, pid));
        findings.extend(
            reader.bypasses(process.slot).ok().and_then(|bypasses| bypass_finding(link, pid, bypasses)),
        );
    }
    let known: Vec<u32> = processes.iter().map(|process| process.identity.pid).collect();
    findings.extend(strays(link, path, &known));
    findings
}

/// Text of a memory limit (bytes).
fn words_of(limit: u64) -> String {
    if limit == NO_MEMORY_LIMIT { "the whole GPU".to_owned() } else { MemorySize(limit).to_string() }
}

/// Text that says how to raise the memory quota of the tenant in the directory `path`.
pub(super) fn more_memory(name: &str, path: &Path) -> String {
    if path == Path::new(directory::MANAGED) {
        "in a pod, its annotation vcuda.io/memory raises the limit while it runs, at most to what the pod requests; more takes \
         a new pod"
            .to_owned()
    } else {
        format!("vcuda set {name} --memory SIZE raises the limit while it runs")
    }
}

/// Finding for calls of the process that bypass the shim, by the shim's word `bypasses`. Calls that only the driver can
/// answer are left out.
fn bypass_finding(link: &str, pid: u32, bypasses: u64) -> Option<Finding> {
    let reasons: Vec<_> =
        Bypass::of_word(bypasses).filter(|reason| reason.is_past_the_shim()).map(Bypass::words).collect();
    (!reasons.is_empty()).then(|| {
        Finding::note(
            link,
            format!("process {pid} gets past the shim: {}", reasons.join("; ")),
            "what it takes there is charged once NVML shows it; see docs/limits.md",
        )
    })
}

/// Finding for a process of the tenant that was started without the shim.
fn unshimmed(link: &str, pid: u32) -> Option<Finding> {
    // Unreadable maps (another user's process, or one that has just ended) prove nothing.
    let maps = fs::read(format!("/proc/{pid}/maps")).ok()?;
    let maps = String::from_utf8_lossy(&maps);
    (!maps.is_empty() && !maps.contains(SHIM)).then(|| without_shim(link, pid))
}

/// Findings for processes of this tenant that have loaded a driver without the shim. They hold no slot (`known` do), but their
/// environment names the tenant; or, if they replaced that (`env -i`), they hold the descriptor of its directory that
/// `vcuda run` leaves to its descendants.
fn strays(link: &str, tenant: &Path, known: &[u32]) -> Vec<Finding> {
    let mut meant = format!("{ENV_TENANT}=").into_bytes();
    meant.extend_from_slice(tenant.as_os_str().as_encoded_bytes());
    let is_named = |process: &Path| {
        fs::read(process.join("environ"))
            .is_ok_and(|variables| variables.split(|byte| *byte == 0).any(|one| one == meant))
    };
    let is_descendant = |process: &Path| {
        let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        open.into_iter().any(|entry| fs::read_link(entry.path()).is_ok_and(|target| target == tenant))
    };
    let has_only_a_driver = |process: &Path| {
        fs::read(process.join("maps")).is_ok_and(|maps| {
            let maps = String::from_utf8_lossy(&maps);
            !maps.contains(SHIM) && DRIVERS.iter().any(|driver| maps.contains(driver))
        })
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .filter(|(pid, process): &(u32, PathBuf)| {
            !known.contains(pid)
                && has_only_a_driver(process)
                && (is_named(process) || is_descendant(process))
        })
        .map(|(pid, _)| without_shim(link, pid))
        .collect()
}

fn without_shim(link: &str, pid: u32) -> Finding {
    let obstacle = loader::obstacle(Path::new(&format!("/proc/{pid}")));
    let why = obstacle
        .map_or_else(String::new, |limit| format!(" (it has {limit}, which can keep the loader from it)"));
    Finding::broken(
        link,
        format!("process {pid} runs without the shim{why}: it is not limited"),
        "see `vcuda doctor -- CMD` with its command",
    )
}

#[cfg(test)]
mod tests {
    use vcuda_manager_api::v1::{ListGpusResponse, NodeStatus};

    use super::*;
    use crate::doctor::Health;

    #[test]
    fn a_process_that_gets_past_the_shim_is_told_with_its_reasons() {
        let word = Bypass::DeepBind.bit() | Bypass::UnseenHandle.bit() | Bypass::BadArgument.bit();
        let finding = bypass_finding("tenant a", 7, word).unwrap();
        assert_eq!(
            finding.seen,
            "process 7 gets past the shim: a library opened with RTLD_DEEPBIND calls the driver directly; \
             the driver accepted a handle that the shim never saw made"
        );
    }

    #[test]
    fn calls_that_the_driver_alone_had_to_answer_are_left_out() {
        let word = Bypass::BadArgument.bit() | Bypass::Capturing.bit() | Bypass::NoContext.bit();
        assert_eq!(bypass_finding("tenant a", 7, word), None);
        assert_eq!(bypass_finding("tenant a", 7, 0), None);
        assert_eq!(bypass_finding("tenant a", 7, 1 << 63), None, "a bit of no reason");
    }

    #[test]
    fn what_the_audit_found_is_broken() {
        let container = Container {
            id: "web-7".to_owned(),
            findings: vec!["5 GiB in use, 4 GiB granted".to_owned()],
            ..Container::default()
        };
        let answers = Answers {
            status: NodeStatus::default(),
            gpus: ListGpusResponse::default(),
            containers: Vec::new(),
        };
        let findings = of_container(&container, &answers);
        assert_eq!((findings.len(), findings[0].health), (1, Health::Broken));
        assert_eq!(findings[0].link, "tenant web-7");
    }
}
