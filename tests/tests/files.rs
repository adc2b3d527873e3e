//! A container's two files in the hands of its processes, or of nobody who means well: damaged, cut, replaced, of another
//! release, on a full disk, while tenants run. Who stands outside notices nothing (I12), who stands inside gets no memory
//! or goes on with its quota (I11), and the library under running processes can be exchanged (I13).
//!
//! `VCUDA_SOAK` changes each byte of the files instead of samples.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it should be"
)]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use vcuda_region::layout::{OLDEST_VERSION, VERSION};
use vcuda_tests::{
    Commanded, Door, Fixture, MIB, Running, Tenant, Tmpfs, app, eventually, of_release, release_dir, text,
};

/// A machine whose contexts and modules cost little.
const SMALL_CONTEXTS: &str =
    "context_bytes = \"4MiB\"\ngranularity_bytes = 1\n[[gpus]]\nmemory_bytes = \"80GiB\"\n";
/// With the one variable of the programs' module.
const CONTEXT: u64 = 4 * MIB + 8;
const QUOTA: [&str; 4] = ["--memory", "64MiB", "--cores", "50"];

fn obey(tenant: &Tenant<'_>) -> Commanded {
    Commanded::start(&mut tenant.command(app("obey", Door::Dlsym)))
}

/// What a command says that must come to an end by itself.
fn ends(command: &mut Command) -> Output {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually(&format!("{command:?} ends"), Duration::from_secs(20), || {
        child.try_wait().unwrap().is_some()
    });
    child.wait_with_output().unwrap()
}

/// What a running process of the container gets once its file is damaged.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Inside {
    /// Its quota, to the byte: what it has open is not what was changed.
    Quota,
    /// No memory.
    Nothing,
    /// An answer.
    Answer,
    /// It may be killed by the kernel (SIGBUS): it is its own container's doing.
    Bus,
}

type Damage = (&'static str, &'static str, Inside, fn(&Path));
type Replacement = (&'static str, fn(&Path));

fn cut(path: &Path, bytes: u64) {
    OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(bytes)
        .unwrap();
}

fn overwrite(path: &Path, with: u8) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    let size = usize::try_from(file.metadata().unwrap().len()).unwrap();
    file.write_all_at(&vec![with; size], 0).unwrap();
}

