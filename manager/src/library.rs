//! The shim on this node's disk: each version under a name of its own, put there by rename, never rewritten (I13).
//!
//! Running containers have the file they were started with mounted; a new version gets another name, so an upgrade touches
//! none of them. Old versions are collected when nothing uses them: no process maps the file, and no container's
//! specification names it (such a container may start again).

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use thiserror::Error;

const PREFIX: &str = "libvcuda_shim-";
const PRELOAD_PREFIX: &str = "ld.so.preload-";
const PROGRAM_PREFIX: &str = "vcuda-";

/// The version that new containers get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// The library on the host.
    pub library: PathBuf,
    /// The file that goes to `/etc/ld.so.preload` of a container: the library's path in there.
    pub preload: PathBuf,
    /// The `vcuda` command, if containers get one.
    pub program: Option<PathBuf>,
}

/// The version that new containers get now. `None` if none could be installed yet.
#[derive(Debug, Default)]
pub struct Current(Mutex<Option<Installed>>);

impl Current {
    /// It is this one from now on.
    pub fn set(&self, installed: Installed) {
        *self.0.lock() = Some(installed);
    }

    /// It.
    #[must_use]
    pub fn get(&self) -> Option<Installed> {
        self.0.lock().clone()
    }
}

/// The directory in which containers find the library.
pub const IN_CONTAINER: &str = "/usr/lib/vcuda";

/// The library could not be installed.
#[derive(Debug, Error)]
pub enum InstallError {
    /// The one to be installed cannot be read.
    #[error("shim_library {}: {}; build it with `cargo build --release -p vcuda-shim`", .0.display(), .1)]
    Unreadable(PathBuf, io::Error),
    /// It is no shared library.
    #[error("shim_library {}: not an ELF shared library; give libvcuda_shim.so", .0.display())]
    NotALibrary(PathBuf),
    /// The program for containers cannot be read.
    #[error("vcuda_program {}: {}; name the vcuda command, or leave the key out", .0.display(), .1)]
    NoProgram(PathBuf, io::Error),
    /// The copy cannot be written.
    #[error("cannot write {}: {}", .0.display(), .1)]
    Unwritable(PathBuf, io::Error),
}

/// Installs `source` into `directory` under the name of `version` and its content, unless it is there already, and beside it
/// the `program` that belongs to it.
///
/// # Errors
/// It is not a library, or cannot be copied: what was installed before stays.
pub fn install(
    source: &Path,
    program: Option<&Path>,
    directory: &Path,
    version: &str,
) -> Result<Installed, InstallError> {
    let content = fs::read(source).map_err(|error| InstallError::Unreadable(source.to_owned(), error))?;
    // e_ident, then e_type: ET_DYN (3).
    if !content.starts_with(b"\x7fELF") || content.get(16..18) != Some(&[3, 0]) {
        return Err(InstallError::NotALibrary(source.to_owned()));
    }
    let build = format!("{version}-{:08x}", crc32fast::hash(&content));
    let library = directory.join(format!("{PREFIX}{build}.so"));
    let preload = directory.join(format!("{PRELOAD_PREFIX}{build}"));
    let unwritable = |path: &Path| {
        let path = path.to_owned();
        move |error| InstallError::Unwritable(path, error)
    };
    fs::create_dir_all(directory).map_err(unwritable(directory))?;
    let line = format!("{IN_CONTAINER}/{PREFIX}{build}.so\n");
    let program = match program {
        Some(source) => {
            let content =
                fs::read(source).map_err(|error| InstallError::NoProgram(source.to_owned(), error))?;
            Some((directory.join(format!("{PROGRAM_PREFIX}{build}")), content))
        }
        None => None,
    };
    let program_file = program
        .iter()
        .map(|(path, content)| (path, content.as_slice(), 0o755));
    for (path, content, mode) in [
        (&library, content.as_slice(), 0o755),
        (&preload, line.as_bytes(), 0o644),
    ]
    .into_iter()
    .chain(program_file)
    {
        // One of this name and another content was damaged; containers that have it mounted keep the damaged one.
        if fs::read(path).is_ok_and(|there| there == content) {
            continue;
        }
        place(path, content, mode).map_err(unwritable(path))?;
    }
    Ok(Installed {
        library,
        preload,
        program: program.map(|(path, _)| path),
    })
}

