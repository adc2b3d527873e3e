//! The life of a directory: what keeps it, and what removes it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use vcuda_region::DeviceIndex;
use vcuda_region::clock::now_ns;
use vcuda_region::directory::{self, Directory, Unused};
use vcuda_region::process::{Identity, ProcessView};
use vcuda_region::slots::Usage;

use super::{Sleeper, make, root, soon, start, tenant};

fn lock_unused(path: &Path) -> Option<Unused> {
    directory::lock_unused(&[path.to_owned()], &Identity::current().unwrap()).pop().unwrap()
}

fn is_unused(path: &Path) -> bool {
    lock_unused(path).is_some()
}

#[test]
fn a_directory_lives_as_long_as_a_slot_or_the_lock_is_held() {
    let root = root();
    let directory = make(root.path(), "a");
    let path = directory.path().to_owned();
    assert!(!is_unused(&path), "its lock is held");
    drop(directory);
    soon(|| is_unused(&path));
    let sleeper = Sleeper::new();
    let usage = Usage::open(&path).unwrap();
    let slot = usage.claim(&sleeper.identity).unwrap();
    assert!(!is_unused(&path), "its process lives");
    sleeper.kill();
    drop(slot);
    drop(usage);
    soon(|| is_unused(&path));
    // A run enters it, or finds that it is gone; never one that is about to be removed.
    let entered = Directory::enter(&path).unwrap().unwrap();
    assert!(!is_unused(&path));
    drop(entered);
    let mut unused = None;
    soon(|| {
        unused = lock_unused(&path);
        unused.is_some()
    });
    let aside = std::thread::scope(|scope| {
        let entering = scope.spawn(|| Directory::enter(&path).unwrap().is_some());
        let aside = directory::remove_granted(root.path(), "a").unwrap().unwrap();
        drop(unused);
        assert!(!entering.join().unwrap());
        aside
    });
    directory::discard(&aside).unwrap();
    assert!(Directory::enter(&path).unwrap().is_none() && is_unused(&path), "it is gone");
}

#[test]
fn a_daemon_that_closed_everything_finds_its_directory() {
    let root = root();
    let directory = make(root.path(), "a");
    let path = directory.path().to_owned();
    // No slot, no descriptor: what it has is its environment.
    let sleep = |variable: &str| start(Command::new("sleep").arg("1000").env(variable, &path));
    let (mut daemon, mut other) = (sleep(directory::ENV_DIRECTORY), sleep("ANOTHER"));
    drop(directory);
    assert!(!is_unused(&path));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    soon(|| is_unused(&path));
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn the_lock_outlives_the_one_who_took_it_in_its_descendants() {
    let root = root();
    let directory = make(root.path(), "a");
    let path = directory.path().to_owned();
    directory.keep_across_exec().unwrap();
    let mut child = start(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()));
    // Ours is closed, as if we had ended: the child's copy remains.
    for entry in fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let is_ours = fs::read_link(entry.path()).is_ok_and(|target| target.starts_with(root.path()));
        if is_ours {
            let fd: i32 = entry.file_name().to_str().unwrap().parse().unwrap();
            close(fd);
        }
    }
    assert!(!is_unused(&path), "the child still holds it");
    child.kill().unwrap();
    child.wait().unwrap();
    soon(|| is_unused(&path));
}

#[expect(unsafe_code, reason = "closing a descriptor that was leaked on purpose")]
fn close(fd: i32) {
    // SAFETY: the test has just found that this descriptor is the directory it leaked, and no other code uses it.
    unsafe { libc::close(fd) };
}

#[test]
fn the_dead_of_a_containers_first_life_are_told_by_their_locks() {
    let root = root();
    let directory = make(root.path(), "a");
    let open = || Usage::open(directory.path()).unwrap();
    let device = DeviceIndex::new(0).unwrap();
    let process = |pid, pid_namespace| Identity { pid, pid_namespace, ..Identity::current().unwrap() };
    let (first, second, mut other, after) = (open(), open(), open(), open());
    let slots = [(&first, 1), (&second, 2)].map(|(usage, pid)| usage.claim(&process(pid, 1)).unwrap());
    for slot in &slots {
        slot.reserve(device, 5, 100).unwrap().commit();
    }
    // From the namespace of its second life nothing of the first can be seen.
    let me = process(1, 2);
    let view = ProcessView::new(me);
    after.reap_dead_and_wait(&view);
    assert_eq!(after.used_bytes(device), 10, "both live");
    drop(first);
    after.reap_dead_and_wait(&ProcessView::brief(me));
    assert_eq!(after.used_bytes(device), 10, "no thorough look");
    soon(|| {
        after.reap_dead_and_wait(&view);
        after.used_bytes(device) == 5
    });
    // A slot that another process holds now is that one's, with its own lock.
    let next = other.claim(&me).unwrap();
    next.reserve(device, 7, 100).unwrap().commit();
    let from_elsewhere = ProcessView::new(process(1, 3));
    after.reap_dead_and_wait(&from_elsewhere);
    assert_eq!(after.used_bytes(device), 12);
    other = open();
    drop(second);
    soon(|| {
        after.reap_dead_and_wait(&from_elsewhere);
        after.used_bytes(device) == 0
    });
    drop(other);
}

