//! What a thread does for one tenant: suspends it, or brings it back.

use std::time::Duration;

use vcuda_region::suspension::{SuspendState, SuspensionWords};

use super::checks;
use super::fits::has_room;
use super::gates::Gates;
use super::helper::Helper;
use super::moving::{NotMoved, bring_back, copy_all, is_any_away, lock_all, take_away};
use super::records::{Phase, Process, Record};
use super::{Shared, Wish};
use crate::checkpoint::Outcome;
use crate::events::Severity;
use crate::observe::Tenant;
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
/// It cannot be suspended, or not now: it goes on as before. If a part of its memory is away already, it goes on when its GPU has
/// room for that again.
pub(super) fn suspend(shared: &Shared, id: &str, wish: Wish, user: Option<&str>) -> Result<(), GrantError> {
    let is_forced = wish == Wish::MakeRoom;
    let Found { tenant, gates, processes } = find(shared, id)?;
    let helper = shared.helper.lock(id).map_err(unwritten)?;
    helper.start_early();
    let begun = checks::require(shared, &tenant, &processes).and_then(|()| {
        let written = shared.write(id, Phase::Suspending, &processes);
        written.map_err(unwritten)
    });
    if let Err(error) = begun {
        shared.helper.remove_lock(id);
        return Err(error);
    }
    tell(shared, id, SuspendState::Suspending);
    let is_quiet = |limit| gates.become_quiet(id, &processes, is_forced, limit);
    if !is_quiet(QUIET_WITHIN) {
        // Nothing was asked of the driver.
        forget(shared, id);
        return Err(refused(id, &NotMoved::InUse, true));
    }
    let locked = match lock_all(&helper, &processes) {
        Ok(locked) if is_quiet(STILL_QUIET_WITHIN) => locked,
        locked => {
            // What it returns is told by events.
            let _ = finish(shared, &helper, id, &processes);
            return Err(refused(id, &locked.err().unwrap_or(NotMoved::InUse), true));
        }
    };
    if let Err(why) = copy_all(&helper, &locked) {
        let undone = undo(shared, &helper, id, &processes, why.is_unknown());
        return Err(refused(id, &why, undone.is_ok()));
    }
    if let Err(error) = shared.write(id, Phase::Suspended, &processes) {
        // As above.
        let _ = undo(shared, &helper, id, &processes, true);
        return Err(unwritten(error));
    }
    tell(shared, id, SuspendState::Suspended);
    // If this fails, the room stays reserved, and only no other tenant gets it.
    if !is_forced && let Err(error) = shared.runtime.block_on(shared.grants.suspend(id)) {
        tracing::warn!(container = id, "its room is not given to others: {error}");
    }
    keep_ready(shared, id, helper);
    let by = by(user);
    let text = format!("{id} is suspended{by}: its GPU memory is in host memory until its next call");
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
                return Ok(Found { tenant, gates, processes: found? });
            }
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Brings a tenant back. Takes up whatever an earlier manager left, too.
///
/// # Errors
/// There is no room: it stays suspended. Or a process is lost.
pub(super) fn resume(shared: &Shared, id: &str, user: Option<&str>) -> Result<(), GrantError> {
    let Some(record) = shared.records.lock().find(id).cloned() else {
        return Ok(());
    };
    let ready = shared.ready.lock().remove(id);
    let helper = ready.map_or_else(|| shared.helper.lock(id), Ok).map_err(unwritten)?;
    helper.start_early();
    let resumed = match record.phase {
        Phase::Suspending => undo(shared, &helper, id, &record.processes, false),
        Phase::Suspended => come_back(shared, &helper, id, &record.processes),
        Phase::Resuming | Phase::Failed => {
            let reserved = shared.runtime.block_on(shared.grants.reserve(id));
            reserved.and_then(|()| finish(shared, &helper, id, &record.processes))
        }
    };
    if resumed.is_err() {
        if shared.state(id) == SuspendState::Suspended {
            keep_ready(shared, id, helper);
        }
        return resumed;
    }
    let text = format!("{id} is resumed{}: its GPU memory is back", by(user));
    shared.say(Severity::Info, "VcudaResumed", text, id);
    Ok(())
}

/// Words for the user who asked for a change; none if the manager makes it by itself.
fn by(user: Option<&str>) -> String {
    user.map_or_else(String::new, |user| format!(" by user {user}"))
}

