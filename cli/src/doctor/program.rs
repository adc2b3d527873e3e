//! Check of the command's own file: whether the loader can preload a library into it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::{Finding, Health};
use crate::config::Environment;

const LINK: &str = "program";
/// Part of a file that is read (bytes), enough for program headers and a script's first line.
const HEAD_BYTES: u64 = 64 << 10;

pub(super) fn findings(command: &OsStr, environment: &Environment) -> Vec<Finding> {
    match find(command, environment) {
        Some(path) => vec![examine(&path, environment, 0)],
        None => {
            let seen = format!("{}: command not found", command.to_string_lossy());
            vec![Finding::broken(LINK, seen, "is it spelled right and in PATH?")]
        }
    }
}

/// Searches for a command as a shell does.
fn find(command: &OsStr, environment: &Environment) -> Option<PathBuf> {
    let is_program = |path: &Path| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if command.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(command)).filter(|path| is_program(path));
    }
    let path = environment.path.as_ref()?;
    std::env::split_paths(path).map(|folder| folder.join(command)).find(|path| is_program(path))
}

fn examine(path: &Path, environment: &Environment, depth: u8) -> Finding {
    let shown = path.display();
    let head = match read_head(path) {
        Ok(head) => head,
        Err(error) => {
            return Finding::note(LINK, format!("{shown} cannot be read: {error}"), "make it readable");
        }
    };
    if let Some((seen, remedy)) = obstacle(path, &head) {
        return Finding::broken(LINK, seen, remedy);
    }
    if let Some(interpreter) = script_interpreter(&head).filter(|_| depth < 4) {
        return match find(interpreter.as_ref(), environment) {
            Some(interpreter) => of_script(examine(&interpreter, environment, depth + 1), path),
            None => {
                let seen = format!("{shown} is a script for {interpreter}, which is not there");
                Finding::broken(LINK, seen, "install it, or correct the script's first line")
            }
        };
    }
    match Elf::of(&head) {
        Elf::Dynamic(loader) => Finding::ok(LINK, format!("{shown}, loaded by {loader}")),
        Elf::Other32 => {
            Finding::broken(LINK, format!("{shown} is a 32-bit program"), "CUDA needs a 64-bit one")
        }
        Elf::Static | Elf::None => Finding::note(
            LINK,
            format!("{shown} is neither an ELF program nor a script"),
            "name the program itself",
        ),
    }
}

/// Why the shim cannot be put before the program at `path`, and what to do instead.
fn obstacle(path: &Path, head: &[u8]) -> Option<(String, &'static str)> {
    let shown = path.display();
    if fs::metadata(path).is_ok_and(|found| found.mode() & 0o6000 != 0) {
        let remedy = "the loader drops LD_PRELOAD for set-user-ID programs; run what it starts instead";
        return Some((format!("{shown} is set-user-ID or set-group-ID"), remedy));
    }
    by_format(path, head)
}

/// As [`obstacle`], by the format of its file alone.
fn by_format(path: &Path, head: &[u8]) -> Option<(String, &'static str)> {
    let shown = path.display();
    match Elf::of(head) {
        Elf::Dynamic(loader) if loader.contains("musl") => Some((
            format!("{shown} uses the musl C library ({loader}); the shim is built for glibc"),
            "use an image with glibc",
        )),
        Elf::Static => Some((
            format!("{shown} is linked statically: no library can be put before it"),
            "link it dynamically; what it starts is limited if that is dynamic",
        )),
        _ => None,
    }
}

/// Why the shim cannot be put before a command, or the interpreter of its script. A set-user-ID program may be one that starts another.
pub(crate) fn why_unlimited(command: &OsStr, environment: &Environment) -> Option<String> {
    let mut path = find(command, environment)?;
    for _ in 0..4 {
        let head = read_head(&path).ok()?;
        if let Some((why, _)) = by_format(&path, &head) {
            return Some(why);
        }
        path = find(script_interpreter(&head)?.as_ref(), environment)?;
    }
    None
}

/// The finding for a script's interpreter.
fn of_script(found: Finding, script: &Path) -> Finding {
    if found.health != Health::Ok {
        return found;
    }
    let seen =
        format!("{}, for the script {}; what that starts is not looked at", found.seen, script.display());
    Finding { seen, ..found }
}

fn read_head(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok(head)
}

/// Interpreter in a `#!` line; for `/usr/bin/env NAME`, the name.
fn script_interpreter(head: &[u8]) -> Option<String> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let first = words.next()?;
    if !first.ends_with("/env") {
        return Some(first.to_owned());
    }
    words.find(|word| !word.starts_with('-') && !word.contains('=')).map(str::to_owned)
}

/// Kind of program by its file's head (System V ABI, ELF).
#[derive(Debug, PartialEq, Eq)]
enum Elf {
    /// A dynamic program, with the loader that it names.
    Dynamic(String),
    Static,
    Other32,
    None,
}

impl Elf {
    fn of(head: &[u8]) -> Elf {
        const CLASS_64: u8 = 2;
        const PT_INTERP: u32 = 3;
        if !head.starts_with(b"\x7fELF") {
            return Elf::None;
        }
        if head.get(4) != Some(&CLASS_64) {
            return Elf::Other32;
        }
        let table = number::<8>(head, 0x20).unwrap_or(0);
        let (size, count) = (number::<2>(head, 0x36).unwrap_or(0), number::<2>(head, 0x38).unwrap_or(0));
        for index in 0..count {
            let at = table.saturating_add(index * size);
            if number::<4>(head, at) != Some(u64::from(PT_INTERP)) {
                continue;
            }
            let place = number::<8>(head, at + 0x08).and_then(|offset| usize::try_from(offset).ok());
            let text = place.and_then(|start| head.get(start..)).unwrap_or_default();
            let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
            return Elf::Dynamic(String::from_utf8_lossy(text).into_owned());
        }
        Elf::Static
    }
}

/// A little-endian number of `N` bytes, as both architectures of CUDA on Linux are little-endian.
fn number<const N: usize>(head: &[u8], at: u64) -> Option<u64> {
    let start = usize::try_from(at).ok()?;
    let bytes = head.get(start..start.checked_add(N)?)?;
    Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_name_their_interpreter() {
        let of = |text: &str| script_interpreter(text.as_bytes());
        assert_eq!(of("#!/bin/sh -e\n"), Some("/bin/sh".to_owned()));
        assert_eq!(of("#!/usr/bin/env python3\n"), Some("python3".to_owned()));
        assert_eq!(of("#! /usr/bin/env -S A=1 python3 -u\n"), Some("python3".to_owned()));
        assert_eq!(of("echo"), None);
    }

    #[test]
    fn this_program_is_dynamic() {
        let head = read_head(Path::new("/proc/self/exe")).unwrap();
        assert!(matches!(Elf::of(&head), Elf::Dynamic(loader) if loader.contains("ld-")));
    }

    #[test]
    fn damaged_heads_are_answered() {
        let head = read_head(Path::new("/proc/self/exe")).unwrap();
        for length in 0..200 {
            Elf::of(&head[..length]);
        }
        assert_eq!(Elf::of(b"\x7fELF\x01"), Elf::Other32);
        assert_eq!(Elf::of(b"text"), Elf::None);
    }
}
