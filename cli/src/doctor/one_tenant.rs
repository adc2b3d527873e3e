//! `vcuda doctor NAME`: what is wrong with one tenant, by the checks of the node's manager.

use vcuda_manager_api::v1::{Container, SuspendState};

use super::manager::{self, Answers};
use super::{Finding, oversubscription, suspension, tenants};
use crate::config::Environment;
use crate::failure::Failure;
use crate::manager_client::ManagerClient;
use crate::render::state_name;
use crate::suspend;

/// Findings for the tenant `name`: its manager, its GPUs, its quota and those beside it, its processes, and whether it can be suspended.
pub(super) fn findings(name: &str, environment: &Environment) -> Result<Vec<Finding>, Failure> {
    let node = ManagerClient::required(environment)?;
    let ids = suspend::ids(&node, &[name.to_owned()])?;
    let answers = Answers::of(&node)?;
    let mut findings = manager::problems(&answers.status, &answers.gpus.problem);
    let own: Vec<&Container> =
        answers.containers.iter().filter(|container| ids.contains(&container.id)).collect();
    for container in &own {
        findings.extend(of_tenant(container, &answers));
        let one = std::slice::from_ref(*container);
        findings.extend(manager::of_devices(&node, &answers.status, one));
        findings.extend(suspension::of_checks(node.check_suspend(&container.id)?));
    }
    let has =
        |gpu: &str| own.iter().flat_map(|container| &container.devices).any(|device| device.gpu_uuid == gpu);
    findings.extend(oversubscription::findings(false, environment, &answers.containers, has));
    Ok(findings)
}

fn of_tenant(container: &Container, answers: &Answers) -> Vec<Finding> {
    let link = format!("tenant {}", container.id);
    let mut findings = vec![of_processes(&link, container)];
    findings.push(of_memory(&link, container));
    for device in &container.devices {
        let own = answers.gpus.gpus.iter().filter(|gpu| gpu.uuid == device.gpu_uuid);
        findings.extend(own.flat_map(|gpu| manager::of_gpu(gpu, &answers.gpus.problem)));
    }
    if container.room_denied > 0 {
        findings.push(Finding::note(
            &link,
            format!(
                "{} allocation(s) within its quota were refused by the driver: its GPU, or the driver's own limit, had no room",
                container.room_denied
            ),
            "docs/suspend.md, By itself; the other tenants of its GPU hold the memory (vcuda smi)",
        ));
    }
    findings.extend(tenants::of_container(container, answers));
    findings
}

/// What holds its memory to the quota.
fn of_memory(link: &str, container: &Container) -> Finding {
    let missing = container.driver_limit_missing.as_str();
    match (container.held_by_driver, missing) {
        (true, _) => Finding::ok(link, "memory is held by: library and driver"),
        (false, "") => Finding::ok(link, "memory is held by: library"),
        (false, why) => Finding::ok(link, format!("memory is held by: library (not by the driver: {why})")),
    }
}

/// Whether processes run in it. The audit finds those that have not registered.
fn of_processes(link: &str, container: &Container) -> Finding {
    let number = container.processes.len();
    match (number, container.state()) {
        (_, SuspendState::Failed) => {
            Finding::broken(link, "a process lost its GPU state", "end its processes, and start them again")
        }
        (0, _) => Finding::ok(link, "no process of it uses a GPU"),
        (_, state) => Finding::ok(link, format!("{number} process(es), {}", state_name(state))),
    }
}
