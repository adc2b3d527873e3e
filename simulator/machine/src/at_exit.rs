//! A process's normal end: its work is brought up to that moment. After the end no process knows how long it lived, and
//! work is counted only up to the last moment at which it is known to have lived (see `process_table`).

use crate::commit::Change;
use crate::shared::Shared;
use crate::sys;
use parking_lot::Mutex;
use std::sync::{Once, Weak};

/// Machines that this process is a client of, with the process's number: a child of `fork` writes no last record.
static MACHINES: Mutex<Vec<(u32, Weak<Shared>)>> = Mutex::new(Vec::new());

/// Remembers to write the last record.
pub(crate) fn register(machine: Weak<Shared>) {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| sys::at_exit(say));
    let mut attended = MACHINES.lock();
    attended.retain(|(_, machine)| machine.strong_count() > 0);
    if !attended.iter().any(|(_, other)| other.ptr_eq(&machine)) {
        attended.push((std::process::id(), machine));
    }
}

/// Runs while other threads may still be busy with anything: waits for none of them.
extern "C" fn say() {
    let Some(attended) = MACHINES.try_lock() else {
        return;
    };
    for (process, machine) in attended.iter() {
        let Some(machine) = machine.upgrade().filter(|_| *process == std::process::id()) else {
            continue;
        };
        if let Some(mut local) = machine.local.try_lock() {
            // If it cannot be written, the record ends a little earlier.
            let _ = machine.transact(&mut local, Some(machine.now()), |_| Change::Made(()));
        }
    }
}
