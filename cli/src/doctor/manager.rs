//! Checks of the node's manager: whether it answers, its problems, and the findings of its audit.

use vcuda_manager_api::v1::problem::Part;
use vcuda_manager_api::v1::{Container, Gpu, Grant, ListGpusResponse, NodeStatus, Problem, Process};
use vcuda_quota::MemorySize;

use super::{Finding, tenants};
use crate::config::Environment;
use crate::failure::Failure;
use crate::manager_client::{Absence, ManagerClient, view};

const BY_HEALTH: &str = "see what nvidia-smi and dmesg say; more in docs/operations.md, Health";
const BY_PROBLEM: &str = "docs/operations.md has what to do about each";

pub(super) struct Answers {
    pub(super) status: NodeStatus,
    pub(super) gpus: ListGpusResponse,
    pub(super) containers: Vec<Container>,
}

impl Answers {
    pub(super) fn of(node: &ManagerClient) -> Result<Answers, Failure> {
        Ok(Answers {
            status: node.status()?,
            gpus: node.gpus_with_processes()?,
            containers: node.containers()?.containers,
        })
    }
}

pub(super) fn findings(is_simulated: bool, environment: &Environment) -> Vec<Finding> {
    let node = match ManagerClient::presence(environment) {
        Ok(node) => node,
        Err(absence) => return vec![absent(absence)],
    };
    let answers = match Answers::of(&node) {
        Ok(answers) => answers,
        Err(failure) => {
            return vec![Finding::broken(
                "manager",
                format!("{}: {failure}", node.socket().display()),
                "look into its log (journalctl -u vcuda-manager), and restart it: no container notices",
            )];
        }
    };
    let Answers { status, gpus, containers } = &answers;
    let mut findings = vec![version(&node, status)];
    findings.extend(problems(status, &gpus.problem));
    findings.extend(gpus.gpus.iter().flat_map(|gpu| of_gpu(gpu, &gpus.problem)));
    findings.extend(of_devices(&node, status, containers));
    findings.extend(tenants::findings(is_simulated, environment, &answers));
    findings
}

/// The problem of the GPUs first, as others may follow from it. The status has it once more.
pub(super) fn problems(status: &NodeStatus, of_gpus: &str) -> Vec<Finding> {
    let gpus = Some(of_gpus).filter(|problem| !problem.is_empty());
    let gpus = gpus.map(|problem| Finding::broken("manager", problem, BY_HEALTH));
    let others = status.problems.iter().filter(|problem| problem.part() != Part::Gpus);
    let finding = |problem: &Problem| {
        // Without the ledger no grant can be made, changed or released; without the shim no container is started.
        let found = match problem.part() {
            Part::Ledger | Part::Shim => Finding::broken,
            _ => Finding::note,
        };
        let remedy = match problem.part() {
            Part::Configuration => "mend the file (vcuda-manager --check reads it), and reload it",
            _ => BY_PROBLEM,
        };
        found("manager", problem.text.as_str(), remedy)
    };
    gpus.into_iter().chain(others.map(finding)).collect()
}

/// What keeps new tenants from a GPU, unless it is the `known` problem of all GPUs, or its memory from those that it has.
pub(super) fn of_gpu(gpu: &Gpu, known: &str) -> Vec<Finding> {
    let link = format!("GPU {}", gpu.uuid);
    let mut findings = Vec::new();
    if !gpu.healthy && (gpu.health_reason.is_empty() || !known.contains(&gpu.health_reason)) {
        findings.push(Finding::broken(
            &link,
            format!("no new tenant gets it: unhealthy: {}", gpu.health_reason),
            format!(
                "if it is so for more than a minute: end its programs (vcuda ps) and reset it, nvidia-smi --gpu-reset -i {}; more in \
                 docs/operations.md, Health",
                gpu.uuid
            ),
        ));
    }
    if gpu.cordoned {
        findings.push(Finding::note(
            &link,
            "no new tenant gets it: cordoned",
            format!("vcuda gpu uncordon {}", gpu.uuid),
        ));
    }
    let (kept, outside): (Vec<_>, Vec<_>) =
        gpu.outside_processes.iter().partition(|process| !process.deleted_tenant.is_empty());
    findings.extend(kept.into_iter().map(|process| of_deleted(&link, process)));
    if !outside.is_empty() {
        findings.push(Finding::note(
            &link,
            format!(
                "{} process(es) of no tenant hold {}: nothing limits those that were never in one",
                outside.len(),
                held(&outside)
            ),
            "vcuda ps lists them; start such programs in a grant, or by vcuda run",
        ));
    }
    findings
}

/// A process that has outlived its grant, or the grant's directory.
fn of_deleted(link: &str, process: &Process) -> Finding {
    let Process { host_pid, name, deleted_tenant, .. } = process;
    let held = held(&[process]);
    Finding::note(
        link,
        format!(
            "process {host_pid} ({name}) holds {held} and has outlived {deleted_tenant}, which was released by force or deleted: it keeps \
             the limits of then"
        ),
        "end it, or let it finish; its memory counts for no grant",
    )
}

/// Memory of these processes.
fn held(processes: &[&Process]) -> MemorySize {
    MemorySize(processes.iter().flat_map(|process| &process.memory_used_bytes).sum())
}

