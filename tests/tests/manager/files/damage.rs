//! Damages of a tenant's two files: changes, and replacements.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;

/// Expected effect on a running process of the tenant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Inside {
    /// Its exact quota: its open file is not the changed one.
    Quota,
    /// No memory.
    Nothing,
    /// Any answer.
    Answer,
    /// Death by SIGBUS is permitted, as it harms only its own tenant.
    Bus,
}

pub(super) type Damage = (&'static str, &'static str, Inside, fn(&Path));
pub(super) type Replacement = (&'static str, fn(&Path));

fn cut(path: &Path, bytes: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

fn overwrite(path: &Path, with: u8) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    let size = usize::try_from(file.metadata().unwrap().len()).unwrap();
    file.write_all_at(&vec![with; size], 0).unwrap();
}

/// Replaces the file by rename, so that processes keep their open one.
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

/// Changes of either file.
const CHANGES: [Damage; 12] = [
    ("limits", "cut to nothing", Inside::Nothing, |path| cut(path, 0)),
    ("limits", "cut to some bytes", Inside::Nothing, |path| cut(path, 100)),
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

/// Replacements of either file; processes keep their open one.
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

pub(super) fn damages() -> Vec<Damage> {
    let replaced = ["limits", "usage"].into_iter().flat_map(|file| {
        let kinds = REPLACEMENTS.into_iter();
        kinds.map(move |(what, make)| (file, what, Inside::Quota, make))
    });
    CHANGES.into_iter().chain(replaced).collect()
}
