//! Liveness of clients: a record lock on one byte of a lock file per slot.
//!
//! The kernel drops a process's record locks when it ends, in any way and in any PID namespace. A child of `fork` does not
//! inherit them. They also go when the process closes *any* descriptor of the file, so each is opened once per process and
//! never closed. Two copies of this library in one process (libcuda and NVML) are one owner of record locks. A guard lock,
//! owned by the open file description, keeps them from claiming the same slot.

use crate::layout::{CLIENTS, WRITERS};
use crate::sys::lock;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Slots of this process, and access to the state of others.
#[derive(Debug)]
pub(crate) struct Liveness {
    /// The lock file; `None`: the machine belongs to this process alone.
    file: Option<&'static File>,
    own: Mutex<BTreeSet<u64>>,
}

/// Guard bytes come after the slots' bytes.
const GUARDS: u64 = WRITERS + CLIENTS;
/// The byte for exclusive turns, see `Liveness::turn`.
const TURN: u64 = 2 * GUARDS;

/// A process's turn, which ends on drop, or with the process.
#[derive(Debug)]
pub(crate) struct Turn(Option<&'static File>);

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(file) = self.0 {
            let _ = lock::unguard(file, TURN);
        }
    }
}

impl Liveness {
    /// Liveness of a machine in memory: a slot lives until it is released.
    pub(crate) fn in_memory() -> Liveness {
        Liveness { file: None, own: Mutex::default() }
    }

    /// Liveness by the lock file `path`, made if missing.
    pub(crate) fn open(path: &Path) -> io::Result<Liveness> {
        Ok(Liveness { file: Some(lock_file(path)?), own: Mutex::default() })
    }

    /// Claims a slot that no process holds.
    pub(crate) fn claim(&self, mut slots: impl Iterator<Item = u64>) -> Option<u64> {
        // Machines opened by one copy of this library share the descriptor, hence the guard.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _turn = ONE_AT_A_TIME.lock();
        let mut own = self.own.lock();
        let slot = slots.find(|slot| !own.contains(slot) && self.take(*slot))?;
        own.insert(slot);
        Some(slot)
    }

    fn take(&self, slot: u64) -> bool {
        let Some(file) = self.file else { return true };
        if lock::is_held(file, slot) || lock::guard(file, GUARDS + slot).is_err() {
            return false;
        }
        // Under the guard no other copy of this library in this process gets between these two calls.
        let is_taken = !lock::is_held(file, slot) && lock::hold(file, slot).is_ok();
        let _ = lock::unguard(file, GUARDS + slot);
        is_taken
    }

    pub(crate) fn release(&self, slot: u64) {
        let mut own = self.own.lock();
        if own.remove(&slot)
            && let Some(file) = self.file
        {
            let _ = lock::release(file, slot);
        }
    }

    /// Whether the slot's holder is alive.
    pub(crate) fn is_alive(&self, slot: u64) -> bool {
        self.own.lock().contains(&slot) || self.file.is_some_and(|file| lock::is_held(file, slot))
    }

    /// Waits until no other process of the machine has the turn, and takes it. Threads of one process share a turn.
    pub(crate) fn turn(&self) -> Turn {
        // Without the lock there is no exclusion, which does no harm.
        Turn(self.file.filter(|file| lock::await_guard(file, TURN).is_ok()))
    }

    /// PID of the slot's holder in this process's namespace; `None` if it has none there, or if the slot is free.
    pub(crate) fn holder(&self, slot: u64) -> Option<u32> {
        self.file.and_then(|file| lock::holder(file, slot))
    }

    /// Whether other processes may exist, and die.
    pub(crate) fn has_others(&self) -> bool {
        self.file.is_some()
    }
}

type Opened = ((u64, u64), &'static File);

/// The lock file, opened once per process and copy of this library.
fn lock_file(path: &Path) -> io::Result<&'static File> {
    static OPENED: Mutex<Vec<Opened>> = Mutex::new(Vec::new());
    let mut opened = OPENED.lock();
    let known =
        |opened: &[Opened], key| opened.iter().find(|(other, _)| *other == key).map(|(_, file)| *file);
    if let Ok(there) = path.metadata()
        && let Some(file) = known(&opened, (there.dev(), there.ino()))
    {
        return Ok(file);
    }
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    // Another user's file is shared already.
    let _ = crate::store::share(&file);
    // Leaked, as closing it would drop the locks.
    let file: &'static File = Box::leak(Box::new(file));
    let there = file.metadata()?;
    opened.push(((there.dev(), there.ino()), file));
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_copies_of_the_library_in_one_process_share_no_slot() {
        let path = std::env::temp_dir().join(format!("vcuda-locks-{}", std::process::id()));
        let one = Liveness::open(&path).unwrap();
        // Opened again, as another copy of the library would.
        let again = File::options().read(true).write(true).open(&path).unwrap();
        let two = Liveness { file: Some(Box::leak(Box::new(again))), own: Mutex::default() };
        assert_eq!((one.claim(0..3), two.claim(0..3), one.claim(0..3)), (Some(0), Some(1), Some(2)));
        assert_eq!(two.claim(0..3), None);
        assert!(two.is_alive(0) && one.is_alive(1) && !one.is_alive(3));
        one.release(0);
        assert!(!two.is_alive(0) && two.is_alive(2));
        assert_eq!(two.claim(0..3), Some(0));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn one_descriptor_per_file() {
        let path = std::env::temp_dir().join(format!("vcuda-locks-once-{}", std::process::id()));
        let (one, two) = (Liveness::open(&path).unwrap(), Liveness::open(&path).unwrap());
        assert!(std::ptr::eq(one.file.unwrap(), two.file.unwrap()));
        assert_eq!((one.claim(5..7), two.claim(5..7)), (Some(5), Some(6)));
        std::fs::remove_file(&path).unwrap();
    }
}
