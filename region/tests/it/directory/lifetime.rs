//! The life of a directory: what keeps it, and what removes it.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

use vcuda_region::DeviceIndex;
use vcuda_region::clock::now_ns;
use vcuda_region::directory::{self, Directory, DirectoryError, Origin};
use vcuda_region::limits::Limits;
use vcuda_region::process::{Identity, ProcessView};
use vcuda_region::slots::Usage;

use super::{GIB, Sleeper, device, make, root, soon, start, tenant};

#[test]
fn a_directory_lives_as_long_as_a_slot_or_the_lock_is_held() {
    let root = root();
    let me = Identity::current().unwrap();
    let sleeper = Sleeper::new();
    let (directory, _) =
        Directory::create_or_join(root.path(), &tenant("a"), &sleeper.identity, now_ns()).unwrap();
    let path = directory.path().to_owned();
    sleeper.kill();
    assert_eq!(directory::remove_dead(root.path(), &me).unwrap(), 0, "its lock is held");
    drop(directory);
    soon(|| directory::remove_dead(root.path(), &me).unwrap() == 1);
    assert!(!path.exists() && directory::list(root.path()).unwrap().is_empty());

    let sleeper = Sleeper::new();
    drop(Directory::create_or_join(root.path(), &tenant("a"), &sleeper.identity, now_ns()).unwrap());
    assert_eq!(directory::remove_dead(root.path(), &me).unwrap(), 0, "its process lives");
    sleeper.kill();
    // Its process is dead and its directory is left: the next run of this name gets a new one, with its own limits.
    let mut again = tenant("a");
    again.devices[0].1.memory_limit_bytes = GIB;
    soon(|| File::open(&path).unwrap().try_lock().is_ok());
    let (directory, origin) = Directory::create_or_join(root.path(), &again, &me, now_ns()).unwrap();
    assert_eq!(origin, Origin::Created);
    assert_eq!(Limits::open(directory.path()).unwrap().memory_limit_bytes(device(0)), Ok(GIB));
}

#[test]
fn a_daemon_that_closed_everything_finds_its_directory() {
    let root = root();
    let me = Identity::current().unwrap();
    let stranger = Sleeper::new();
    let (directory, _) =
        Directory::create_or_join(root.path(), &tenant("a"), &stranger.identity, now_ns()).unwrap();
    // No slot, no descriptor: what it has is its environment.
    let sleep = |variable: &str| start(Command::new("sleep").arg("1000").env(variable, directory.path()));
    let (mut daemon, mut other) = (sleep(directory::ENV_DIRECTORY), sleep("ANOTHER"));
    stranger.kill();
    drop(directory);
    assert_eq!(directory::remove_dead(root.path(), &me).unwrap(), 0);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    soon(|| directory::remove_dead(root.path(), &me).unwrap() == 1);
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn the_lock_outlives_the_one_who_took_it_in_its_descendants() {
    let root = root();
    let me = Identity::current().unwrap();
    let stranger = Sleeper::new();
    let (directory, _) =
        Directory::create_or_join(root.path(), &tenant("a"), &stranger.identity, now_ns()).unwrap();
    stranger.kill();
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
    assert_eq!(directory::remove_dead(root.path(), &me).unwrap(), 0, "the child still holds it");
    child.kill().unwrap();
    child.wait().unwrap();
    soon(|| directory::remove_dead(root.path(), &me).unwrap() == 1);
}

#[expect(unsafe_code, reason = "closing a descriptor that was leaked on purpose")]
fn close(fd: i32) {
    // SAFETY: the test has just found that this descriptor is the directory it leaked, and no other code uses it.
    unsafe { libc::close(fd) };
}

#[test]
fn the_dead_of_a_containers_first_life_are_told_by_their_locks() {
    let root = root();
    let (directory, _) = make(root.path(), "a");
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

/// A granted directory is the manager's: it outlives its processes, and no other process removes, joins or replaces it.
#[test]
fn a_granted_directory_is_left_alone() {
    let root = root();
    let me = Identity::current().unwrap();
    let made = directory::create_granted(root.path(), &tenant("g-1"), b"record", None, now_ns()).unwrap();
    let mode = |name: &str| fs::symlink_metadata(made.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("."), mode("limits"), mode("usage"), mode("grant")), (0o755, 0o644, 0o666, 0o600));
    assert_eq!(directory::read_grant(&made).unwrap(), b"record");
    assert!(!directory::is_used(&made, &me));
    assert_eq!(directory::remove_dead(root.path(), &me).unwrap(), 0);
    assert!(matches!(
        Directory::create_or_join(root.path(), &tenant("g-1"), &me, now_ns()),
        Err(DirectoryError::Granted(_))
    ));
    // Nor is it made over.
    assert!(directory::create_granted(root.path(), &tenant("g-1"), b"other", None, now_ns()).is_err());
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
    let made =
        directory::create_granted(root.path(), &tenant("g-1"), b"record", Some(61_003), now_ns()).unwrap();
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
    let made = directory::create_granted(root.path(), &tenant("g-1"), b"record", None, now_ns()).unwrap();
    symlink(outside.path(), made.join("link")).unwrap();
    fs::create_dir_all(made.join("deep/er")).unwrap();
    symlink(outside.path(), root.path().join("containers/g-2")).unwrap();
    for name in ["g-1", "g-2"] {
        let aside = directory::remove_granted(root.path(), name).unwrap().unwrap();
        directory::discard(&aside).unwrap();
    }
    assert!(outside.path().join("precious").exists());
    // A record that others could have written, or a link to one, is none.
    let made = directory::create_granted(root.path(), &tenant("g-3"), b"record", None, now_ns()).unwrap();
    fs::set_permissions(made.join("grant"), fs::Permissions::from_mode(0o666)).unwrap();
    assert!(directory::read_grant(&made).is_err());
    fs::remove_file(made.join("grant")).unwrap();
    symlink(outside.path().join("precious"), made.join("grant")).unwrap();
    assert!(directory::read_grant(&made).is_err());
    assert!(directory::is_granted(&made));
}