/// Whole or not at all, also after a power failure.
fn place(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut aside = path.file_name().unwrap_or_default().to_owned();
    aside.push(format!(".new-{}", std::process::id()));
    let aside = directory.join(aside);
    let written = File::create(&aside).and_then(|mut file| {
        file.write_all(content)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(&aside, path)?;
        File::open(directory)?.sync_all()
    });
    if written.is_err() {
        let _ = fs::remove_file(&aside);
    }
    written
}

/// Removes the versions in `directory` that are not `current` and that nothing uses, and what a killed installation left.
/// Returns the names of what it removed.
///
/// `specifications` is where container specifications (CDI) lie. If it, or the list of processes, cannot be read, nothing is
/// removed.
///
/// # Errors
/// One of the directories cannot be read.
pub fn collect(directory: &Path, current: &Installed, specifications: &Path) -> io::Result<Vec<String>> {
    let mapped = mapped_inodes(Path::new("/proc"))?;
    let named = texts(specifications)?;
    let mut removed = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(build) = build_of(&name) else { continue };
        let library = format!("{PREFIX}{build}.so");
        let is_current = current.library.file_name() == Some(OsStr::new(&library));
        let is_left = name.contains(".new-") && !is_being_written(&name);
        let inode = fs::metadata(directory.join(&library)).map(|metadata| metadata.ino());
        let is_used = is_current
            || inode.is_ok_and(|inode| mapped.contains(&inode))
            || named.iter().any(|text| text.contains(&library));
        if (is_left || !is_used && !name.contains(".new-")) && fs::remove_file(entry.path()).is_ok() {
            removed.push(name);
        }
    }
    removed.sort();
    Ok(removed)
}

/// The version in a file's name, if the file is ours.
fn build_of(name: &str) -> Option<&str> {
    let whole = name.split(".new-").next().unwrap_or(name);
    match whole.strip_prefix(PREFIX) {
        Some(rest) => rest.strip_suffix(".so"),
        None => whole
            .strip_prefix(PRELOAD_PREFIX)
            .or_else(|| whole.strip_prefix(PROGRAM_PREFIX)),
    }
}

/// Whether the process that writes `<name>.new-<pid>` lives.
fn is_being_written(name: &str) -> bool {
    let pid = name.rsplit(".new-").next().unwrap_or_default();
    Path::new("/proc").join(pid).exists()
}

/// The inodes of all files that any process maps. Inodes of other file systems are among them: a library that shares its
/// number with one of those stays longer than it must.
fn mapped_inodes(proc: &Path) -> io::Result<Vec<u64>> {
    let mut inodes = Vec::new();
    for entry in fs::read_dir(proc)? {
        let name = entry?.file_name();
        // The first process of the node is in no container, and this manager may not have the right to look at it.
        if name == "1" || !name.as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        // A process that has just ended maps nothing. One that may not be looked at (without CAP_SYS_PTRACE) could
        // map anything.
        let maps = match fs::read_to_string(proc.join(&name).join("maps")) {
            Ok(maps) => maps,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            Err(_) => continue,
        };
        // address perms offset dev inode path (proc_pid_maps(5))
        let of_line = |line: &str| line.split_ascii_whitespace().nth(4)?.parse::<u64>().ok();
        inodes.extend(maps.lines().filter_map(of_line).filter(|inode| *inode != 0));
        inodes.sort_unstable();
        inodes.dedup();
    }
    Ok(inodes)
}

