//! Liveness of clients: a lock on one byte of a lock file per slot, owned by an open file description that only a mapping keeps.
//!
//! The kernel ends a mapping with its process, in any way and in any PID namespace, and a child of `fork` does not get it
//! (`MADV_DONTFORK`). Nothing else ends the lock: a process that closes all its descriptors, as a daemon does, is as alive as
//! before. A second byte per slot has a record lock, by which others know the holder's PID; it goes with any descriptor of the
//! file. A mapping can outlive its process for a moment: without the record lock, the process is looked at, too (`holder.rs`).

use crate::layout::{CLIENTS, WRITERS};
use crate::sys::{self, lock};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;

mod holder;

/// Slots of this process, and access to the state of others.
#[derive(Debug)]
pub(crate) struct Liveness {
    /// The lock file; `None`: the machine belongs to this process alone.
    path: Option<PathBuf>,
    slots: Mutex<&'static Slots>,
}

/// Bytes of the holders' PIDs come after the slots' bytes.
const PIDS: u64 = WRITERS + CLIENTS;
/// The byte for exclusive turns, see `Liveness::turn`.
const TURN: u64 = 2 * PIDS;

/// An open lock file, and what this process holds by it.
#[derive(Debug, Default)]
struct Slots {
    /// The process that opened it; a child of `fork` opens its own.
    pid: u32,
    file: Option<File>,
    /// Device and inode.
    identity: (u64, u64),
    own: Mutex<BTreeSet<u64>>,
}

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
        Liveness { path: None, slots: Mutex::new(Box::leak(Box::default())) }
    }

    /// Liveness by the lock file `path`, made if missing.
    pub(crate) fn open(path: &Path) -> io::Result<Liveness> {
        Ok(Liveness { path: Some(path.to_owned()), slots: Mutex::new(slots_of(path)?) })
    }

    fn slots(&self) -> &'static Slots {
        let mut slots = self.slots.lock();
        if let Some(path) = &self.path
            && slots.pid != process::id()
        {
            // What cannot be opened holds nothing, and tells nothing of others.
            *slots = slots_of(path).unwrap_or_else(|_| Box::leak(Box::default()));
        }
        *slots
    }

    /// Claims a slot that no process holds.
    pub(crate) fn claim(&self, mut slots: impl Iterator<Item = u64>) -> Option<u64> {
        let all = self.slots();
        let mut own = all.own.lock();
        let slot = slots.find(|slot| !own.contains(slot) && self.take(all, *slot))?;
        own.insert(slot);
        Some(slot)
    }

    fn take(&self, slots: &'static Slots, slot: u64) -> bool {
        let Some(file) = slots.file() else { return self.path.is_none() };
        if lock::guard(file, slot).is_err() {
            return false;
        }
        holder::note(file, slot);
        let _ = lock::hold(file, PIDS + slot);
        true
    }

    pub(crate) fn release(&self, slot: u64) {
        let slots = self.slots();
        let mut own = slots.own.lock();
        if own.remove(&slot)
            && let Some(file) = slots.file()
        {
            let _ = lock::release(file, PIDS + slot);
            let _ = lock::unguard(file, slot);
        }
    }

    /// Whether the slot's holder is alive. Unknown counts as alive.
    pub(crate) fn is_alive(&self, slot: u64) -> bool {
        let slots = self.slots();
        if slots.own.lock().contains(&slot) {
            return true;
        }
        let is_held = slots.file().map(|file| lock::is_held(file, slot) && !holder::has_ended(file, slot));
        // The second look: another thread may have closed the descriptor, and its number may be another file's.
        self.path.is_some() && (is_held != Some(false) || slots.file().is_none())
    }

    /// Waits until no other process of the machine has the turn, and takes it. Threads of one process share a turn.
    pub(crate) fn turn(&self) -> Turn {
        // Without the lock there is no exclusion, which does no harm.
        Turn(self.slots().file().filter(|file| lock::await_guard(file, TURN).is_ok()))
    }

    /// PID of the slot's holder in this process's namespace; `None` if it has none there, if the slot is free, or if the holder
    /// has closed its descriptors.
    pub(crate) fn holder(&self, slot: u64) -> Option<u32> {
        lock::holder(self.slots().file()?, PIDS + slot)
    }

    /// Whether other processes may exist, and die.
    pub(crate) fn has_others(&self) -> bool {
        self.path.is_some()
    }
}

