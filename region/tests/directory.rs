//! A tenant's directory on a real file system: made, joined, refused, removed, by living and by killed processes.
#![cfg(not(any(loom, miri)))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use vcuda_limiter::token_bucket::Pace;
use vcuda_quota::{DeviceConfig, Policy};
use vcuda_region::clock::now_ns;
use vcuda_region::directory::{self, Directory, DirectoryError, Origin, Tenant};
use vcuda_region::limits::{Limits, LimitsWriter, OpenError, WriteError};
use vcuda_region::process::{Identity, ProcessView};
use vcuda_region::shared::ObjectKey;
use vcuda_region::slots::Usage;
use vcuda_region::usage_reader::UsageReader;
use vcuda_region::{DeviceIndex, GpuUuid};

const GIB: u64 = 1 << 30;

fn uuid(byte: u8) -> GpuUuid {
    GpuUuid::from_bytes([byte; 16])
}

fn tenant(name: &str) -> Tenant {
    let devices = vec![
        (uuid(1), DeviceConfig::new(4 * GIB, 300)),
        (uuid(2), DeviceConfig::new(8 * GIB, 1000)),
    ];
    Tenant {
        name: name.to_owned(),
        devices,
    }
}

fn root() -> tempfile::TempDir {
    tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir()
        .unwrap()
}

fn make(root: &Path, name: &str) -> (Directory, Origin) {
    Directory::create_or_join(root, &tenant(name), &Identity::current().unwrap(), now_ns()).unwrap()
}

fn device(index: usize) -> DeviceIndex {
    DeviceIndex::new(index).unwrap()
}

/// Waits for what a closed lock gives back. Not asserted at once: a process that another test of this binary starts at that
/// moment holds a copy of the descriptor, and so the lock, until it runs its program.
fn soon(mut done: impl FnMut() -> bool) {
    let in_time = (0..500).any(|_| {
        let done = done();
        if !done {
            std::thread::sleep(Duration::from_millis(10));
        }
        done
    });
    assert!(in_time, "not within 5 s");
}

/// A living process, and who it is.
struct Sleeper {
    child: Child,
    identity: Identity,
}

