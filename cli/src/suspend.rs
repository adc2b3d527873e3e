//! `vcuda suspend` and `vcuda resume`: move a tenant's GPU memory to host memory, and back.

use std::io::Write as _;

use vcuda_manager_api::v1::SuspendState;

use crate::config::Environment;
use crate::failure::Failure;
use crate::manager_client::{ManagerClient, find};
use crate::render::state_name;

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
        writeln!(std::io::stdout(), "{id} {}", state_name(state))?;
    }
    Ok(())
}

/// Ids of the tenants: of grants by name or id, of `vcuda run` by name. All are looked up before the first is changed.
pub(crate) fn ids(node: &ManagerClient, names: &[String]) -> Result<Vec<String>, Failure> {
    let grants = node.list()?;
    let id = |name: &String| {
        find(&grants, name).map(|grant| grant.id.clone()).ok_or_else(|| {
            let known: Vec<&str> = grants.iter().map(|grant| grant.id.as_str()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            Failure::Usage(format!("{name}: no such tenant; there is {known}"))
        })
    };
    names.iter().map(id).collect()
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
