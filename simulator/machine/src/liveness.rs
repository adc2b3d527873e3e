//! Living clients: one byte of a lock file per slot, held as a record lock.
//!
//! The kernel drops a process's record locks when it ends, however it ends, and whatever PID namespace it lived in; a
//! child of `fork` does not inherit them. They also go when the process closes *any* descriptor of the file, so each is
//! opened once per process and never closed. Two copies of this library in one process (libcuda and NVML) are one owner
//! to record locks; a guard lock, whose owner is the open file description, keeps them from taking the same slot.

use crate::layout::{CLIENTS, WRITERS};
use crate::sys::lock;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The slots that this process holds, and a way to ask for those of others.
#[derive(Debug)]
pub(crate) struct Liveness {
    /// None: the machine is this process's own.
    file: Option<&'static File>,
    own: Mutex<BTreeSet<u64>>,
}

/// Guard bytes follow the slots' bytes.
const GUARDS: u64 = WRITERS + CLIENTS;
/// The byte of those that take turns, see `Liveness::turn`.
const TURN: u64 = 2 * GUARDS;

/// A process's turn, which ends when this is dropped, or with the process.
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
    /// For a machine in memory: a slot lives until it is released.
    pub(crate) fn in_memory() -> Liveness {
        Liveness {
            file: None,
            own: Mutex::default(),
        }
    }

    /// For a machine with the lock file `path`, which is made if missing.
    pub(crate) fn open(path: &Path) -> io::Result<Liveness> {
        Ok(Liveness {
            file: Some(lock_file(path)?),
            own: Mutex::default(),
        })
    }

    /// Takes a slot that no process holds.
    pub(crate) fn claim(&self, mut slots: impl Iterator<Item = u64>) -> Option<u64> {
        // Two machines opened by one copy of this library share the descriptor, hence the guard.
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
        // Under the guard no copy of this library in this process can be between these two lines as well.
        let is_taken = !lock::is_held(file, slot) && lock::hold(file, slot).is_ok();
        let _ = lock::unguard(file, GUARDS + slot);
        is_taken
    }

    /// Gives a slot back.
    pub(crate) fn release(&self, slot: u64) {
        let mut own = self.own.lock();
        if own.remove(&slot)
            && let Some(file) = self.file
        {
            let _ = lock::release(file, slot);
        }
    }

    /// Whether the slot's holder lives.
    pub(crate) fn is_alive(&self, slot: u64) -> bool {
        self.own.lock().contains(&slot) || self.file.is_some_and(|file| lock::is_held(file, slot))
    }

    /// Waits until no other process of the machine has the turn, and takes it. Threads of one process share it.
    pub(crate) fn turn(&self) -> Turn {
        // Without the lock no process waits, which does no harm.
        Turn(self.file.filter(|file| lock::await_guard(file, TURN).is_ok()))
    }

    /// The PID of the slot's holder in the namespace of this process; none where it has none there, or no process holds it.
    pub(crate) fn holder(&self, slot: u64) -> Option<u32> {
        self.file.and_then(|file| lock::holder(file, slot))
    }

    /// Whether a process can die unseen.
    pub(crate) fn has_others(&self) -> bool {
        self.file.is_some()
    }
}

type Opened = ((u64, u64), &'static File);

/// The lock file, opened once per process (and copy of this library).
fn lock_file(path: &Path) -> io::Result<&'static File> {
    static OPENED: Mutex<Vec<Opened>> = Mutex::new(Vec::new());
    let mut opened = OPENED.lock();
    let known = |opened: &[Opened], key| {
        opened
            .iter()
            .find(|(other, _)| *other == key)
            .map(|(_, file)| *file)
    };
    if let Ok(there) = path.metadata()
        && let Some(file) = known(&opened, (there.dev(), there.ino()))
    {
        return Ok(file);
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    // Of another user, it is shared already.
    let _ = crate::store::share(&file);
    // Leaked on purpose: closing it would drop the locks.
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
        // What another copy would do: open the file again, with no idea of the first descriptor.
        let again = File::options().read(true).write(true).open(&path).unwrap();
        let two = Liveness {
            file: Some(Box::leak(Box::new(again))),
            own: Mutex::default(),
        };
        assert_eq!(
            (one.claim(0..3), two.claim(0..3), one.claim(0..3)),
            (Some(0), Some(1), Some(2))
        );
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