/// Puts another thing in the file's place, as a rename does: who has the file open keeps it.
fn replace(path: &Path, make: impl FnOnce(&Path)) {
    let aside = path.with_extension("aside");
    make(&aside);
    if aside.is_dir() {
        fs::remove_file(path).unwrap();
    }
    fs::rename(&aside, path).unwrap();
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// What each of the two files can be made.
const CHANGES: [Damage; 12] = [
    ("limits", "cut to nothing", Inside::Nothing, |path| cut(path, 0)),
    ("limits", "cut to some bytes", Inside::Nothing, |path| {
        cut(path, 100)
    }),
    ("limits", "cut to a page", Inside::Nothing, |path| cut(path, 4096)),
    ("limits", "longer", Inside::Answer, |path| cut(path, 1 << 20)),
    ("limits", "zeros", Inside::Nothing, |path| overwrite(path, 0)),
    ("limits", "ones", Inside::Nothing, |path| overwrite(path, 0xff)),
    ("usage", "cut to nothing", Inside::Bus, |path| cut(path, 0)),
    ("usage", "cut to some bytes", Inside::Bus, |path| cut(path, 100)),
    ("usage", "cut to a page", Inside::Bus, |path| cut(path, 4096)),
    ("usage", "longer", Inside::Quota, |path| cut(path, 64 << 20)),
    ("usage", "zeros", Inside::Answer, |path| overwrite(path, 0)),
    ("usage", "ones", Inside::Answer, |path| overwrite(path, 0xff)),
];

/// What either of them can be replaced by: who has it open keeps what it was.
const REPLACEMENTS: [Replacement; 8] = [
    ("gone", |path| fs::remove_file(path).unwrap()),
    ("a link", |path| {
        let real = path.with_extension("real");
        fs::rename(path, &real).unwrap();
        symlink(real, path).unwrap();
    }),
    ("a link to zeros", |path| {
        replace(path, |path| symlink("/dev/zero", path).unwrap());
    }),
    ("a pipe", |path| replace(path, pipe)),
    ("a directory", |path| {
        replace(path, |path| fs::create_dir(path).unwrap());
    }),
    ("empty", |path| {
        replace(path, |path| fs::write(path, "").unwrap());
    }),
    ("the other file", |path| {
        let is_limits = path.ends_with("limits");
        let other = if is_limits { "usage" } else { "limits" };
        replace(path, |aside| {
            fs::copy(path.with_file_name(other), aside).unwrap();
        });
    }),
    ("of another version", |path| {
        replace(path, |aside| {
            let mut bytes = fs::read(path).unwrap();
            bytes[8..16].fill(0xee);
            fs::write(aside, bytes).unwrap();
        });
    }),
];

fn damages() -> Vec<Damage> {
    let replaced = ["limits", "usage"].into_iter().flat_map(|file| {
        let kinds = REPLACEMENTS.into_iter();
        kinds.map(move |(what, make)| (file, what, Inside::Quota, make))
    });
    CHANGES.into_iter().chain(replaced).collect()
}

#[test]
fn damaged_files_harm_their_own_container_only() {
    let fixture = Fixture::with_config(SMALL_CONTEXTS);
    let bystander = fixture.keep("bystander", &QUOTA);
    let mut outside = obey(&bystander);
    let arbiter = arbiter(&fixture);
    // One that looks all the time, as a manager does.
    let mut watch = Running::start(&mut fixture.vcuda(["smi", "--watch", "--json"]));
    watch.next_line().unwrap();
    let damages = damages();
    let names: Vec<String> = (0..damages.len()).map(|at| format!("victim{at}")).collect();
    let tenants: Vec<Tenant<'_>> = names.iter().map(|name| fixture.keep(name, &QUOTA)).collect();
    let mut inside: Vec<Commanded> = tenants.iter().map(obey).collect();
    for (((file, what, expected, damage), tenant), inside) in damages.iter().zip(&tenants).zip(&mut inside) {
        damage(&tenant.directory().join(file));
        outside.fills_to_the_byte();
        let what = format!("{file}, {what}");
        match expected {
            Inside::Quota => inside.fills_to_the_byte(),
            Inside::Nothing => {
                // It looks at the latest after ten milliseconds.
                eventually(&what, Duration::from_millis(500), || match inside.alloc(1) {
                    Some(0) => false,
                    answer => answer == Some(2) || panic!("{what}: {answer:?}"),
                });
            }
            Inside::Answer => assert!(matches!(inside.alloc(1), Some(0 | 2)), "{what}"),
            Inside::Bus => {
                if inside.alloc(1).is_none() {
                    assert_eq!(inside.0.finish().signal(), Some(libc::SIGBUS), "{what}");
                }
            }
        }
        if *expected != Inside::Bus {
            inside.lives();
        }
    }
    for (((file, what, ..), tenant), name) in damages.iter().zip(&tenants).zip(&names) {
        let what = format!("{file}, {what}");
        // Who comes new gets no memory; context creation tells it so.
        let newcomer = ends(&mut tenant.command(app("obey", Door::Dlsym)));
        assert!(newcomer.status.code().is_some(), "{what}: {}", text(&newcomer));
        assert!(!newcomer.status.success(), "{what}: {}", text(&newcomer));
        // Who stands outside says what is wrong in one line, or does what it was told.
        let set = ends(&mut fixture.vcuda(["set", name, "--memory", "32MiB"]));
        let join = ends(fixture.tenant(&["--name", name], "echo").arg("joined"));
        for output in [set, join] {
            let code = output.status.code();
            assert!(matches!(code, Some(0 | 1)), "{what}: {}", text(&output));
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(
                words.trim().lines().count(),
                usize::from(code == Some(1)),
                "{what}: {words}"
            );
        }
        outside.fills_to_the_byte();
    }
    // All that stand outside are still there, and say of the bystander what is true.
    let doctor = ends(&mut fixture.vcuda(["doctor"]));
    assert!(doctor.status.code().is_some(), "{}", text(&doctor));
    assert_eq!(bystander.used_bytes(), CONTEXT);
    assert_eq!(outside.alloc(MIB), Some(0));
    let now = format!("\"memory_used_bytes\":{}", CONTEXT + MIB);
    while !watch.next_line().unwrap().contains(&now) {}
    assert_eq!(self::arbiter(&fixture), arbiter);
    let beat = || fs::read(bystander.directory().join("limits")).unwrap()[176..184].to_vec();
    let before = beat();
    eventually("the arbiter goes on", Duration::from_secs(2), || beat() != before);
}

/// The PID of this fixture's arbiter.
fn arbiter(fixture: &Fixture) -> u32 {
    let root = format!("XDG_RUNTIME_DIR={}", fixture.runtime().display());
    let is_it = |process: &Path| {
        let read = |file| fs::read(process.join(file)).unwrap_or_default();
        let words = read("cmdline");
        let mut words = words.split(|byte| *byte == 0).skip(1);
        words.next() == Some(b"arbiter")
            && words.next() == Some(b"")
            && read("environ")
                .split(|byte| *byte == 0)
                .any(|one| one == root.as_bytes())
    };
    let mut found = None;
    eventually("an arbiter runs", Duration::from_secs(5), || {
        found = fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            is_it(&entry.path()).then_some(pid)
        });
        found.is_some()
    });
    found.unwrap()
}

