//! The process that has taken a slot, as it noted itself in the lock file, and whether it has ended.

use super::PIDS;
use crate::namespaces;
use crate::sys::{self, lock};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process;

/// A note: PID, time of the start (clock ticks), PID namespace.
const WORDS: usize = 3;
const BYTES: usize = 8 * WORDS;

fn place(slot: u64) -> u64 {
    slot * BYTES as u64
}

/// Notes this process as the slot's holder.
pub(super) fn note(file: &File, slot: u64) {
    let pid = process::id();
    // PID 0 tells nothing: the holder counts as alive while its mapping is there.
    let words: [u64; WORDS] =
        state_of(pid).map_or([0; WORDS], |state| [u64::from(pid), state.started, namespaces::own()]);
    let _ = file.write_all_at(words.map(u64::to_le_bytes).as_flattened(), place(slot));
}

/// Whether the slot's holder has ended, although its mapping is still there: another process reads its files in `/proc`, or
/// shares its memory (`vfork`). The record lock goes with the descriptors, which a process may also close as it lives.
pub(super) fn has_ended(file: &File, slot: u64) -> bool {
    let mut bytes = [0; BYTES];
    if lock::is_held(file, PIDS + slot) || file.read_exact_at(&mut bytes, place(slot)).is_err() {
        return false;
    }
    let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let (Some(pid), Some(started), Some(namespace)) = (words.next(), words.next(), words.next()) else {
        return false;
    };
    let Ok(pid) = u32::try_from(pid) else { return false };
    if pid == 0 || namespace == 0 || namespace != namespaces::own() {
        return false;
    }
    !sys::is_process(pid) || state_of(pid).is_some_and(|state| state.has_ended || state.started != started)
}

/// What `/proc` tells of a process.
struct State {
    has_ended: bool,
    /// Time of the start (clock ticks).
    started: u64,
}

/// Fields 3, 20 and 22 of proc_pid_stat(5). A main thread that has ended before the others is a zombie, too.
fn state_of(pid: u32) -> Option<State> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<_> = fields.split_ascii_whitespace().collect();
    let threads: u64 = fields.get(20 - 3)?.parse().ok()?;
    let has_ended = matches!(*fields.first()?, "Z" | "X") && threads <= 1;
    Some(State { has_ended, started: fields.get(22 - 3)?.parse().ok()? })
}
