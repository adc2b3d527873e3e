//! What a thread does for one tenant: suspends it, or brings it back.

use std::sync::Arc;
use std::time::Duration;

use vcuda_quota::MemorySize;
use vcuda_region::GpuUuid;
use vcuda_region::suspension::{SuspendState, SuspensionWords};

use super::checks;
use super::gates::Gates;
use super::helper::Helper;
use super::moving::{NotMoved, bring_back, move_away};
use super::records::{Phase, Process};
use super::{Shared, Wish};
use crate::checkpoint::Outcome;
use crate::events::Severity;
use crate::grant::Grant;
use crate::observe::{Snapshot, Tenant};
use crate::state::GrantError;

/// Time for the calls under way to leave the driver.
const QUIET_WITHIN: Duration = Duration::from_secs(2);
/// Time for calls that only looked at the gate to turn back.
const STILL_QUIET_WITHIN: Duration = Duration::from_millis(50);

/// Looks after which a process should have registered, and the pause between two. A shim that got no answer asks again after
/// two seconds.
const REGISTERED_AFTER: u32 = 60;
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Suspends a tenant. By hand, one that is in use goes on.
///
/// # Errors
/// It cannot be suspended, or not now: it goes on as before.
pub(super) fn suspend(shared: &Shared, id: &str, wish: Wish) -> Result<(), GrantError> {
    let is_forced = wish == Wish::MakeRoom;
    let Found {
        tenant,
        gates,
        processes,
    } = find(shared, id)?;
    checks::require(shared, &tenant, &processes)?;
    let helper = shared.helper.lock(id).map_err(unwritten)?;
    shared
        .write(id, Phase::Suspending, &processes)
        .map_err(unwritten)?;
    tell(shared, id, SuspendState::Suspending);
    let moved = if gates.become_quiet(id, &processes, is_forced, QUIET_WITHIN) {
        let is_quiet = || gates.become_quiet(id, &processes, is_forced, STILL_QUIET_WITHIN);
        move_away(&helper, &processes, is_quiet)
    } else {
        Err(NotMoved::InUse)
    };
    if let Err(why) = moved {
        undo(shared, &helper, id, &processes);
        return Err(refused(id, &why));
    }
    if let Err(error) = shared.write(id, Phase::Suspended, &processes) {
        undo(shared, &helper, id, &processes);
        return Err(unwritten(error));
    }
    tell(shared, id, SuspendState::Suspended);
    // If this fails, the room stays reserved, and only no other tenant gets it.
    if !is_forced && let Err(error) = shared.runtime.block_on(shared.grants.suspend(id)) {
        tracing::warn!(container = id, "its room is not given to others: {error}");
    }
    let text = format!("{id} is suspended: its GPU memory is in host memory until its next call");
    shared.say(Severity::Info, "VcudaSuspended", text, id);
    Ok(())
}

/// A tenant, and what a suspension moves.
pub(super) struct Found {
    /// As it was when the processes were found.
    pub(super) tenant: Tenant,
    pub(super) gates: Gates,
    pub(super) processes: Vec<Process>,
}