/// Suspends a tenant anew whose memory came back to the GPU without the manager. Until that is done, its quota counts again.
///
/// # Errors
/// The driver refuses: the tenant comes back as soon as there is room.
pub(super) fn suspend_anew(shared: &Shared, id: &str) -> Result<(), GrantError> {
    let record = shared.records.lock().find(id).cloned();
    let Some(record) = record.filter(|record| record.phase == Phase::Suspended) else {
        return Ok(());
    };
    let was_given_away = shared.grants.grant_table().suspended.contains(id);
    if let Err(error) = shared.runtime.block_on(shared.grants.reserve(id)) {
        tracing::warn!(container = id, "its memory is on the GPU, and its room is another's: {error}");
    }
    let ready = shared.ready.lock().remove(id);
    let helper = ready.map_or_else(|| shared.helper.lock(id), Ok).map_err(unwritten)?;
    let taken = take_away(&helper, &record.processes);
    keep_ready(shared, id, helper);
    if let Err(why) = taken {
        let record = Record { comes_back: true, ..record };
        shared.put(record).map_err(unwritten)?;
        return Err(refused(id, &why, false));
    }
    if was_given_away {
        shared.runtime.block_on(shared.grants.suspend(id))?;
    }
    let text = format!("{id} is suspended anew: its GPU memory is in host memory until its next call");
    shared.say(Severity::Info, "VcudaSuspended", text, id);
    Ok(())
}

/// Keeps the program of a suspended tenant for its resume, as a GPU's driver takes long to start.
fn keep_ready(shared: &Shared, id: &str, helper: Helper) {
    helper.keep_one();
    shared.ready.lock().insert(id.to_owned(), helper);
}

/// Brings a suspended tenant back, if there is room.
fn come_back(shared: &Shared, helper: &Helper, id: &str, processes: &[Process]) -> Result<(), GrantError> {
    let was_given_away = shared.grants.grant_table().suspended.contains(id);
    shared.runtime.block_on(shared.grants.reserve(id))?;
    let admits = shared.admits.lock();
    let begun =
        has_room(shared, id).and_then(|()| shared.write(id, Phase::Resuming, processes).map_err(unwritten));
    drop(admits);
    if let Err(error) = begun {
        if was_given_away {
            shared.runtime.block_on(shared.grants.suspend(id))?;
        }
        return Err(error);
    }
    tell(shared, id, SuspendState::Resuming);
    finish(shared, helper, id, processes)
}

/// Undoes a suspension that has begun. If a process `may_be_away`, or is, its room may be another tenant's by now: the tenant is
/// suspended, then, and comes back when there is room.
fn undo(
    shared: &Shared,
    helper: &Helper,
    id: &str,
    processes: &[Process],
    may_be_away: bool,
) -> Result<(), GrantError> {
    if !may_be_away && !is_any_away(helper, processes) {
        return finish(shared, helper, id, processes);
    }
    let record = Record {
        id: id.to_owned(),
        phase: Phase::Suspended,
        processes: processes.to_vec(),
        comes_back: true,
    };
    if let Err(error) = shared.put(record) {
        // The record of before leads to here again: a manager that starts, or `vcuda resume`.
        tracing::error!(container = id, "{error}");
    }
    tell(shared, id, SuspendState::Suspended);
    let _returning = shared.grants.begin_return(id);
    come_back(shared, helper, id, processes)
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
    let mut records = shared.records.lock();
    records.remove(id);
    // First: the tenant need not wait for the disk.
    tell(shared, id, SuspendState::Running);
    if let Err(error) = records.write() {
        tracing::error!(container = id, "{error}");
    }
    drop(records);
    drop(shared.ready.lock().remove(id));
    shared.helper.remove_lock(id);
}

/// Tells the tenant's processes a state. A tenant without files has no process that waits.
pub(super) fn tell(shared: &Shared, id: &str, state: SuspendState) {
    let words = SuspensionWords::open(&shared.directory(id));
    if let Err(error) = words.and_then(|words| words.set_state(state)) {
        tracing::warn!(container = id, state = state.name(), "its processes are not told: {error}");
    }
}

/// A tenant as it is now.
pub(super) fn known(shared: &Shared, id: &str) -> Result<Tenant, GrantError> {
    let snapshot = shared.grants.snapshot_of_now();
    let found = snapshot.find(id).cloned();
    found.ok_or_else(|| GrantError::NotFound(format!("{id}: no such tenant; `vcuda smi` lists them")))
}

/// The refusal of a suspension. If it `is_undone`, the tenant runs.
fn refused(id: &str, why: &NotMoved, is_undone: bool) -> GrantError {
    let remedy = match why {
        NotMoved::Step(_, Outcome::NotSupported) => {
            "managed memory and memory shared with other processes cannot be moved; do without them"
        }
        NotMoved::Step(_, Outcome::NotReady) => "wait until its work is done",
        NotMoved::Step(_, Outcome::NoRoom) => "free host memory",
        NotMoved::Step(_, Outcome::NoDriver) => {
            "update the driver, or install vcuda-checkpoint beside vcuda-manager"
        }
        NotMoved::Step(..) | NotMoved::InUse if is_undone => "it goes on as before",
        NotMoved::Step(..) | NotMoved::InUse => {
            "a part of its memory is in host memory: it goes on when its GPU has room for that (`vcuda smi` shows its state)"
        }
    };
    GrantError::Refused(format!("{id} is not suspended: {why}; {remedy}"))
}

fn unwritten(error: impl std::fmt::Display) -> GrantError {
    GrantError::Unavailable(error.to_string())
}