impl Sleeper {
    fn new() -> Self {
        let child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        let start_ticks = stat
            .rsplit_once(") ")
            .unwrap()
            .1
            .split(' ')
            .nth(19)
            .unwrap()
            .parse()
            .unwrap();
        let identity = Identity {
            pid: child.id(),
            start_ticks,
            ..Identity::current().unwrap()
        };
        Self { child, identity }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn a_new_directory_says_what_it_was_given() {
    let root = root();
    let (directory, origin) = make(root.path(), "a");
    assert_eq!(origin, Origin::Created);
    assert_eq!(directory.path(), root.path().join("containers/a"));
    // Any user of a container may read and count; on the host the way there is closed.
    let mode = |path: PathBuf| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(root.path().join("containers")), 0o700);
    assert_eq!(mode(directory.path().to_owned()), 0o755);
    for (file, expected) in [("limits", 0o644), ("usage", 0o666)] {
        let metadata = fs::metadata(directory.path().join(file)).unwrap();
        assert_eq!(metadata.mode() & 0o777, expected);
        assert!(
            metadata.blocks() * 512 >= metadata.len(),
            "the space of {file} is reserved"
        );
    }
    let limits = Limits::open(directory.path()).unwrap();
    assert_eq!(limits.name(), "a");
    assert_eq!(
        limits.devices().map(|(_, uuid)| uuid).collect::<Vec<_>>(),
        [uuid(1), uuid(2)]
    );
    assert_eq!(limits.find(&uuid(2)), Some(device(1)));
    assert_eq!(limits.find(&uuid(3)), None);
    assert_eq!(limits.memory_limit_bytes(device(1)), Ok(8 * GIB));
    assert!(limits.is_metered(device(0)) && !limits.is_metered(device(1)));
    assert_eq!(limits.config(device(0)).unwrap(), DeviceConfig::new(4 * GIB, 300));
    assert_eq!(
        directory::list(root.path()).unwrap(),
        [("a".to_owned(), directory.path().to_owned())]
    );
}

#[test]
fn a_change_is_seen_by_who_has_the_limits_open() {
    let root = root();
    let (directory, _) = make(root.path(), "a");
    let limits = Limits::open(directory.path()).unwrap();
    let mut writer = LimitsWriter::open(directory.path()).unwrap();
    let usage = Usage::open(directory.path()).unwrap();
    let told = usage.limits_notice().load(Ordering::Relaxed);
    let before = limits.pace(device(0)).unwrap();
    let config = DeviceConfig {
        policy: Policy::Burst,
        ..DeviceConfig::new(GIB, 500)
    };
    writer
        .set_config(device(0), &config, before.epoch_ns + 1_000_000)
        .unwrap();
    let told_again = usage.limits_notice().load(Ordering::Relaxed);
    assert_ne!(told_again, told, "it is told to look");
    assert_eq!(
        limits.memory_limit_bytes(device(0)),
        Ok(4 * GIB),
        "until it looks"
    );
    assert!(limits.follow(now_ns()));
    assert_eq!(limits.memory_limit_bytes(device(0)), Ok(GIB));
    assert_eq!(limits.config(device(0)), Ok(config));
    assert_eq!(limits.generation(), 1);
    let after = limits.pace(device(0)).unwrap();
    assert_eq!((after.rate_permille, after.credit_ns), (500, 300_000));
    writer
        .set_config(device(0), &DeviceConfig::new(GIB, 1000), now_ns())
        .unwrap();
    let now = now_ns();
    assert!(limits.follow(now) && !limits.are_older(10, now + 9) && limits.are_older(10, now + 11));
    assert!(!limits.is_metered(device(0)));
    // Of its pace it is told only if launches are metered from now on, or not any more.
    let notice = || usage.limits_notice().load(Ordering::Relaxed);
    let (told, pace) = (notice(), limits.pace(device(0)).unwrap());
    let scaled = Pace {
        scale_permille: 900,
        ..pace
    };
    writer.set_pace(device(0), &scaled).unwrap();
    assert_eq!(notice(), told);
    let metered = Pace {
        metered: true,
        ..scaled
    };
    writer.set_pace(device(0), &metered).unwrap();
    assert_ne!(notice(), told);
    let wrong = DeviceConfig {
        cap_permille: 1001,
        ..config
    };
    assert!(matches!(
        writer.set_config(device(0), &wrong, 0),
        Err(WriteError::OutOfRange)
    ));
}

#[test]
fn runs_of_one_name_share_a_directory_and_its_memory() {
    let root = root();
    let (first, _) = make(root.path(), "a");
    let other = Sleeper::new();
    let (second, origin) =
        Directory::create_or_join(root.path(), &tenant("a"), &other.identity, now_ns()).unwrap();
    assert_eq!((origin, second.path()), (Origin::Joined, first.path()));
    let usage = Usage::open(first.path()).unwrap();
    assert_eq!(usage.processes().count(), 2);
    // The slot that was taken for the process is taken over by it, not doubled.
    let theirs = Usage::open(first.path()).unwrap();
    let slot = theirs.claim(&other.identity).unwrap();
    assert_eq!(usage.processes().count(), 2);
    slot.reserve(device(0), 3 * GIB, 4 * GIB).unwrap().commit();
    let mine = usage.claim(&Identity::current().unwrap()).unwrap();
    let denied = mine.reserve(device(0), 2 * GIB, 4 * GIB).unwrap_err();
    assert_eq!(denied.used_bytes, 3 * GIB);
    mine.count_denied(device(0));
    mine.reserve(device(0), GIB, 4 * GIB).unwrap().commit();
    assert_eq!(usage.used_bytes(device(0)), 4 * GIB);

    let reader = UsageReader::open(first.path()).unwrap();
    let view = ProcessView::new(Identity::current().unwrap());
    let seen = reader.processes(2, &view).unwrap();
    let used: Vec<_> = seen.iter().map(|process| process.devices[0].used_bytes).collect();
    assert_eq!(used.iter().sum::<u64>(), 4 * GIB);
    assert_eq!(reader.bucket(device(0)).unwrap().denied, 1);
    let memory = reader.memory(device(0)).unwrap();
    assert_eq!((memory.used_bytes, memory.shared_bytes), (4 * GIB, 0));
    // What is shared is seen once, with its payer or without.
    let key = ObjectKey::of(b"exported");
    let _exported = slot.share(key, device(0), 2 * GIB).unwrap();
    let imported = mine.join(key).unwrap();
    let memory = reader.memory(device(0)).unwrap();
    assert_eq!((memory.used_bytes, memory.shared_bytes), (4 * GIB, 0));

    // Killed: out of sight at once, and its bytes are free after the next look for the dead.
    other.kill();
    // A process that another test starts has a copy of the descriptor until it runs its program.
    drop(theirs);
    soon(|| {
        let seen = reader.processes(2, &view).unwrap();
        let used = seen.iter().map(|process| process.devices[0].used_bytes);
        used.sum::<u64>() == GIB
    });
    soon(|| usage.reap_dead_and_wait(&view).cleared == 1);
    // What it exported stays counted for as long as the other holds it.
    let memory = reader.memory(device(0)).unwrap();
    assert_eq!((memory.used_bytes, memory.shared_bytes), (3 * GIB, 2 * GIB));
    assert_eq!(usage.used_bytes(device(0)), 3 * GIB);
    mine.part(imported);
    assert_eq!(usage.used_bytes(device(0)), GIB);
    assert_eq!(reader.memory(device(0)).unwrap().used_bytes, GIB);
    mine.reserve(device(0), 3 * GIB, 4 * GIB).unwrap().commit();
}

#[test]
fn a_directory_lives_as_long_as_a_slot_or_the_lock_is_held() {
    let root = root();
    let me = Identity::current().unwrap();
    let sleeper = Sleeper::new();
    let (directory, _) =
        Directory::create_or_join(root.path(), &tenant("a"), &sleeper.identity, now_ns()).unwrap();
    let path = directory.path().to_owned();
    sleeper.kill();
    assert_eq!(
        directory::remove_dead(root.path(), &me).unwrap(),
        0,
        "its lock is held"
    );
    drop(directory);
    soon(|| directory::remove_dead(root.path(), &me).unwrap() == 1);
    assert!(!path.exists() && directory::list(root.path()).unwrap().is_empty());

    let sleeper = Sleeper::new();
    drop(Directory::create_or_join(root.path(), &tenant("a"), &sleeper.identity, now_ns()).unwrap());
    assert_eq!(
        directory::remove_dead(root.path(), &me).unwrap(),
        0,
        "its process lives"
    );
    sleeper.kill();
    // Dead, and nobody removed it: the next run of this name gets a new one, with its own limits.
    let mut again = tenant("a");
    again.devices[0].1.memory_limit_bytes = GIB;
    soon(|| File::open(&path).unwrap().try_lock().is_ok());
    let (directory, origin) = Directory::create_or_join(root.path(), &again, &me, now_ns()).unwrap();
    assert_eq!(origin, Origin::Created);
    assert_eq!(
        Limits::open(directory.path())
            .unwrap()
            .memory_limit_bytes(device(0)),
        Ok(GIB)
    );
}

#[test]
fn a_daemon_that_closed_everything_finds_its_directory() {
    let root = root();
    let me = Identity::current().unwrap();
    let stranger = Sleeper::new();
    let (directory, _) =
        Directory::create_or_join(root.path(), &tenant("a"), &stranger.identity, now_ns()).unwrap();
    // No slot, no descriptor: what it has is its environment.
    let start = |variable: &str| {
        Command::new("sleep")
            .arg("1000")
            .env(variable, directory.path())
            .spawn()
            .unwrap()
    };
    let (mut daemon, mut other) = (start(directory::ENV_DIRECTORY), start("ANOTHER"));
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
    let mut child = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Ours is closed, as if we had ended: the child's copy remains.
    for entry in fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let is_ours = fs::read_link(entry.path()).is_ok_and(|target| target.starts_with(root.path()));
        if is_ours {
            let fd: i32 = entry.file_name().to_str().unwrap().parse().unwrap();
            close(fd);
        }
    }
    assert_eq!(
        directory::remove_dead(root.path(), &me).unwrap(),
        0,
        "the child still holds it"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    soon(|| directory::remove_dead(root.path(), &me).unwrap() == 1);
}

#[expect(unsafe_code, reason = "closing a descriptor that was leaked on purpose")]
fn close(fd: i32) {
    // SAFETY: the test has just found that this descriptor is the directory it leaked, and nobody else uses it.
    unsafe { libc::close(fd) };
}

#[test]
fn bad_names_and_places_get_one_clear_line() {
    let root = root();
    let me = Identity::current().unwrap();
    let try_make =
        |root: &Path, tenant: &Tenant| Directory::create_or_join(root, tenant, &me, 0).unwrap_err();
    for name in [
        "",
        ".",
        "..",
        ".a",
        "a/b",
        "a b",
        "a\n",
        "\u{e9}",
        &"a".repeat(65),
    ] {
        let error = try_make(root.path(), &tenant(name));
        assert!(matches!(error, DirectoryError::Name(_)), "{error}");
        assert_eq!(error.to_string().lines().count(), 1);
    }
    let none = Tenant {
        name: "a".to_owned(),
        devices: Vec::new(),
    };
    assert!(matches!(try_make(root.path(), &none), DirectoryError::Devices(0)));
    let zero = Tenant {
        name: "a".to_owned(),
        devices: vec![(uuid(1), DeviceConfig::new(GIB, 0))],
    };
    assert!(matches!(
        try_make(root.path(), &zero),
        DirectoryError::OutOfRange(_)
    ));

    let open_to_all = root.path().join("open");
    fs::create_dir(&open_to_all).unwrap();
    fs::set_permissions(&open_to_all, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(
        try_make(&open_to_all, &tenant("a")),
        DirectoryError::Unsafe(_)
    ));
    let link = root.path().join("link");
    symlink(root.path(), &link).unwrap();
    assert!(matches!(try_make(&link, &tenant("a")), DirectoryError::Unsafe(_)));
    fs::create_dir_all(root.path().join("containers")).unwrap();
    symlink("/tmp", root.path().join("containers/linked")).unwrap();
    assert!(matches!(
        try_make(root.path(), &tenant("linked")),
        DirectoryError::Unsafe(_)
    ));
    fs::write(root.path().join("containers/file"), "").unwrap();
    assert!(matches!(
        try_make(root.path(), &tenant("file")),
        DirectoryError::Unsafe(_)
    ));
    let error = try_make(Path::new("/proc/vcuda"), &tenant("a"));
    assert!(matches!(error, DirectoryError::Io(..)), "{error}");
}

/// Makes a directory, changes `file` in it, and says what opening it gives.
fn opened_after(file: &str, change: impl FnOnce(&PathBuf)) -> OpenError {
    let root = root();
    let (directory, _) = make(root.path(), "a");
    change(&directory.path().join(file));
    match file {
        "limits" => Limits::open(directory.path()).unwrap_err(),
        _ => Usage::open(directory.path()).unwrap_err(),
    }
}

#[test]
fn a_damaged_file_is_refused_with_one_clear_line() {
    let write_at = |path: &PathBuf, offset, bytes: &[u8]| {
        OpenOptions::new()
            .write(true)
            .open(path)
            .unwrap()
            .write_all_at(bytes, offset)
            .unwrap();
    };
    let truncate = |path: &PathBuf, size| {
        OpenOptions::new()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(size)
            .unwrap()
    };
    for file in ["limits", "usage"] {
        let errors = [
            opened_after(file, |path| fs::remove_file(path).unwrap()),
            opened_after(file, |path| truncate(path, 0)),
            opened_after(file, |path| truncate(path, 4096)),
            opened_after(file, |path| truncate(path, 1 << 30)),
            opened_after(file, |path| write_at(path, 0, &[0; 8])),
            opened_after(file, |path| write_at(path, 8, &[99, 0, 0, 0, 99])),
            opened_after(file, |path| {
                fs::rename(path, path.with_extension("real")).unwrap();
                symlink(path.with_extension("real"), path).unwrap();
            }),
            opened_after(file, |path| {
                fs::remove_file(path).unwrap();
                fs::create_dir(path).unwrap();
            }),
        ];
        for error in &errors {
            assert_eq!(error.to_string().lines().count(), 1);
            assert!(error.to_string().contains(file), "{error}");
        }
        assert!(matches!(errors[0], OpenError::Io(..)));
        assert!(
            errors[1..4]
                .iter()
                .all(|error| matches!(error, OpenError::Size { .. })),
            "{errors:?}"
        );
        assert!(matches!(errors[4], OpenError::Foreign(_)));
        assert!(matches!(errors[5], OpenError::Version { found: 99, .. }));
        assert!(matches!(errors[6], OpenError::Symlink(_)));
        assert!(
            matches!(errors[7], OpenError::NotAFile(_) | OpenError::Foreign(_)),
            "{:?}",
            errors[7]
        );
    }
}

#[test]
fn the_dead_of_a_containers_first_life_are_told_by_their_locks() {
    let root = root();
    let (directory, _) = make(root.path(), "a");
    let open = || Usage::open(directory.path()).unwrap();
    let device = DeviceIndex::new(0).unwrap();
    let process = |pid, pid_namespace| Identity {
        pid,
        pid_namespace,
        ..Identity::current().unwrap()
    };
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
    // A slot that another holds now is his, with his own lock.
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

/// A granted directory is the manager's: it outlives its processes, and nobody else removes, joins or replaces it.
#[test]
fn a_granted_directory_is_left_alone() {
    let root = root();
    let me = Identity::current().unwrap();
    let made = directory::create_granted(root.path(), &tenant("g-1"), b"record", now_ns()).unwrap();
    let mode = |name: &str| {
        fs::symlink_metadata(made.join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(
        (mode("."), mode("limits"), mode("usage"), mode("grant")),
        (0o755, 0o644, 0o666, 0o600)
    );
    assert_eq!(directory::read_grant(&made).unwrap(), b"record");
    assert!(!directory::is_used(&made, &me));
    assert_eq!(directory::remove_dead(root.path(), &me).unwrap(), 0);
    assert!(matches!(
        Directory::create_or_join(root.path(), &tenant("g-1"), &me, now_ns()),
        Err(DirectoryError::Granted(_))
    ));
    // Nor is it made over.
    assert!(directory::create_granted(root.path(), &tenant("g-1"), b"other", now_ns()).is_err());
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

/// Whatever has a container's name, or lies in its directory, is taken away without following a link.
#[test]
fn links_and_foreign_files_do_not_block_removal() {
    let root = root();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("precious"), "x").unwrap();
    let made = directory::create_granted(root.path(), &tenant("g-1"), b"record", now_ns()).unwrap();
    symlink(outside.path(), made.join("link")).unwrap();
    fs::create_dir_all(made.join("deep/er")).unwrap();
    symlink(outside.path(), root.path().join("containers/g-2")).unwrap();
    for name in ["g-1", "g-2"] {
        let aside = directory::remove_granted(root.path(), name).unwrap().unwrap();
        directory::discard(&aside).unwrap();
    }
    assert!(outside.path().join("precious").exists());
    // A record that others could have written, or a link to one, is none.
    let made = directory::create_granted(root.path(), &tenant("g-3"), b"record", now_ns()).unwrap();
    fs::set_permissions(made.join("grant"), fs::Permissions::from_mode(0o666)).unwrap();
    assert!(directory::read_grant(&made).is_err());
    fs::remove_file(made.join("grant")).unwrap();
    symlink(outside.path().join("precious"), made.join("grant")).unwrap();
    assert!(directory::read_grant(&made).is_err());
    assert!(directory::is_granted(&made));
}