/// Finding if no manager can be used. Only grants need one, so only one that was there before is missing.
fn absent(absence: Absence) -> Finding {
    match absence {
        Absence::NoManager => Finding::ok("manager", "none runs here; the first `vcuda run` starts one"),
        Absence::Down(why) => Finding::broken(
            "manager",
            why,
            "start it again (systemctl start vcuda-manager; in Kubernetes its pod is restarted), or remove the socket if it is gone \
             for good: containers go on meanwhile",
        ),
        Absence::Denied(why) => {
            Finding::note("manager", why, "join the group of its socket, or ask its operator to admit you")
        }
        Absence::Silent(why) => Finding::broken(
            "manager",
            why,
            "look into its log (journalctl -u vcuda-manager), and restart it: no container notices",
        ),
    }
}

fn version(node: &ManagerClient, status: &NodeStatus) -> Finding {
    let seen =
        format!("version {} at {}, tenants in {}", status.version, node.socket().display(), status.root);
    if status.version == env!("CARGO_PKG_VERSION") {
        Finding::ok("manager", seen)
    } else {
        Finding::note(
            "manager",
            format!("{seen}; this vcuda is {}", env!("CARGO_PKG_VERSION")),
            "they work together; update the older one when it suits",
        )
    }
}

/// Why grants have no device for container engines: of one of them, as all have the same reason.
pub(super) fn of_devices(
    node: &ManagerClient,
    status: &NodeStatus,
    containers: &[Container],
) -> Option<Finding> {
    let folder = Some(&status.cdi_directory).filter(|folder| !folder.is_empty())?;
    let mut grants = containers.iter().filter_map(|container| container.grant.as_ref());
    let grant = grants.find(|grant| grant.cdi_device.is_empty() && may_have_device(grant))?;
    let why = match node.container_edits(&grant.id) {
        Ok(_) => format!("the manager cannot write to {folder}"),
        Err(failure) => failure.to_string(),
    };
    Some(Finding::note(
        "CDI devices",
        format!("grant {} has none: {why}", grant.id),
        "docs/operations.md, Docker and podman; only containers need them",
    ))
}

/// Whether the manager writes a device for such a grant: it is for no pod, and CDI allows its key as a name.
fn may_have_device(grant: &Grant) -> bool {
    let is_end = |letter: char| letter.is_ascii_alphanumeric();
    let is_name = grant.key.starts_with(is_end) && grant.key.ends_with(is_end);
    is_name && grant.holder.as_ref().and_then(view::words).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Health;

    #[test]
    fn a_gpu_that_takes_no_tenants_or_has_outside_processes_is_told() {
        let gpu = Gpu {
            uuid: "GPU-1".to_owned(),
            healthy: false,
            health_reason: "XID 79".to_owned(),
            cordoned: true,
            outside_processes: [("", 80), ("web-1", 3)]
                .map(|(deleted_tenant, gib)| Process {
                    deleted_tenant: deleted_tenant.to_owned(),
                    memory_used_bytes: vec![gib << 30],
                    ..Process::default()
                })
                .into(),
            ..Gpu::default()
        };
        let findings = of_gpu(&gpu, "");
        let health: Vec<_> = findings.iter().map(|finding| finding.health).collect();
        assert_eq!(health, [Health::Broken, Health::Note, Health::Note, Health::Note]);
        assert!(findings[0].seen.contains("XID 79"));
        assert!(findings[0].remedy.as_deref().is_some_and(|remedy| remedy.contains("--gpu-reset -i GPU-1;")));
        assert_eq!(findings[1].remedy.as_deref(), Some("vcuda gpu uncordon GPU-1"));
        assert!(findings[2].seen.contains("holds 3 GiB and has outlived web-1"));
        assert!(findings[3].seen.contains("1 process(es) of no tenant hold 80 GiB"));
        let well = Gpu { healthy: true, ..Gpu::default() };
        assert_eq!(of_gpu(&well, ""), []);
    }

    #[test]
    fn each_problem_is_told_once_and_that_of_the_gpus_first() {
        let gone = "NVML cannot be used: NVIDIA driver is not loaded";
        let status = NodeStatus {
            problems: [(Part::Gpus, gone), (Part::Configuration, "line 3"), (Part::Shim, "GPUs: none")]
                .map(|(part, text)| Problem { part: part.into(), text: text.to_owned() })
                .into(),
            ..NodeStatus::default()
        };
        let gpu = Gpu { uuid: "GPU-1".to_owned(), health_reason: gone.to_owned(), ..Gpu::default() };
        let found = [problems(&status, gone), of_gpu(&gpu, gone)].concat();
        let seen: Vec<_> = found.iter().map(|finding| (finding.health, finding.seen.as_str())).collect();
        let others = [(Health::Note, "line 3"), (Health::Broken, "GPUs: none")];
        assert_eq!(seen, [[(Health::Broken, gone)].as_slice(), &others].concat());
        let own = Gpu { health_reason: "XID 79".to_owned(), ..gpu };
        assert_eq!(of_gpu(&own, gone).len(), 1, "a reason of its own");
        assert_eq!(problems(&NodeStatus::default(), ""), []);
    }

    #[test]
    fn each_absence_of_the_manager_has_its_remedy() {
        assert_eq!(absent(Absence::NoManager).health, Health::Ok);
        let health = |absence: fn(String) -> Absence| absent(absence("x".to_owned())).health;
        assert_eq!(health(Absence::Down), Health::Broken);
        assert_eq!(health(Absence::Denied), Health::Note);
        assert_eq!(health(Absence::Silent), Health::Broken);
        let remedy = |absence: Absence| absent(absence).remedy.unwrap();
        assert!(remedy(Absence::Down("x".to_owned())).starts_with("start it again"));
        assert!(remedy(Absence::Denied("x".to_owned())).contains("group"));
        assert!(remedy(Absence::Silent("x".to_owned())).contains("log"));
    }
}
