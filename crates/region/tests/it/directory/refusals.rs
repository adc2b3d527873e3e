//! Names, places and damaged files that are refused with one clear line.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use vcuda_quota::DeviceConfig;
use vcuda_region::directory::{Directory, DirectoryError, GRANT, Tenant, read_grant};
use vcuda_region::limits::{Limits, OpenError};
use vcuda_region::slots::Usage;

use super::{GIB, make, root, tenant, uuid};

#[test]
fn bad_names_and_places_get_one_clear_line() {
    let root = root();
    let try_make = |root: &Path, tenant: &Tenant| Directory::create(root, tenant, b"", None, 0).unwrap_err();
    for name in ["", ".", "..", ".a", "a/b", "a b", "a\n", "\u{e9}", &"a".repeat(65)] {
        let error = try_make(root.path(), &tenant(name));
        assert!(matches!(error, DirectoryError::Name(_)), "{error}");
        assert_eq!(error.to_string().lines().count(), 1);
    }
    let none = Tenant::new("a", Vec::new());
    assert!(matches!(try_make(root.path(), &none), DirectoryError::Devices(0)));
    let zero = Tenant::new("a", vec![(uuid(1), DeviceConfig::new(GIB, 0))]);
    assert!(matches!(try_make(root.path(), &zero), DirectoryError::OutOfRange(_)));

    let open_to_all = root.path().join("open");
    fs::create_dir(&open_to_all).unwrap();
    fs::set_permissions(&open_to_all, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(try_make(&open_to_all, &tenant("a")), DirectoryError::Unsafe(_)));
    let link = root.path().join("link");
    symlink(root.path(), &link).unwrap();
    assert!(matches!(try_make(&link, &tenant("a")), DirectoryError::Unsafe(_)));
    fs::create_dir_all(root.path().join("containers")).unwrap();
    symlink("/tmp", root.path().join("containers/linked")).unwrap();
    assert!(matches!(try_make(root.path(), &tenant("linked")), DirectoryError::Io(..)));
    fs::write(root.path().join("containers/file"), "").unwrap();
    assert!(matches!(try_make(root.path(), &tenant("file")), DirectoryError::Io(..)));
    let error = try_make(Path::new("/proc/vcuda"), &tenant("a"));
    assert!(matches!(error, DirectoryError::Io(..)), "{error}");
}

/// Gives `path` to another user. False if this test may not, which then says so.
#[expect(clippy::print_stdout, reason = "says what the test leaves out")]
fn is_given_away(path: &Path) -> bool {
    let given = chown(path, Some(65_534), None);
    if let Err(error) = &given {
        println!("skipped in part: no file can be given to another user: {error}");
    }
    given.is_ok()
}

#[test]
fn a_root_that_another_user_can_write_is_refused() {
    let make_in = |root: &Path| Directory::create(root, &tenant("a"), b"", None, 0);
    let permit = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for mode in [0o720, 0o702, 0o770, 0o775, 0o757, 0o777] {
        let root = root();
        permit(root.path(), mode);
        let error = make_in(root.path()).unwrap_err();
        assert!(matches!(&error, DirectoryError::Unsafe(path) if path == root.path()), "{mode:o}: {error}");
        permit(root.path(), 0o755);
        let containers = root.path().join("containers");
        permit(&containers, mode);
        let error = make_in(root.path()).unwrap_err();
        assert!(matches!(&error, DirectoryError::Unsafe(path) if *path == containers), "{mode:o}: {error}");
        permit(&containers, 0o755);
        make_in(root.path()).unwrap();
    }
    for name in ["", "containers"] {
        let root = root();
        fs::create_dir(root.path().join("containers")).unwrap();
        if is_given_away(&root.path().join(name)) {
            let error = make_in(root.path()).unwrap_err();
            assert!(matches!(error, DirectoryError::Unsafe(_)), "{error}");
        }
    }
}

#[test]
fn a_record_that_another_user_could_have_written_is_not_read() {
    let made = || {
        let root = root();
        let path =
            Directory::create(root.path(), &tenant("a"), b"record", None, 0).unwrap().path().to_owned();
        (root, path)
    };
    let (_root, path) = made();
    assert_eq!(read_grant(&path).unwrap(), b"record");
    let record = path.join(GRANT);
    for mode in [0o620, 0o602, 0o666] {
        fs::set_permissions(&record, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(read_grant(&path).unwrap_err().kind(), io::ErrorKind::Other);
    }
    fs::set_permissions(&record, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(read_grant(&path).unwrap(), b"record");
    // The record's owner alone does not prove who put it there: the directory's owner may have renamed it.
    for name in ["", GRANT] {
        let (_root, path) = made();
        if is_given_away(&path.join(name)) {
            assert_eq!(read_grant(&path).unwrap_err().kind(), io::ErrorKind::Other);
        }
    }
}

#[test]
fn a_record_is_a_file_of_64_kib_at_most() {
    let root = root();
    let path = Directory::create(root.path(), &tenant("a"), b"record", None, 0).unwrap().path().to_owned();
    let record = path.join(GRANT);
    fs::write(&record, vec![b'x'; 64 << 10]).unwrap();
    assert_eq!(read_grant(&path).unwrap().len(), 64 << 10);
    fs::write(&record, vec![b'x'; (64 << 10) + 1]).unwrap();
    assert_eq!(read_grant(&path).unwrap_err().kind(), io::ErrorKind::Other);
    fs::remove_file(&record).unwrap();
    let made = std::process::Command::new("mkfifo").arg("-m").arg("600").arg(&record).status().unwrap();
    assert!(made.success());
    assert_eq!(read_grant(&path).unwrap_err().kind(), io::ErrorKind::Other, "it is not waited for a writer");
}

/// Makes a directory, changes `file` in it, and says what opening it gives.
fn opened_after(file: &str, change: impl FnOnce(&PathBuf)) -> OpenError {
    let root = root();
    let directory = make(root.path(), "a");
    change(&directory.path().join(file));
    match file {
        "limits" => Limits::open(directory.path()).unwrap_err(),
        _ => Usage::open(directory.path()).unwrap_err(),
    }
}

#[test]
fn a_damaged_file_is_refused_with_one_clear_line() {
    let write_at = |path: &PathBuf, offset, bytes: &[u8]| {
        OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
    };
    let truncate =
        |path: &PathBuf, size| OpenOptions::new().write(true).open(path).unwrap().set_len(size).unwrap();
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
        assert!(errors[1..4].iter().all(|error| matches!(error, OpenError::Size { .. })), "{errors:?}");
        assert!(matches!(errors[4], OpenError::Foreign(_)));
        assert!(matches!(errors[5], OpenError::Version { found: 99, .. }));
        assert!(matches!(errors[6], OpenError::Symlink(_)));
        assert!(matches!(errors[7], OpenError::NotAFile(_) | OpenError::Foreign(_)), "{:?}", errors[7]);
    }
}
