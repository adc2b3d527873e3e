//! `vcuda apply`: brings the node's grants to what a file says.

mod file;
mod plan;

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use vcuda_manager_api::v1::check_changes_request::change::Change as Request;
use vcuda_manager_api::v1::{CreateGrantRequest, Grant, ReleaseGrantRequest, ResizeGrantRequest};
use vcuda_quota::Quota;

use crate::args::ApplyArgs;
use crate::config::Environment;
use crate::failure::Failure;
use crate::grant::request_id;
use crate::inventory::GpuSelector;
use crate::manager_client::ManagerClient;
use crate::render::quota::{described, quota};
use file::{Wanted, WantedGpus, wrong};
use plan::{Change, Plan, plan};

/// Prints the changes, or makes them and says what was done.
///
/// # Errors
/// Fails before the first change if anything in the file is wrong. A change that the manager refuses ends it; those before it
/// stay.
pub(crate) fn apply(args: &ApplyArgs, environment: &Environment) -> Result<(), Failure> {
    let mut wanted = file::parse(&args.file, &text(&args.file)?)?;
    let node = ManagerClient::required(environment)?;
    for wanted in &mut wanted {
        resolve(wanted, &args.file, &node)?;
    }
    let plan = plan(&args.file, &wanted, &node.list()?, args.prune)?;
    if args.dry_run {
        return show(&plan, &node);
    }
    let mut out = io::stdout().lock();
    for (done, change) in plan.changes.iter().enumerate() {
        match make(&node, change) {
            Ok(words) => writeln!(out, "{words}")?,
            Err(failure) => return Err(stopped(failure, change, done, plan.changes.len())),
        }
    }
    Ok(writeln!(out, "{}", summary(&plan, plan.changes.len(), "changed"))?)
}

/// Prints what would be changed, and what the manager would refuse: what does not fit, and the release of grants in use.
fn show(plan: &Plan, node: &ManagerClient) -> Result<(), Failure> {
    let refusals = node.check_changes(plan.changes.iter().map(request).collect())?;
    let mut out = io::stdout().lock();
    for (change, refusal) in plan.changes.iter().zip(&refusals) {
        match refusal.as_str() {
            "" => writeln!(out, "{}", change.words())?,
            why => writeln!(out, "{}; it would be refused: {why}", change.words())?,
        }
    }
    let first_refused = refusals.iter().position(|refusal| !refusal.is_empty());
    let condition = if first_refused.is_some() { ", up to the first that is refused" } else { "" };
    let number = first_refused.unwrap_or(plan.changes.len());
    Ok(writeln!(out, "{}", summary(plan, number, &format!("would be changed{condition}")))?)
}

/// Text of the file, or of stdin for `-`.
fn text(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = match file == Path::new("-") {
        true => io::stdin().read_to_string(&mut text).map(drop),
        false => fs::read_to_string(file).map(|read| text = read),
    };
    read.map_err(|error| Failure::access("read", file, &error))?;
    Ok(text)
}

/// Replaces the beginnings of UUIDs by the node's UUIDs.
fn resolve(wanted: &mut Wanted, file: &Path, node: &ManagerClient) -> Result<(), Failure> {
    if let WantedGpus::Named(uuids) = &mut wanted.gpus {
        let selectors: Vec<GpuSelector> = uuids.iter().cloned().map(GpuSelector::Uuid).collect();
        *uuids = node.chosen("gpu", &selectors).map_err(|failure| match failure {
            Failure::Usage(words) => wrong(file, wanted.line, &words),
            other => other,
        })?;
    }
    Ok(())
}

/// The change as it is asked of the manager.
fn request(change: &Change) -> Request {
    match change {
        Change::Create(wanted) => Request::Create(create(wanted)),
        Change::Resize(grant, after) => Request::Resize(resize(grant, after)),
        Change::Release(grant) => {
            Request::Release(ReleaseGrantRequest { id: grant.id.clone(), even_if_used: false })
        }
    }
}

fn make(node: &ManagerClient, change: &Change) -> Result<String, Failure> {
    match change {
        Change::Create(wanted) => {
            let grant = node.create(create(wanted))?;
            Ok(format!(
                "{} created: {} on {}",
                grant.id,
                described(&quota(&grant)),
                grant.gpu_uuids.join(", ")
            ))
        }
        Change::Resize(grant, after) => {
            node.resize(resize(grant, after))?;
            Ok(change.words().replacen("change ", "changed ", 1))
        }
        Change::Release(grant) => {
            node.release(&grant.id, false)?;
            Ok(format!("{} released", grant.id))
        }
    }
}

fn create(wanted: &Wanted) -> CreateGrantRequest {
    let (gpu_count, gpu_uuids) = match &wanted.gpus {
        WantedGpus::Number(number) => (number.unwrap_or(1), Vec::new()),
        WantedGpus::Named(uuids) => (0, uuids.clone()),
    };
    CreateGrantRequest {
        request_id: request_id(),
        key: wanted.name.clone(),
        amounts: Some((&wanted.quota).into()),
        gpu_count,
        gpu_uuids,
        user_uid: wanted.user,
        suspendable: wanted.is_suspendable,
        memory_wait_ms: wanted.memory_wait_ms,
        ..CreateGrantRequest::default()
    }
}

fn resize(grant: &Grant, after: &Quota) -> ResizeGrantRequest {
    ResizeGrantRequest {
        request_id: request_id(),
        id: grant.id.clone(),
        amounts: Some(after.into()),
        // Another caller's change since the list was read is not overwritten.
        expected_generation: grant.generation,
        ..ResizeGrantRequest::default()
    }
}

/// The manager's refusal of a change, with what was done before it.
fn stopped(failure: Failure, change: &Change, done: usize, all: usize) -> Failure {
    let words = |words: String| {
        format!(
            "{}: {words}; {done} of {all} changes were made: apply again once that is mended",
            change.words()
        )
    };
    match failure {
        Failure::Usage(text) => Failure::Usage(words(text)),
        Failure::Unavailable(text) => Failure::Unavailable(words(text)),
        Failure::Failed(text) => Failure::Failed(words(text)),
        other => other,
    }
}

/// Line such as `2 of 5 grants changed`.
fn summary(plan: &Plan, number: usize, words: &str) -> String {
    format!("{number} of {} grants {words}", plan.changes.len() + plan.unchanged)
}