/// The specifications that name a file of vcuda. `None` if the directory does not exist.
fn texts(specifications: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(specifications) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut texts = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            texts.push(fs::read_to_string(&path).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(String::new()),
                _ => Err(error),
            })?);
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;
    use std::num::NonZeroUsize;
    use std::os::unix::fs::symlink;
    use std::ptr::NonNull;

    use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

    use super::*;

    /// A mapped file.
    struct Map(NonNull<c_void>);

    #[expect(unsafe_code, reason = "mapping a file")]
    impl Map {
        fn of(file: &File) -> Self {
            let (size, read) = (NonZeroUsize::new(4096).unwrap(), ProtFlags::PROT_READ);
            // SAFETY: a new map at a place of the kernel's choice, which nothing refers to.
            let map = unsafe { mmap(None, size, read, MapFlags::MAP_PRIVATE, file, 0) };
            Self(map.unwrap())
        }
    }

    #[expect(unsafe_code, reason = "mapping a file")]
    impl Drop for Map {
        fn drop(&mut self) {
            // SAFETY: mapped by `of`, with this size, and nothing refers to it.
            unsafe { munmap(self.0, 4096) }.unwrap();
        }
    }

    /// As much of a library as an installation looks at.
    fn library(directory: &Path, mark: u8) -> PathBuf {
        let mut content = vec![0; 4096];
        content[..4].copy_from_slice(b"\x7fELF");
        content[16] = 3;
        content[100] = mark;
        let path = directory.join(format!("built-{mark}.so"));
        fs::write(&path, content).unwrap();
        path
    }

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_new_version_leaves_the_old_one_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let lib = scratch.path().join("lib");
        let first = install(&library(scratch.path(), 1), None, &lib, "1.0.0").unwrap();
        let inode = fs::metadata(&first.library).unwrap().ino();
        let again = install(&library(scratch.path(), 1), None, &lib, "1.0.0").unwrap();
        assert_eq!(again, first);
        assert_eq!(fs::metadata(&first.library).unwrap().ino(), inode, "rewritten");
        let second = install(&library(scratch.path(), 2), None, &lib, "1.0.0").unwrap();
        assert_ne!(second.library, first.library);
        assert!(first.library.exists());
        let name = second.library.file_name().unwrap().to_str().unwrap();
        let line = fs::read_to_string(&second.preload).unwrap();
        assert_eq!(line, format!("/usr/lib/vcuda/{name}\n"));
    }

    #[test]
    fn only_what_nothing_uses_is_collected() {
        let scratch = tempfile::tempdir().unwrap();
        let (lib, cdi) = (scratch.path().join("lib"), scratch.path().join("cdi"));
        fs::create_dir(&cdi).unwrap();
        let versions: Vec<Installed> = (1..=4)
            .map(|mark| install(&library(scratch.path(), mark), None, &lib, "1.0.0").unwrap())
            .collect();
        let [unused, mapped, named, current] = &versions[..] else {
            panic!("four")
        };
        // The map outlives the name, as with a mount.
        let file = File::open(&mapped.library).unwrap();
        let map = Map::of(&file);
        let name = named.library.file_name().unwrap().to_str().unwrap();
        fs::write(
            cdi.join("vcuda.io-slot-1.json"),
            format!("{{\"hostPath\": \"/x/{name}\"}}"),
        )
        .unwrap();
        fs::write(lib.join("another.txt"), "").unwrap();
        fs::write(lib.join(format!("{PREFIX}1.0.0-aa.so.new-999999999")), "").unwrap();

        let removed = collect(&lib, current, &cdi).unwrap();
        assert_eq!(removed.len(), 3, "{removed:?}");
        assert!(!unused.library.exists() && !unused.preload.exists());
        for kept in [mapped, named, current] {
            assert!(kept.library.exists() && kept.preload.exists(), "{kept:?}");
        }
        drop(map);
        fs::remove_file(cdi.join("vcuda.io-slot-1.json")).unwrap();
        assert_eq!(collect(&lib, current, &cdi).unwrap().len(), 4);
        assert_eq!(names(&lib).len(), 3);
    }

    #[test]
    fn what_cannot_be_told_is_kept() {
        let scratch = tempfile::tempdir().unwrap();
        let lib = scratch.path().join("lib");
        let old = install(&library(scratch.path(), 1), None, &lib, "1.0.0").unwrap();
        let current = install(&library(scratch.path(), 2), None, &lib, "1.0.0").unwrap();
        let cdi = scratch.path().join("cdi");
        fs::create_dir(&cdi).unwrap();
        // Something that is there and cannot be read: a directory of that name.
        fs::create_dir(cdi.join("a.json")).unwrap();
        assert!(collect(&lib, &current, &cdi).is_err());
        assert!(old.library.exists());
    }

    #[test]
    fn what_is_no_library_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let text = scratch.path().join("text.so");
        fs::write(&text, "#!/bin/sh\n").unwrap();
        let error = install(&text, None, scratch.path(), "1").unwrap_err().to_string();
        assert!(error.contains("libvcuda_shim.so"), "{error}");
        let missing = scratch.path().join("missing.so");
        symlink("/nowhere", &missing).unwrap();
        let error = install(&missing, None, scratch.path(), "1")
            .unwrap_err()
            .to_string();
        assert!(error.contains("cargo build"), "{error}");
    }
}
