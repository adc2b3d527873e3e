//! Last commit at a process's normal end. The work of a dead process counts only up to the last moment at which it is known
//! to have lived (see `process_table`), which this makes precise.

use crate::commit::Change;
use crate::shared::Shared;
use crate::sys;
use parking_lot::Mutex;
use std::sync::{Once, Weak};

/// Machines of which this process is a client, with its PID: a child of `fork` commits nothing.
static MACHINES: Mutex<Vec<(u32, Weak<Shared>)>> = Mutex::new(Vec::new());

/// Registers a machine for the last commit.
pub(crate) fn register(machine: Weak<Shared>) {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| sys::at_exit(say));
    let mut attended = MACHINES.lock();
    attended.retain(|(_, machine)| machine.strong_count() > 0);
    if !attended.iter().any(|(_, other)| other.ptr_eq(&machine)) {
        attended.push((std::process::id(), machine));
    }
}

/// Commits the last state. Other threads may still run, so it waits for none.
extern "C" fn say() {
    let Some(attended) = MACHINES.try_lock() else {
        return;
    };
    for (process, machine) in attended.iter() {
        let Some(machine) = machine.upgrade().filter(|_| *process == std::process::id()) else {
            continue;
        };
        if let Some(mut local) = machine.local.try_lock() {
            // If it fails, the record ends a little earlier.
            let _ = machine.transact(&mut local, Some(machine.now()), |_| Change::Made(()));
        }
    }
}
