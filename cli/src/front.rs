//! The driver's front: a library under the driver's own name (`libcuda.so.1`), which needs the shim and behind it the real
//! driver. `run` puts its folder first in `LD_LIBRARY_PATH`. So a program whose start replaced `LD_PRELOAD` loads the shim, too,
//! as soon as it loads the driver: the loader searches a library's symbols first in what it needs first.
//!
//! The front has no code and no symbol of its own: it is an ELF header and a dynamic section (ELF-64 gABI). It needs the shim by
//! its soname, so that a preloaded one is not loaded twice.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Names under which programs open the driver: by its soname, and as compilers know it.
const NAMES: [(&str, &str); 2] = [("libcuda.so.1", "libcuda.so"), ("libnvidia-ml.so.1", "libnvidia-ml.so")];
/// The shim by its soname: a copy that is loaded already, from wherever, is the one.
const SHIM: &str = "libvcuda_shim.so";
/// Beginning of the names of the folders.
const FOLDER: &str = "front-";

/// The folder with the fronts of the driver's libraries, made if it is missing. `driver_at` tells where the real library of a
/// soname lies; one that does not exist gets no front. `None` if there is none.
pub(crate) fn folder(
    root: &Path,
    shim: &Path,
    driver_at: impl Fn(&str) -> Option<PathBuf>,
) -> Result<Option<PathBuf>, Failure> {
    let is_front = |path: &Path| path.parent().is_some_and(|folder| is_in(root, folder));
    let found: Vec<_> = NAMES
        .into_iter()
        .filter_map(|names| Some((names, driver_at(names.0).filter(|path| !is_front(path))?)))
        .collect();
    if found.is_empty() {
        return Ok(None);
    }
    let mut hasher = DefaultHasher::new();
    (shim, &found).hash(&mut hasher);
    let folder = root.join(format!("{FOLDER}{:016x}", hasher.finish()));
    if !folder.is_dir() {
        make(&folder, shim, &found).map_err(|error| Failure::access("create", &folder, &error))?;
    }
    Ok(Some(folder))
}

/// Whether `folder` is one of the fronts' under `root`.
fn is_in(root: &Path, folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().as_bytes();
    folder.parent() == Some(root) && name.starts_with(FOLDER.as_bytes())
}

/// Makes the folder aside and renames it, as another run may make it at the same time.
fn make(folder: &Path, shim: &Path, found: &[((&str, &str), PathBuf)]) -> std::io::Result<()> {
    let aside = folder.with_extension(std::process::id().to_string());
    fs::create_dir(&aside)?;
    symlink(shim, aside.join(SHIM))?;
    for ((soname, name), driver) in found {
        fs::write(aside.join(soname), library(soname, &[Path::new(SHIM), driver]))?;
        symlink(soname, aside.join(name))?;
    }
    fs::rename(&aside, folder).or_else(|error| {
        fs::remove_dir_all(&aside)?;
        if folder.is_dir() { Ok(()) } else { Err(error) }
    })
}

const HEADER_BYTES: u64 = 64;
const SEGMENT_BYTES: u64 = 56;
const SEGMENTS: u64 = 3;
const SECTION_BYTES: u64 = 64;
const SECTIONS: u64 = 3;
/// The largest page of a machine that CUDA runs on.
const PAGE_BYTES: u64 = 1 << 16;
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;
const READ_WRITE: u32 = 6;
const SHF_ALLOC: u64 = 2;

/// Tags of the dynamic section.
const NEEDED: u64 = 1;
const HASH: u64 = 4;
const STRTAB: u64 = 5;
const SYMTAB: u64 = 6;
const STRSZ: u64 = 10;
const SYMENT: u64 = 11;
const SONAME: u64 = 14;
const RUNPATH: u64 = 29;
const GNU_HASH: u64 = 0x6fff_fef5;