impl Slots {
    /// The lock file, unless the application has closed its descriptor.
    fn file(&self) -> Option<&File> {
        self.file.as_ref().filter(|file| identity(file).is_ok_and(|identity| identity == self.identity))
    }
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|there| (there.dev(), there.ino()))
}

/// Files that this process, or one that it was forked from, has opened.
static OPENED: Mutex<Vec<&'static Slots>> = Mutex::new(Vec::new());

/// The lock file, opened once per process and copy of this library.
fn slots_of(path: &Path) -> io::Result<&'static Slots> {
    let mut opened = OPENED.lock();
    let pid = process::id();
    if let Ok(there) = path.metadata()
        && let Some(slots) =
            opened.iter().find(|slots| slots.pid == pid && slots.identity == (there.dev(), there.ino()))
    {
        return Ok(slots);
    }
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    // Another user's file is shared already.
    let _ = crate::store::share(&file);
    sys::keep_until_the_end(&file)?;
    if opened.is_empty() {
        sys::at_fork(close_in_child);
    }
    let identity = identity(&file)?;
    // Leaked, as closing it would drop the record locks.
    let slots = Box::leak(Box::new(Slots { pid, file: Some(file), identity, own: Mutex::default() }));
    opened.push(slots);
    Ok(slots)
}

/// Closes the descriptors, which would keep the parent's locks after its end.
extern "C" fn close_in_child() {
    // Another thread may have had the lock when the process was forked, as it opened a machine. Then the child keeps the locks.
    let opened = OPENED.try_lock();
    for slots in opened.iter().flat_map(|opened| opened.iter()) {
        if let Some(file) = slots.file() {
            sys::close_leaked(file);
        }
    }
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
        let slots = Slots {
            pid: process::id(),
            identity: identity(&again).unwrap(),
            file: Some(again),
            ..Slots::default()
        };
        let two = Liveness { path: one.path.clone(), slots: Mutex::new(Box::leak(Box::new(slots))) };
        assert_eq!((one.claim(0..3), two.claim(0..3), one.claim(0..3)), (Some(0), Some(1), Some(2)));
        assert_eq!(two.claim(0..3), None);
        assert!(two.is_alive(0) && one.is_alive(1) && !one.is_alive(3));
        one.release(0);
        assert!(!two.is_alive(0) && two.is_alive(2));
        assert_eq!(two.claim(0..3), Some(0));
        std::fs::remove_file(&path).unwrap();
    }

    /// As seen by another process: each open file description is an owner of its own.
    fn is_held(path: &Path, slot: u64) -> bool {
        lock::is_held(&File::options().write(true).open(path).unwrap(), slot)
    }

    #[test]
    fn a_process_that_closes_its_descriptors_lives() {
        let path = std::env::temp_dir().join(format!("vcuda-locks-closed-{}", process::id()));
        let one = Liveness::open(&path).unwrap();
        assert_eq!(one.claim(0..3), Some(0));
        sys::close_leaked(one.slots().file().unwrap());
        // The number is another file's now, on which nothing is locked.
        let _other = File::open("/dev/null").unwrap();
        assert!(is_held(&path, 0) && one.is_alive(0));
        assert!(one.is_alive(1), "unknown counts as alive");
        assert_eq!((one.claim(0..3), one.holder(0)), (None, None));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_forked_child_has_slots_of_its_own() {
        let path = std::env::temp_dir().join(format!("vcuda-locks-forked-{}", process::id()));
        let one = Liveness::open(&path).unwrap();
        assert_eq!(one.claim(0..3), Some(0));
        // SAFETY: the child makes system calls and allocations, which glibc allows after `fork`, and ends by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_right = one.claim(0..3) == Some(1) && one.is_alive(0);
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = 0;
        // SAFETY: our own child, and a place for its status.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
        one.release(0);
        assert!(!is_held(&path, 0) && !is_held(&path, 1));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn one_descriptor_per_file() {
        let path = std::env::temp_dir().join(format!("vcuda-locks-once-{}", std::process::id()));
        let (one, two) = (Liveness::open(&path).unwrap(), Liveness::open(&path).unwrap());
        assert!(std::ptr::eq(one.slots(), two.slots()));
        assert_eq!((one.claim(5..7), two.claim(5..7)), (Some(5), Some(6)));
        std::fs::remove_file(&path).unwrap();
    }
}