/// Where the files say something while one process of a tenant runs: the header, the first device, the first two slots.
/// The offsets are those of `region/src/layout.rs`.
const LIMITS_BYTES: usize = 256 + 384;
const SLOTS: usize = 512;

fn said(file: &str) -> Vec<usize> {
    let step = if std::env::var_os("VCUDA_SOAK").is_some() {
        1
    } else {
        7
    };
    let bucket = 128 + 128 * SLOTS * 17;
    let parts = match file {
        "limits" => [0..256, 256..LIMITS_BYTES, 0..0],
        _ => [
            0..128 + 2 * 128,
            128 + 128 * SLOTS..128 + 128 * SLOTS + 2 * 128,
            bucket..bucket + 640,
        ],
    };
    parts.into_iter().flatten().step_by(step).collect()
}

/// Has processes look at `limits` now, rather than in ten milliseconds.
fn notify(directory: &Path) {
    let usage = OpenOptions::new()
        .read(true)
        .write(true)
        .open(directory.join("usage"))
        .unwrap();
    let mut word = [0; 4];
    usage.read_exact_at(&mut word, 32).unwrap();
    let next = u32::from_ne_bytes(word).wrapping_add(1);
    usage.write_all_at(&next.to_ne_bytes(), 32).unwrap();
}