/// A directory is the manager's: it outlives its processes, and is not made over.
#[test]
fn a_directory_stays_until_it_is_removed() {
    let root = root();
    let me = Identity::current().unwrap();
    let create = |record: &[u8]| Directory::create(root.path(), &tenant("g-1"), record, None, now_ns());
    let made = create(b"record").unwrap().path().to_owned();
    let mode = |name: &str| fs::symlink_metadata(made.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("."), mode("limits"), mode("usage"), mode("grant")), (0o755, 0o644, 0o666, 0o600));
    assert_eq!(directory::read_grant(&made).unwrap(), b"record");
    assert!(!directory::is_used(&made, &me));
    directory::remove_remains(root.path()).unwrap();
    assert!(made.exists());
    assert!(create(b"other").is_err());
    assert_eq!(directory::read_grant(&made).unwrap(), b"record");
    directory::set_grant(&made, b"changed").unwrap();
    assert_eq!(directory::read_grant(&made).unwrap(), b"changed");

    Usage::open(&made).unwrap().claim(&me).unwrap();
    assert!(directory::is_used(&made, &me));

    let aside = directory::remove_granted(root.path(), "g-1").unwrap().unwrap();
    assert!(!made.exists());
    directory::discard(&aside).unwrap();
    assert_eq!(directory::remove_granted(root.path(), "g-1").unwrap(), None);
    assert_eq!(fs::read_dir(root.path().join("containers")).unwrap().count(), 0);
}

/// The folder of a user's own grants lets this user through, and is listed and watched as all others.
#[test]
fn a_users_own_grant_has_a_place_that_only_the_user_enters() {
    let root = root();
    let last_change = || directory::changed(root.path());
    let made = Directory::create(root.path(), &tenant("g-1"), b"record", Some(61_003), now_ns())
        .unwrap()
        .path()
        .to_owned();
    let home = root.path().join("users/61003");
    assert_eq!(made, home.join("g-1"));
    // Its group's bits are the list's mask: through, not more.
    assert_eq!(fs::metadata(&home).unwrap().permissions().mode() & 0o777, 0o710);
    assert_eq!(directory::list(root.path()).unwrap(), [("g-1".to_owned(), made.clone())]);
    assert_eq!(directory::locate(root.path(), "g-1"), made);
    assert_eq!(directory::user_of(&made), Some(61_003));
    assert!(directory::is_below(root.path(), &made) && !directory::is_below(root.path(), &home));
    assert_eq!(directory::user_of(&root.path().join("containers/g-1")), None);
    let changed = last_change();
    let aside = directory::remove_granted(root.path(), "g-1").unwrap().unwrap();
    assert!(last_change() > changed && !made.exists());
    assert!(directory::list(root.path()).unwrap().is_empty());
    directory::discard(&aside).unwrap();
    assert_eq!(fs::read_dir(root.path().join("containers")).unwrap().count(), 0);
}

/// A directory that has a tenant's name, and whatever lies in one, is removed without following a link.
#[test]
fn links_and_foreign_files_do_not_block_removal() {
    let root = root();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("precious"), "x").unwrap();
    let made =
        Directory::create(root.path(), &tenant("g-1"), b"record", None, now_ns()).unwrap().path().to_owned();
    symlink(outside.path(), made.join("link")).unwrap();
    fs::create_dir_all(made.join("deep/er")).unwrap();
    symlink(outside.path(), root.path().join("containers/g-2")).unwrap();
    for name in ["g-1", "g-2"] {
        let aside = directory::remove_granted(root.path(), name).unwrap().unwrap();
        directory::discard(&aside).unwrap();
    }
    assert!(outside.path().join("precious").exists());
    // A link to a record is none.
    let made =
        Directory::create(root.path(), &tenant("g-3"), b"record", None, now_ns()).unwrap().path().to_owned();
    fs::remove_file(made.join("grant")).unwrap();
    symlink(outside.path().join("precious"), made.join("grant")).unwrap();
    assert!(directory::read_grant(&made).is_err());
    assert!(directory::is_granted(&made));
}
