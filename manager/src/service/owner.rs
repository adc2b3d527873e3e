//! The user whom a request counts for, and who made a change, by the kernel's word on the caller.

use std::ffi::CString;

use nix::unistd::{Gid, Uid, User, getgrouplist};
use tokio::task::spawn_blocking;
use tonic::{Request, Status};

use crate::access::{Caller, Right, user_name};
use crate::events::{Events, Report, Severity};
use crate::users::{LiveLimits, Owner};

/// The caller, if it may change its own grants only.
pub(super) async fn caller_of<T>(request: &Request<T>, limits: &LiveLimits) -> Result<Option<Owner>, Status> {
    if request.extensions().get::<Right>() != Some(&Right::Own) {
        return Ok(None);
    }
    let Some(caller) = request.extensions().get::<Caller>().cloned() else {
        return Err(Status::permission_denied("the kernel does not tell who calls"));
    };
    let limit = limits.get().of(caller.uid, &caller.groups);
    if limit.is_none() {
        return Err(Status::permission_denied(format!(
            "user {} has no limit any more, so it may have no grant of its own; ask an operator",
            caller.uid
        )));
    }
    blocking(move || Owner { uid: caller.uid, name: user_name(caller.uid), limit }).await.map(Some)
}

/// User of the caller, who makes a change; `None` if the kernel does not tell.
pub(super) fn changer_of<T>(request: &Request<T>) -> Option<u32> {
    request.extensions().get::<Caller>().map(|caller| caller.uid)
}

/// Name of [`changer_of`].
pub(super) async fn changer_name<T>(request: &Request<T>) -> Option<String> {
    Some(name_of(changer_of(request)?).await)
}

async fn name_of(uid: u32) -> String {
    blocking(move || user_name(uid)).await.unwrap_or_else(|_| uid.to_string())
}

/// Reports what a user did: `message` is what was done, to which object. `is_kept` is false if the log alone tells it.
pub(super) async fn report(
    events: &Events,
    user: Option<u32>,
    (reason, message): (&'static str, String),
    (tenant, gpu): (Option<String>, Option<String>),
    is_kept: bool,
) {
    let Some(uid) = user else { return };
    let message = format!("{message} by user {}", name_of(uid).await);
    if is_kept {
        let severity = Severity::Info;
        events.report(Report { severity, reason: reason.into(), message, tenant, gpu, host_pid: None });
    } else {
        tracing::info!(reason, container = tenant, "{message}");
    }
}

/// The user whom a new grant counts for: `caller`, or the one that an operator names.
///
/// # Errors
/// Fails if `caller`, who may have own grants only, names another one.
pub(super) async fn of_new_grant(
    caller: Option<Owner>,
    named: Option<u32>,
    limits: &LiveLimits,
) -> Result<Option<Owner>, Status> {
    match (caller, named) {
        (Some(caller), Some(named)) if named != caller.uid => Err(Status::permission_denied(format!(
            "user_uid {named}: user {} may have own grants only; leave it out, or ask an operator",
            caller.name
        ))),
        (Some(caller), _) => Ok(Some(caller)),
        (None, None) => Ok(None),
        (None, Some(uid)) => {
            let limits = limits.get();
            let owner =
                blocking(move || Owner { uid, name: user_name(uid), limit: limits.of(uid, &groups_of(uid)) });
            owner.await.map(Some)
        }
    }
}

/// Groups of a user by the system's list; none if it is not there.
fn groups_of(uid: u32) -> Vec<u32> {
    let Ok(Some(user)) = User::from_uid(Uid::from_raw(uid)) else {
        return Vec::new();
    };
    let listed = CString::new(user.name).map(|name| getgrouplist(&name, user.gid));
    match listed {
        Ok(Ok(groups)) => groups.into_iter().map(Gid::as_raw).collect(),
        _ => vec![user.gid.as_raw()],
    }
}

/// Asks the system's list of users, which may lie on another machine.
async fn blocking<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    let asked = spawn_blocking(ask).await;
    asked.map_err(|_| Status::unavailable("the manager is stopping; try again"))
}