#[test]
fn flipped_bytes_under_a_running_tenant() {
    let fixture = Fixture::with_config(SMALL_CONTEXTS);
    let bystander = fixture.keep("bystander", &QUOTA);
    let mut outside = obey(&bystander);
    let arbiter = arbiter(&fixture);
    let mut watch = Running::start(&mut fixture.vcuda(["smi", "--watch", "--json"]));
    watch.next_line().unwrap();
    let tenant = fixture.keep("victim", &["--memory", "64MiB"]);
    // What the arbiter has to say it says at once, and then nothing more while nobody launches: so what this test puts
    // back is what was there.
    eventually("the arbiter knows of it", Duration::from_secs(5), || {
        fs::read(tenant.directory().join("limits")).unwrap()[256 + 16..256 + 20] == 1_u32.to_ne_bytes()
    });
    for file in ["limits", "usage"] {
        let mut inside = obey(&tenant);
        eventually("it is alone", Duration::from_secs(2), || {
            inside.info().0 == 64 * MIB - CONTEXT
        });
        inside.fills_to_the_byte();
        let path = tenant.directory().join(file);
        let open = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let (mut granted, mut refused) = (0, 0);
        for (count, offset) in said(file).into_iter().enumerate() {
            // The arbiter goes on writing to `limits`; nobody writes to `usage` between two lines told.
            let sound = fs::read(&path).unwrap();
            open.write_all_at(&[!sound[offset]], offset as u64).unwrap();
            if file == "limits" {
                notify(&tenant.directory());
            }
            match inside.alloc(4096) {
                Some(0) => {
                    granted += 1;
                    inside.free();
                }
                Some(2) => refused += 1,
                other => panic!("{file}, byte {offset}: {other:?}"),
            }
            inside.lives();
            if count % 16 == 0 {
                outside.fills_to_the_byte();
                // Who starts now has a context, or none; it is not killed.
                let newcomer = ends(&mut tenant.command(app("obey", Door::Dlsym)));
                assert!(
                    newcomer.status.code().is_some(),
                    "{file}, byte {offset}: {}",
                    text(&newcomer)
                );
            }
            match file {
                "limits" => {
                    open.write_all_at(&sound[offset..=offset], offset as u64).unwrap();
                    notify(&tenant.directory());
                }
                _ => open.write_all_at(&sound, 0).unwrap(),
            }
        }
        assert!(granted > 0, "{file}");
        assert!(
            file != "limits" || refused > 20,
            "nothing that was damaged was noticed"
        );
        // Put right again, all is as it was, once those that ended meanwhile are found dead.
        eventually("the dead are not counted", Duration::from_secs(2), || {
            inside.info().0 == 64 * MIB - CONTEXT
        });
        inside.fills_to_the_byte();
    }
    outside.fills_to_the_byte();
    assert!(
        watch.0.try_wait().unwrap().is_none(),
        "`vcuda smi --watch` has ended"
    );
    assert_eq!(self::arbiter(&fixture), arbiter);
}