/// Finds the tenant's processes. One that has just started is given time to register.
pub(super) fn find(shared: &Shared, id: &str) -> Result<Found, GrantError> {
    let mut attempts = 0;
    loop {
        let tenant = known(shared, id)?;
        let gates = Gates::open(shared, &tenant)?;
        match gates.processes(&tenant) {
            Err(GrantError::Unavailable(_)) if attempts < REGISTERED_AFTER => attempts += 1,
            found => {
                return Ok(Found {
                    tenant,
                    gates,
                    processes: found?,
                });
            }
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Brings a tenant back. Takes up whatever an earlier manager left, too.
///
/// # Errors
/// There is no room: it stays suspended. Or a process is lost.
pub(super) fn resume(shared: &Shared, id: &str) -> Result<(), GrantError> {
    let Some(record) = shared.records.lock().find(id).cloned() else {
        return Ok(());
    };
    let helper = shared.helper.lock(id).map_err(unwritten)?;
    let was_given_away = shared.grants.grant_table().suspended.contains(id);
    if record.phase != Phase::Suspending {
        shared.runtime.block_on(shared.grants.reserve(id))?;
    }
    if record.phase == Phase::Suspended {
        let admits = shared.admits.lock();
        let begun = has_room(shared, id).and_then(|()| {
            shared
                .write(id, Phase::Resuming, &record.processes)
                .map_err(unwritten)
        });
        drop(admits);
        if let Err(error) = begun {
            if was_given_away {
                shared.runtime.block_on(shared.grants.suspend(id))?;
            }
            return Err(error);
        }
        tell(shared, id, SuspendState::Resuming);
    }
    finish(shared, &helper, id, &record.processes)?;
    let text = format!("{id} runs: its GPU memory is back");
    shared.say(Severity::Info, "VcudaResumed", text, id);
    Ok(())
}

/// Brings the processes back, and lets their calls pass.
fn finish(shared: &Shared, helper: &Helper, id: &str, processes: &[Process]) -> Result<(), GrantError> {
    match bring_back(helper, processes) {
        Ok(()) => {
            forget(shared, id);
            Ok(())
        }
        Err(lost) => {
            if let Err(error) = shared.write(id, Phase::Failed, processes) {
                tracing::error!(container = id, "{error}");
            }
            tell(shared, id, SuspendState::Failed);
            let text = format!("{id}: {lost}");
            shared.say(Severity::Error, "VcudaSuspensionFailed", text.clone(), id);
            Err(GrantError::Refused(text))
        }
    }
}

/// Lets the tenant's calls pass, as none of its processes is away.
pub(super) fn forget(shared: &Shared, id: &str) {
    if let Err(error) = shared.records.lock().remove(id) {
        tracing::error!(container = id, "{error}");
    }
    shared.helper.remove_lock(id);
    tell(shared, id, SuspendState::Running);
}

/// Brings back what a suspension that was given up has locked or copied. The room is still reserved.
fn undo(shared: &Shared, helper: &Helper, id: &str, processes: &[Process]) {
    // What it returns is told by events.
    let _ = finish(shared, helper, id, processes);
}

/// Tells the tenant's processes a state. A tenant without files has no process that waits.
pub(super) fn tell(shared: &Shared, id: &str, state: SuspendState) {
    let words = SuspensionWords::open(&shared.directory(id));
    if let Err(error) = words.and_then(|words| words.set_state(state)) {
        tracing::warn!(
            container = id,
            state = state.name(),
            "its processes are not told: {error}"
        );
    }
}

/// A tenant as it is now.
pub(super) fn known(shared: &Shared, id: &str) -> Result<Tenant, GrantError> {
    let snapshot = shared.grants.snapshot_of_now();
    let found = snapshot.find(id).cloned();
    found.ok_or_else(|| GrantError::NotFound(format!("{id}: no such tenant; `vcuda smi` lists them")))
}

/// Checks that the GPUs have room for the tenant's memory, whatever processes outside of vcuda use. Where quotas may exceed a
/// GPU, the other tenants may take what is left of theirs at any moment: that is no room.
pub(super) fn has_room(shared: &Shared, id: &str) -> Result<(), GrantError> {
    let snapshot = shared.grants.snapshot_of_now();
    let devices = snapshot
        .find(id)
        .map(|tenant| tenant.devices.as_slice())
        .unwrap_or_default();
    for device in devices.iter().filter(|device| device.used_bytes > 0) {
        let Some(free_bytes) = free_now(shared, &device.gpu) else {
            continue;
        };
        if free_bytes < device.used_bytes {
            return Err(GrantError::NoRoom(format!(
                "{id}: its {} do not fit on {} now, as others use the GPU; end or suspend them (`vcuda ps` lists them)",
                MemorySize(device.used_bytes),
                device.gpu
            )));
        }
        let claims_bytes = if shared.is_overcommitted() {
            claims_of_others(shared, &snapshot, id, &device.gpu)
        } else {
            0
        };
        if free_bytes - device.used_bytes < claims_bytes {
            return Err(GrantError::NoRoom(format!(
                "{id}: its {} do not fit on {} beside the quotas of the tenants there; it comes back when one of them ends or is \
                 suspended",
                MemorySize(device.used_bytes),
                device.gpu
            )));
        }
    }
    Ok(())
}

/// Memory that other tenants may take on a GPU beyond what they use now (bytes). What the ledger keeps counts even if the
/// tenant's limits do not have it yet.
fn claims_of_others(shared: &Shared, snapshot: &Snapshot, id: &str, gpu: &GpuUuid) -> u64 {
    let grant_table = shared.grants.grant_table();
    let others = snapshot.tenants.iter().filter(|tenant| tenant.id != id);
    let claim = |tenant: &Tenant| {
        let device = tenant.devices.iter().find(|device| device.gpu == *gpu)?;
        let kept_bytes = grant_table
            .by_id(&tenant.id)
            .map_or(0, |grant| grant.kept_bytes());
        let limit_bytes = device.config.memory_limit_bytes.max(kept_bytes);
        Some(match shared.state(&tenant.id) {
            SuspendState::Suspended => 0,
            SuspendState::Running | SuspendState::Failed => limit_bytes.saturating_sub(device.used_bytes),
            // Its memory may not be on the GPU, and may come there.
            SuspendState::Suspending | SuspendState::Resuming => limit_bytes,
        })
    };
    let has_no_files = |grant: &&Arc<Grant>| {
        grant.id.as_str() != id && grant.gpus.contains(gpu) && snapshot.find(grant.id.as_str()).is_none()
    };
    let later = grant_table.grants().filter(has_no_files);
    others
        .filter_map(claim)
        .chain(later.map(|grant| grant.kept_bytes()))
        .fold(0, u64::saturating_add)
}

/// Memory of a GPU that no process uses now (bytes); `None` if NVML does not tell.
fn free_now(shared: &Shared, gpu: &GpuUuid) -> Option<u64> {
    let inventory = shared.grants.inventory();
    let known = inventory.find(gpu)?;
    let used = shared.node.processes(gpu).ok()?;
    let used: Option<u64> = used.into_iter().map(|(_, bytes)| bytes).sum();
    Some(known.grantable_bytes(used?))
}

fn refused(id: &str, why: &NotMoved) -> GrantError {
    let remedy = match why {
        NotMoved::Step(_, Outcome::NotSupported) => {
            "managed memory and memory shared with other processes cannot be moved; do without them"
        }
        NotMoved::Step(_, Outcome::NotReady) => "wait until its work is done",
        NotMoved::Step(_, Outcome::NoRoom) => "free host memory",
        NotMoved::Step(_, Outcome::NoDriver) => {
            "update the driver, or install vcuda-checkpoint beside vcuda-manager"
        }
        NotMoved::Step(..) | NotMoved::InUse => "it goes on as before",
    };
    GrantError::Refused(format!("{id} is not suspended: {why}; {remedy}"))
}

fn unwritten(error: impl std::fmt::Display) -> GrantError {
    GrantError::Unavailable(error.to_string())
}