/// A shared library of this soname that needs these files, in this order, and defines nothing.
fn library(soname: &str, needed: &[&Path]) -> Vec<u8> {
    let hash_at = HEADER_BYTES + SEGMENT_BYTES * SEGMENTS;
    // The strings follow the symbols, as programs that walk a symbol table take for granted.
    let (gnu_hash_at, symbols_at, strings_at) = (hash_at + 16, hash_at + 48, hash_at + 72);
    let mut strings = vec![0];
    let mut string = |text: &[u8]| {
        let at = strings.len() as u64;
        strings.extend_from_slice(text);
        strings.push(0);
        at
    };
    let mut dynamic: Vec<[u64; 2]> =
        needed.iter().map(|path| [NEEDED, string(path.as_os_str().as_bytes())]).collect();
    dynamic.push([SONAME, string(soname.as_bytes())]);
    dynamic.push([RUNPATH, string(b"$ORIGIN")]);
    let names = [string(b".dynstr"), string(b".dynamic")];
    strings.resize(strings.len().next_multiple_of(8), 0);
    let strings_bytes = strings.len() as u64;
    dynamic.extend([[HASH, hash_at], [GNU_HASH, gnu_hash_at]]);
    dynamic.extend([[STRTAB, strings_at], [SYMTAB, symbols_at]]);
    dynamic.extend([[STRSZ, strings_bytes], [SYMENT, 24], [0, 0]]);
    let (dynamic_at, dynamic_bytes) = (strings_at + strings_bytes, 16 * dynamic.len() as u64);

    // Sections are for tools alone: `objdump -p`, by which Python's ctypes.util.find_library asks for the soname.
    let sections = [
        (0, 0, 0, 0, 0),
        // SHT_STRTAB, SHT_DYNAMIC.
        (names[0], 3, strings_at, strings_bytes, 0),
        (names[1], 6, dynamic_at, dynamic_bytes, 16),
    ];
    let file_bytes = dynamic_at + dynamic_bytes;
    let mut file = header(file_bytes);
    for segment in [
        // PT_LOAD: all of it, writable, as the loader notes addresses in the dynamic section.
        (1, 0, file_bytes, PAGE_BYTES),
        // PT_DYNAMIC.
        (2, dynamic_at, dynamic_bytes, 8),
        // PT_GNU_STACK: without it the loader makes all stacks executable.
        (0x6474_e551, 0, 0, 16),
    ] {
        file.extend(program_header(segment));
    }
    // One bucket and one chain, for the null symbol; and as a GNU hash section, whose filter lets no name through.
    let hashes = [1_u32, 1, 0, 0].into_iter().chain([1, 1, 1, 0, 0, 0, 0, 0]);
    file.extend(hashes.flat_map(u32::to_ne_bytes));
    file.extend([0; 24]);
    file.extend(strings);
    file.extend(dynamic.iter().flatten().flat_map(|word| word.to_ne_bytes()));
    sections.into_iter().for_each(|section| file.extend(section_header(section)));
    file
}

/// The ELF header of a shared library, whose section headers begin at `sections_at`.
fn header(sections_at: u64) -> Vec<u8> {
    // ELF, 64 bits, little-endian, version 1.
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
    file.resize(16, 0);
    // ET_DYN.
    file.extend([3, MACHINE].iter().flat_map(|half| half.to_ne_bytes()));
    file.extend(1_u32.to_ne_bytes());
    // No entry point.
    file.extend([0, HEADER_BYTES, sections_at].iter().flat_map(|word| word.to_ne_bytes()));
    file.extend(0_u32.to_ne_bytes());
    // The last: the section with the names of sections.
    let sizes = [HEADER_BYTES, SEGMENT_BYTES, SEGMENTS, SECTION_BYTES, SECTIONS, 1];
    let halves = sizes.iter().flat_map(|size| size.to_ne_bytes().into_iter().take(2));
    file.extend(halves);
    file
}

/// A program header from its kind, place in the file, size and alignment (bytes).
fn program_header((kind, at, bytes, alignment): (u32, u64, u64, u64)) -> impl Iterator<Item = u8> {
    let words = [kind, READ_WRITE].into_iter().flat_map(u32::to_ne_bytes);
    let rest = [at, at, at, bytes, bytes, alignment];
    words.chain(rest.into_iter().flat_map(u64::to_ne_bytes))
}

/// A section header from its name's place in the first section, kind, place in the file, size, and size of an entry (bytes).
fn section_header(
    (name, kind, at, bytes, entry_bytes): (u64, u64, u64, u64, u64),
) -> impl Iterator<Item = u8> {
    // Two halves in the first word, and in that of the section with its strings.
    let words = [name | kind << 32, SHF_ALLOC, at, at, bytes, 1, 8, entry_bytes];
    words.into_iter().flat_map(u64::to_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_front_names_the_shim_before_the_driver() {
        let file = library("libcuda.so.1", &[Path::new("shim.so"), Path::new("/libcuda.so.1")]);
        let text = String::from_utf8_lossy(&file);
        assert!(text.contains("\0shim.so\0/libcuda.so.1\0libcuda.so.1\0"), "{text}");
    }

    #[test]
    fn a_front_is_made_once_and_never_for_a_front() {
        let root = tempfile::tempdir().unwrap();
        let of = |driver: PathBuf| {
            let at = move |soname: &str| (soname == "libcuda.so.1").then(|| driver.clone());
            folder(root.path(), Path::new("/shim.so"), at).unwrap()
        };
        let made = of("/usr/lib/libcuda.so.1".into()).unwrap();
        assert_eq!(of("/usr/lib/libcuda.so.1".into()), Some(made.clone()));
        assert_eq!(fs::read_dir(&made).unwrap().count(), 3);
        assert_eq!(of(made.join("libcuda.so.1")), None);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }
}
