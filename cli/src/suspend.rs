//! `vcuda suspend` and `vcuda resume`: move a tenant's GPU memory to host memory, and back.

use std::io::Write as _;

use vcuda_manager_api::v1::SuspendState;

use crate::config::Environment;
use crate::failure::Failure;
use crate::manager_client::ManagerClient;

pub(crate) fn suspend(names: &[String], environment: &Environment) -> Result<(), Failure> {
    one_by_one(names, environment, SuspendState::Suspending, ManagerClient::suspend)
}

pub(crate) fn resume(names: &[String], environment: &Environment) -> Result<(), Failure> {
    one_by_one(names, environment, SuspendState::Resuming, ManagerClient::resume)
}

fn one_by_one(
    names: &[String],
    environment: &Environment,
    passing: SuspendState,
    ask: fn(&ManagerClient, &str) -> Result<SuspendState, Failure>,
) -> Result<(), Failure> {
    let node = ManagerClient::required(environment)?;
    for id in ids(&node, names)? {
        let state = until_done(passing, || ask(&node, &id))?;
        writeln!(std::io::stdout(), "{id} {}", words(state))?;
    }
    Ok(())
}

/// Ids of the tenants: of grants by name or id, of `vcuda run` by name. All are looked up before the first is changed.
pub(crate) fn ids(node: &ManagerClient, names: &[String]) -> Result<Vec<String>, Failure> {
    let containers = node.containers()?.containers;
    let find = |name: &String| {
        let by_key = containers.iter().find(|container| {
            let grant = container.grant.as_ref();
            grant.is_some_and(|grant| grant.key == *name)
        });
        let by_id = containers.iter().find(|container| container.id == *name);
        by_id.or(by_key).map(|found| found.id.clone()).ok_or_else(|| {
            let known: Vec<&str> = containers.iter().map(|container| container.id.as_str()).collect();
            Failure::Usage(format!(
                "{name}: no such tenant; there is {}",
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            ))
        })
    };
    names.iter().map(find).collect()
}

/// Asks until the tenant is in another state than `passing`. The manager answers each time within seconds.
fn until_done(
    passing: SuspendState,
    ask: impl Fn() -> Result<SuspendState, Failure>,
) -> Result<SuspendState, Failure> {
    loop {
        let state = ask()?;
        if state != passing {
            return Ok(state);
        }
    }
}

/// Name of a state, as `vcuda smi --json` has it.
pub(crate) fn words(state: SuspendState) -> &'static str {
    match state {
        SuspendState::Unspecified | SuspendState::Running => "running",
        SuspendState::Suspending => "suspending",
        SuspendState::Suspended => "suspended",
        SuspendState::Resuming => "resuming",
        SuspendState::Failed => "failed",
    }
}
