//! Tests of the directory: wrong, damaged, of another version, without space.

use super::processes::Place;
use super::*;
use crate::MachineError;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

fn state(dir: &Path) -> PathBuf {
    let mut names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    names.find(|path| path.file_name().unwrap().to_string_lossy().starts_with("state.")).unwrap()
}

fn refusal(dir: &Path) -> String {
    let message = Machine::open(dir).map(|_| ()).unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

/// The user of a pod is seldom the one that made the machine.
#[test]
fn other_users_can_open_what_is_in_a_directory_that_they_may_enter() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::none("shared");
    let machine = Machine::open_or_create(&place.dir).unwrap();
    let _client = machine.attach(1, "a").unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place.dir), 0o700, "its own directory keeps others out");
    for entry in std::fs::read_dir(&place.dir).unwrap() {
        let entry = entry.unwrap();
        let wanted = match entry.file_type().unwrap().is_dir() {
            true => 0o777,
            false => 0o666,
        };
        if entry.file_name() != "machine.toml" {
            assert_eq!(mode(&entry.path()), wanted, "{entry:?}");
        }
    }
}

#[test]
fn a_machine_is_made_once_and_opened_by_all() {
    let place = Place::none("made");
    assert!(matches!(Machine::open(&place.dir), Err(MachineError::Io { .. })));
    let first = Machine::open_or_create(&place.dir).unwrap();
    let second = Machine::open_or_create(&place.dir).unwrap();
    assert_eq!(first.config(), second.config());
    assert_eq!(first.config().gpus[0].memory_bytes, 80 << 30);
    let client = first.attach(1, "a").unwrap();
    client.take(0, 1 << 30).unwrap();
    assert_eq!(second.memory(0).used_bytes, 1 << 30);
    // Two handles in one process do not consider each other dead.
    let other = second.attach(1, "b").unwrap();
    other.take(0, 1 << 30).unwrap();
    assert_eq!(first.memory(0).used_bytes, 2 << 30);
    drop(client);
    drop(first);
    assert_eq!(second.memory(0).used_bytes, 1 << 30);
}

#[test]
fn another_configuration_is_refused() {
    let place = Place::new("configured", &config());
    assert!(Machine::create(&place.dir, &config()).is_ok());
    let message = Machine::create(&place.dir, &Config::default()).map(|_| ()).unwrap_err().to_string();
    assert!(message.contains("machine.toml"), "{message}");
    // Faults and kernels may change while the machine is used, the GPUs may not.
    let mut changed = Config::read(&place.dir.join("machine.toml")).unwrap();
    changed.faults.fail_nth_allocation = Some(3);
    std::fs::write(place.dir.join("machine.toml"), changed.to_toml().unwrap()).unwrap();
    assert_eq!(Machine::open(&place.dir).unwrap().config().faults.fail_nth_allocation, Some(3));
    changed.gpus[0].memory_bytes = 1 << 30;
    std::fs::write(place.dir.join("machine.toml"), changed.to_toml().unwrap()).unwrap();
    assert!(refusal(&place.dir).contains("remove the file"));
}

#[test]
fn damage_is_named() {
    let place = Place::new("damaged", &config());
    let path = state(&place.dir);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&9u64.to_le_bytes(), 8).unwrap();
    assert!(refusal(&place.dir).contains("version 9"));
    file.write_all_at(b"something", 0).unwrap();
    assert!(refusal(&place.dir).contains("something else"));
    file.set_len(100).unwrap();
    assert!(refusal(&place.dir).contains("100 bytes"));
    std::fs::write(place.dir.join("machine.toml"), "slice_ns = 'long'").unwrap();
    assert!(refusal(&place.dir).contains("machine.toml"));
    std::fs::write(place.dir.join("machine.toml"), "slice_ns = 3").unwrap();
    assert!(refusal(&place.dir).contains("slice_ns = 3"));
}

#[test]
fn a_damaged_core_answers_with_errors() {
    let place = Place::new("core", &config());
    let file = std::fs::File::options().write(true).open(state(&place.dir)).unwrap();
    let genesis = crate::layout::buffer(crate::layout::BIRTH_BUFFER) as u64 * 8;
    file.write_all_at(&[0xff; 256], genesis + 8).unwrap();
    let machine = Machine::open(&place.dir).unwrap();
    assert!(matches!(machine.attach(1, "a"), Err(MachineError::State { .. })));
    assert_eq!(machine.report(), crate::Report::default());
}

#[test]
fn the_file_is_sparse() {
    use std::os::unix::fs::MetadataExt;
    let place = Place::new("sparse", &config());
    let (_client, _) = tenant(place.machine(), 1);
    let blocks = state(&place.dir).metadata().unwrap().blocks() * 512;
    assert!(blocks < 1 << 20, "{blocks} bytes on disk");
}

/// On a nearly full file system there are errors, not signals.
pub(super) fn full(machine: &Machine) {
    let mut refusals = 0;
    let client = machine.attach(1, "full").unwrap();
    let context = client.context_create(0).unwrap();
    let mut streams = Vec::new();
    for _ in 0..64 {
        match client.stream_create(context, 0) {
            Ok(stream) => streams.push(stream),
            Err(refused) => {
                assert_eq!(refused, Refused::DiskFull);
                refusals += 1;
            }
        }
    }
    assert!(refusals > 0 && !streams.is_empty());
    for stream in &streams {
        for _ in 0..1024 {
            client.submit(*stream, kernel(1)).unwrap();
        }
        client.wait_stream(*stream);
    }
    assert!(machine.attach(2, "later").is_ok_and(|later| later.take(0, 1).is_ok()));
}

#[test]
fn a_full_disk_is_an_error_and_no_signal() {
    let place = Place::none("full");
    let script =
        r#"mkdir -p "$1" && mount -t tmpfs -o size=1m none "$1" && cp "$2" "$1" && shift 2 && exec "$@""#;
    let may_mount = std::process::Command::new("unshare").args(["--mount", "true"]).status();
    if !may_mount.is_ok_and(|status| status.success()) {
        println!("skipped: mounting a small file system is not permitted here");
        return;
    }
    let toml = std::env::temp_dir().join(format!("vcuda-full-{}", std::process::id())).join("machine.toml");
    std::fs::create_dir_all(toml.parent().unwrap()).unwrap();
    let mut real = config();
    real.clock = ClockKind::Real;
    std::fs::write(&toml, real.to_toml().unwrap()).unwrap();
    let (dir, file) = (place.dir.to_str().unwrap(), toml.to_str().unwrap());
    let by = ["unshare", "--mount", "sh", "-c", script, "sh", dir, file];
    let status = place.start_by(&by, "full", 0).end();
    std::fs::remove_dir_all(toml.parent().unwrap()).unwrap();
    assert!(status.success(), "{status}");
}