#[test]
fn a_full_disk_ends_nobody() {
    let fixture = Fixture::with_config(SMALL_CONTEXTS);
    let Some(disk) = Tmpfs::over(&fixture.runtime(), "size=12m") else {
        return;
    };
    let tenant = fixture.keep("full", &QUOTA);
    let mut first = obey(&tenant);
    let fill = fs::write(disk.path().join("rest"), vec![1; 12 << 20]);
    assert_eq!(fill.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    // New slots, records and limits are written where nothing was before.
    let mut others: Vec<Commanded> = (0..8).map(|_| obey(&tenant)).collect();
    for other in &mut others {
        other.fills_to_the_byte();
    }
    first.fills_to_the_byte();
    assert_eq!(tenant.used_bytes(), 9 * CONTEXT);
    let set = ends(&mut fixture.vcuda(["set", "full", "--memory", "80MiB"]));
    assert!(set.status.success(), "{}", text(&set));
    assert_eq!(first.info().1, 80 * MIB);
    // There is no room for another tenant, and none is left half made.
    let refused = ends(&mut fixture.tenant(&QUOTA, "true"));
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
    // A hole in `usage` cannot be filled any more: no memory, rather than a fault at its first use.
    let path = tenant.directory().join("usage");
    for one in others.drain(..) {
        drop(one);
    }
    drop(first);
    assert!(punched(&path), "a hole in a tmpfs file");
    fs::write(disk.path().join("more"), vec![1; 12 << 20]).unwrap_err();
    let newcomer = ends(&mut tenant.command(app("obey", Door::Dlsym)));
    assert_eq!(newcomer.status.code(), Some(1), "{}", text(&newcomer));
    // With room again, the hole is filled and all is well.
    fs::remove_file(disk.path().join("rest")).unwrap();
    fs::remove_file(disk.path().join("more")).unwrap();
    obey(&tenant).fills_to_the_byte();
}

/// Makes a hole of all but the first pages of the file.
fn punched(path: &Path) -> bool {
    let size = fs::metadata(path).unwrap().len() - 8192;
    let mut command = Command::new("fallocate");
    command.args(["--punch-hole", "--offset", "8192", "--length", &size.to_string()]);
    command.arg(path).status().unwrap().success()
}

#[test]
fn files_of_a_release_before_and_after() {
    let fixture = Fixture::with_config(SMALL_CONTEXTS);
    for (name, version, compatible, appended) in [
        ("before", OLDEST_VERSION, OLDEST_VERSION, 0),
        ("after", VERSION + 1, VERSION, 4096),
    ] {
        let tenant = fixture.keep(name, &QUOTA);
        of_release(&tenant.directory(), version, compatible, appended);
        let (mut one, mut other) = (obey(&tenant), obey(&tenant));
        assert_eq!(other.info(), (64 * MIB - 2 * CONTEXT, 64 * MIB));
        assert_eq!(one.alloc(MIB), Some(0));
        other.fills_to_the_byte();
        one.fills_to_the_byte();
        assert_eq!(tenant.used_bytes(), MIB + 2 * CONTEXT);
        let joined = ends(fixture.tenant(&["--name", name], "echo").arg("joined"));
        assert_eq!(text(&joined).trim(), "exit status: 0\njoined");
        let set = ends(&mut fixture.vcuda(["set", name, "--memory", "96MiB"]));
        assert!(set.status.success(), "{}", text(&set));
        eventually("the new limit", Duration::from_millis(500), || {
            other.info().1 == 96 * MIB
        });
        other.fills_to_the_byte();
    }
}

#[test]
fn files_of_a_release_that_does_not_go_together() {
    let fixture = Fixture::with_config(SMALL_CONTEXTS);
    for (name, version, appended) in [("before", OLDEST_VERSION - 1, 0), ("after", VERSION + 1, 4096)] {
        let tenant = fixture.keep(name, &QUOTA);
        of_release(&tenant.directory(), version, version, appended);
        let before = fs::read(tenant.directory().join("limits")).unwrap();
        let says = [
            format!("has layout version {version}"),
            format!("this program uses {OLDEST_VERSION} to {VERSION}"),
            "use the vcuda release that made it".to_owned(),
        ];
        // The shim: no memory, and the reason in its log.
        let log = fixture.runtime().join(name);
        let mut command = tenant.command(app("obey", Door::Dlsym));
        let inside = ends(command.env("VCUDA_LOG", &log));
        assert_eq!(inside.status.code(), Some(1), "{}", text(&inside));
        let logged = fs::read_to_string(&log).unwrap();
        assert!(says.iter().all(|words| logged.contains(words)), "{logged}");
        // Who changes or joins is refused.
        let set = ends(&mut fixture.vcuda(["set", name, "--memory", "96MiB"]));
        let join = ends(fixture.tenant(&["--name", name], "echo").arg("joined"));
        let join_with_quota = ends(
            fixture
                .tenant(&["--name", name, "--memory", "1GiB"], "echo")
                .arg("joined"),
        );
        for output in [set, join, join_with_quota] {
            assert_eq!(output.status.code(), Some(1), "{}", text(&output));
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(says.iter().all(|part| words.contains(part)), "{words}");
            assert_eq!(words.trim().lines().count(), 1, "{words}");
            assert!(output.stdout.is_empty(), "{}", text(&output));
        }
        // Who shows says that one is missing.
        let smi = ends(&mut fixture.vcuda(["smi"]));
        assert!(smi.status.success(), "{}", text(&smi));
        let words = String::from_utf8_lossy(&smi.stderr).into_owned();
        assert!(
            words.contains("a tenant is not shown") && says.iter().all(|part| words.contains(part)),
            "{words}"
        );
        assert_eq!(fs::read(tenant.directory().join("limits")).unwrap(), before);
        assert_eq!(fixture.used_bytes(), 0);
    }
}

#[test]
fn the_library_is_exchanged_under_running_processes() {
    let fixture = Fixture::with_config(SMALL_CONTEXTS);
    // An installation of its own.
    let home = tempfile::tempdir().unwrap();
    for name in [
        "vcuda",
        SHIM,
        "libvcuda_simulator_cuda.so",
        "libvcuda_simulator_nvml.so",
    ] {
        fs::copy(release_dir().join(name), home.path().join(name)).unwrap();
    }
    let installed = home.path().join(SHIM);
    let mut run = Command::new(home.path().join("vcuda"));
    run.args([
        "run", "--sim", "--name", "old", "--memory", "64MiB", "--", "/bin/sh", "-c",
    ]);
    run.args(["\"$0\"; exec sleep 1000"])
        .arg(app("obey", Door::Dlsym));
    fixture.environment(&mut run);
    let mut old = Commanded::start(&mut run);
    let old_library = mapped(&old);
    assert_eq!(old_library, inode(&installed));
    assert_eq!(old.alloc(MIB), Some(0));

    // Another build: the same code, other bytes in another file.
    let build = home.path().join("new");
    let mut bytes = fs::read(&installed).unwrap();
    bytes.extend_from_slice(b"another build");
    fs::write(&build, bytes).unwrap();
    fs::set_permissions(&build, fs::metadata(&installed).unwrap().permissions()).unwrap();
    fs::rename(&build, &installed).unwrap();

    let mut join = Command::new(home.path().join("vcuda"));
    join.args(["run", "--sim", "--name", "old", "--"])
        .arg(app("obey", Door::Dlsym));
    fixture.environment(&mut join);
    let mut new = Commanded::start(&mut join);
    let new_library = mapped(&new);
    assert_ne!(new_library, old_library);
    assert_eq!(new_library, inode(&installed));
    assert_eq!(mapped(&old), old_library);
    // One account, to the byte, from either side.
    let contexts = 2 * CONTEXT;
    assert_eq!(new.info(), (63 * MIB - contexts, 64 * MIB));
    old.fills_to_the_byte();
    new.fills_to_the_byte();
    let (left, _) = old.info();
    assert_eq!(old.alloc(left / 2), Some(0));
    assert_eq!(new.alloc(left - left / 2 + 1), Some(2));
    assert_eq!(new.alloc(left - left / 2), Some(0));
    assert_eq!(old.alloc(1), Some(2));

    // Gone altogether: who runs goes on; `vcuda` says what is missing before it starts anybody.
    fs::remove_file(&installed).unwrap();
    old.free();
    new.free();
    old.fills_to_the_byte();
    new.fills_to_the_byte();
    let mut late = Command::new(home.path().join("vcuda"));
    late.args(["run", "--sim", "--memory", "1MiB", "--", "true"]);
    fixture.environment(&mut late);
    let refused = ends(&mut late);
    assert_eq!(refused.status.code(), Some(69), "{}", text(&refused));
    assert!(String::from_utf8_lossy(&refused.stderr).contains(SHIM));
}

const SHIM: &str = "libvcuda_shim.so";

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

/// The inode of the shim that the tenant's process on the GPU has mapped.
fn mapped(process: &Commanded) -> u64 {
    let children = format!("/proc/{0}/task/{0}/children", process.0.0.id());
    let children = fs::read_to_string(children).unwrap();
    let pid = children
        .split_whitespace()
        .next()
        .map_or(process.0.0.id(), |pid| pid.parse().unwrap());
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let line = maps.lines().find(|line| line.contains(SHIM)).unwrap();
    line.split_whitespace().nth(4).unwrap().parse().unwrap()
}
