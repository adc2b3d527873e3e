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
use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use vcuda_tests::{Bed, Door, MIB, Obedient, Running, Tenant, app, eventually, text};

/// A machine whose contexts and modules cost little.
const SMALL_CONTEXTS: &str =
    "context_bytes = \"4MiB\"\ngranularity_bytes = 1\n[[gpus]]\nmemory_bytes = \"80GiB\"\n";
const QUOTA: [&str; 4] = ["--memory", "64MiB", "--cores", "50"];

fn obey(tenant: &Tenant<'_>) -> Obedient {
    Obedient::start(&mut tenant.command(app("obey", Door::Dlsym)))
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

const DAMAGES: [Damage; 28] = [
    ("limits", "cut to nothing", Inside::Bus, |path| cut(path, 0)),
    ("limits", "cut to some bytes", Inside::Nothing, |path| {
        cut(path, 100)
    }),
    ("limits", "cut to a page", Inside::Answer, |path| cut(path, 4096)),
    ("limits", "longer", Inside::Answer, |path| cut(path, 1 << 20)),
    ("limits", "zeros", Inside::Nothing, |path| overwrite(path, 0)),
    ("limits", "ones", Inside::Nothing, |path| overwrite(path, 0xff)),
    ("limits", "gone", Inside::Quota, |path| {
        fs::remove_file(path).unwrap()
    }),
    ("limits", "a link", Inside::Quota, |path| {
        let real = path.with_extension("real");
        fs::rename(path, &real).unwrap();
        symlink(real, path).unwrap();
    }),
    ("limits", "a link to zeros", Inside::Quota, |path| {
        replace(path, |path| symlink("/dev/zero", path).unwrap());
    }),
    ("limits", "a pipe", Inside::Quota, |path| replace(path, pipe)),
    ("limits", "a directory", Inside::Quota, |path| {
        replace(path, |path| fs::create_dir(path).unwrap());
    }),
    ("limits", "empty", Inside::Quota, |path| {
        replace(path, |path| fs::write(path, "").unwrap());
    }),
    ("limits", "the other file", Inside::Quota, |path| {
        replace(path, |aside| {
            fs::copy(path.with_file_name("usage"), aside).unwrap();
        });
    }),
    ("limits", "of another version", Inside::Quota, |path| {
        replace(path, |aside| {
            let mut bytes = fs::read(path).unwrap();
            bytes[8..16].fill(0xee);
            fs::write(aside, bytes).unwrap();
        });
    }),
    ("usage", "cut to nothing", Inside::Bus, |path| cut(path, 0)),
    ("usage", "cut to some bytes", Inside::Bus, |path| cut(path, 100)),
    ("usage", "cut to a page", Inside::Bus, |path| cut(path, 4096)),
    ("usage", "longer", Inside::Quota, |path| cut(path, 64 << 20)),
    ("usage", "zeros", Inside::Answer, |path| overwrite(path, 0)),
    ("usage", "ones", Inside::Answer, |path| overwrite(path, 0xff)),
    ("usage", "gone", Inside::Quota, |path| {
        fs::remove_file(path).unwrap()
    }),
    ("usage", "a link", Inside::Quota, |path| {
        let real = path.with_extension("real");
        fs::rename(path, &real).unwrap();
        symlink(real, path).unwrap();
    }),
    ("usage", "a link to zeros", Inside::Quota, |path| {
        replace(path, |path| symlink("/dev/zero", path).unwrap());
    }),
    ("usage", "a pipe", Inside::Quota, |path| replace(path, pipe)),
    ("usage", "a directory", Inside::Quota, |path| {
        replace(path, |path| fs::create_dir(path).unwrap());
    }),
    ("usage", "empty", Inside::Quota, |path| {
        replace(path, |path| fs::write(path, "").unwrap());
    }),
    ("usage", "the other file", Inside::Quota, |path| {
        replace(path, |aside| {
            fs::copy(path.with_file_name("limits"), aside).unwrap();
        });
    }),
    ("usage", "of another version", Inside::Quota, |path| {
        replace(path, |aside| {
            let mut bytes = fs::read(path).unwrap();
            bytes[8..16].fill(0xee);
            fs::write(aside, bytes).unwrap();
        });
    }),
];

#[test]
fn damaged_files_harm_their_own_container_only() {
    let bed = Bed::with_config(SMALL_CONTEXTS);
    let bystander = bed.keep("bystander", &QUOTA);
    let mut outside = obey(&bystander);
    let arbiter = arbiter(&bed);
    // One that looks all the time, as a manager does.
    let mut watch = Running::start(&mut bed.vcuda(["smi", "--watch", "--json"]));
    watch.next_line().unwrap();
    let names: Vec<String> = (0..DAMAGES.len()).map(|at| format!("victim{at}")).collect();
    let tenants: Vec<Tenant<'_>> = names.iter().map(|name| bed.keep(name, &QUOTA)).collect();
    let mut inside: Vec<Obedient> = tenants.iter().map(obey).collect();
    for (((file, what, expected, damage), tenant), inside) in DAMAGES.iter().zip(&tenants).zip(&mut inside) {
        damage(&tenant.directory().join(file));
        outside.fills_to_the_byte();
        let what = format!("{file}, {what}");
        match expected {
            Inside::Quota => inside.fills_to_the_byte(),
            Inside::Nothing => assert_eq!(inside.alloc(1), Some(2), "{what}"),
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
    for (((file, what, ..), tenant), name) in DAMAGES.iter().zip(&tenants).zip(&names) {
        let what = format!("{file}, {what}");
        // Who comes new gets no memory; context creation tells it so.
        let newcomer = ends(&mut tenant.command(app("obey", Door::Dlsym)));
        assert!(newcomer.status.code().is_some(), "{what}: {}", text(&newcomer));
        assert!(!newcomer.status.success(), "{what}: {}", text(&newcomer));
        // Who stands outside says what is wrong in one line, or does what it was told.
        let set = ends(&mut bed.vcuda(["set", name, "--memory", "32MiB"]));
        let join = ends(bed.tenant(&["--name", name], "echo").arg("joined"));
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
    let doctor = ends(&mut bed.vcuda(["doctor"]));
    assert!(doctor.status.code().is_some(), "{}", text(&doctor));
    assert_eq!(bystander.used_bytes(), 4 * MIB + 8);
    assert!(
        watch.0.try_wait().unwrap().is_none(),
        "`vcuda smi --watch` has ended"
    );
    assert_eq!(self::arbiter(&bed), arbiter);
    let beat = || fs::read(bystander.directory().join("limits")).unwrap()[176..184].to_vec();
    let before = beat();
    eventually("the arbiter goes on", Duration::from_secs(2), || beat() != before);
}

/// The PID of this bed's arbiter.
fn arbiter(bed: &Bed) -> u32 {
    let root = format!("XDG_RUNTIME_DIR={}", bed.runtime().display());
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
