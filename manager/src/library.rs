//! Installed versions of the shim: each has its own file name, is put there by rename, and is never rewritten (I13).
//!
//! Running containers keep the file that they were started with, so an upgrade does not affect them. An old version is
//! removed when no process maps it and no container's specification names it, as such a container may start again.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use thiserror::Error;
use vcuda_cdi::LIBRARIES_IN_CONTAINER;

const PREFIX: &str = "libvcuda_shim-";
const PRELOAD_PREFIX: &str = "ld.so.preload-";
const PROGRAM_PREFIX: &str = "vcuda-";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    pub library: PathBuf,
    /// File for a container's `/etc/ld.so.preload`, with the library's path inside the container.
    pub preload: PathBuf,
    /// Path of the `vcuda` command, if containers get one.
    pub program: Option<PathBuf>,
}

/// The version that new containers get; `None` if none was installed yet.
#[derive(Debug, Default)]
pub struct Current(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    installed: Option<Installed>,
    failure: Option<String>,
}

impl Current {
    pub fn set(&self, installed: Installed) {
        *self.0.lock() = State { installed: Some(installed), failure: None };
    }

    /// Notes that an installation failed; the current version stays. Returns whether this failure is new.
    pub fn fail(&self, failure: &InstallError) -> bool {
        let failure = Some(failure.to_string());
        let mut state = self.0.lock();
        let is_new = state.failure != failure;
        state.failure = failure;
        is_new
    }

    pub fn get(&self) -> Option<Installed> {
        self.0.lock().installed.clone()
    }

    /// What the last installation's failure means for new containers, and why it failed.
    pub fn problem(&self) -> Option<String> {
        let state = self.0.lock();
        let failure = state.failure.as_ref()?;
        let effect = match state.installed {
            Some(_) => "new containers get the shim of before",
            None => "new containers get no shim, so none is started",
        };
        Some(format!("{effect}: {failure}"))
    }
}

#[derive(Debug, Error)]
pub enum InstallError {
    #[error("shim_library {}: {}; name libvcuda_shim.so of the installation, or leave the key out", .0.display(), .1)]
    Unreadable(PathBuf, io::Error),
    #[error("shim_library {}: not an ELF shared library; give libvcuda_shim.so", .0.display())]
    NotALibrary(PathBuf),
    #[error("vcuda_program {}: {}; name the vcuda command, or leave the key out", .0.display(), .1)]
    NoProgram(PathBuf, io::Error),
    #[error("cannot write {}: {}; make room there, or make it writable: the manager tries again by itself", .0.display(), .1)]
    Unwritable(PathBuf, io::Error),
}

/// Content of the library.
pub(crate) fn read_library(source: &Path) -> Result<Vec<u8>, InstallError> {
    let content = fs::read(source).map_err(|error| InstallError::Unreadable(source.to_owned(), error))?;
    // e_ident, then e_type: ET_DYN (3).
    let is_library = content.starts_with(b"\x7fELF") && content.get(16..18) == Some(&[3, 0]);
    if is_library { Ok(content) } else { Err(InstallError::NotALibrary(source.to_owned())) }
}

/// Content of the command for containers.
pub(crate) fn read_program(source: &Path) -> Result<Vec<u8>, InstallError> {
    fs::read(source).map_err(|error| InstallError::NoProgram(source.to_owned(), error))
}

/// Installs `source` and its `program` in `directory` under a name made of `version` and content, unless already there.
///
/// # Errors
/// Fails if `source` is not a library or cannot be copied; the installed version then stays.
pub(crate) fn install(
    source: &Path,
    program: Option<&Path>,
    directory: &Path,
    version: &str,
) -> Result<Installed, InstallError> {
    let content = read_library(source)?;
    let build = format!("{version}-{:08x}", crc32fast::hash(&content));
    let library = directory.join(format!("{PREFIX}{build}.so"));
    let preload = directory.join(format!("{PRELOAD_PREFIX}{build}"));
    let unwritable = |path: &Path| {
        let path = path.to_owned();
        move |error| InstallError::Unwritable(path, error)
    };
    fs::create_dir_all(directory).map_err(unwritable(directory))?;
    let line = format!("{LIBRARIES_IN_CONTAINER}/{PREFIX}{build}.so\n");
    let program = match program {
        Some(source) => Some((directory.join(format!("{PROGRAM_PREFIX}{build}")), read_program(source)?)),
        None => None,
    };
    let program_file = program.iter().map(|(path, content)| (path, content.as_slice(), 0o755));
    for (path, content, mode) in [(&library, content.as_slice(), 0o755), (&preload, line.as_bytes(), 0o644)]
        .into_iter()
        .chain(program_file)
    {
        // A file of this name with other content is damaged. It is replaced; containers that mount it keep the damaged one.
        if fs::read(path).is_ok_and(|there| there == content) {
            continue;
        }
        write_file(path, content, mode).map_err(unwritable(path))?;
    }
    Ok(Installed { library, preload, program: program.map(|(path, _)| path) })
}

/// Writes a file completely or not at all, also across a power failure.
fn write_file(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
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

/// Removes unused versions from `directory`, except `current`, and leftovers of killed installations. Returns the names of
/// the removed files.
///
/// `specifications` are the directories of container specifications (CDI). If one of them or the list of processes cannot be read,
/// nothing is removed.
pub(crate) fn collect(
    directory: &Path,
    current: &Installed,
    specifications: &[&Path],
) -> io::Result<Vec<String>> {
    let mapped = mapped_inodes(Path::new("/proc"))?;
    let mut named = Vec::new();
    for folder in specifications {
        named.extend(specifications_of_ours(folder)?);
    }
    let mut removed = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(build) = version_in(&name) else { continue };
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

/// The version in the name of an installed file; `None` for other files.
fn version_in(name: &str) -> Option<&str> {
    let whole = name.split(".new-").next().unwrap_or(name);
    match whole.strip_prefix(PREFIX) {
        Some(rest) => rest.strip_suffix(".so"),
        None => whole.strip_prefix(PRELOAD_PREFIX).or_else(|| whole.strip_prefix(PROGRAM_PREFIX)),
    }
}

/// Whether the process that writes `<name>.new-<pid>` is alive.
fn is_being_written(name: &str) -> bool {
    let pid = name.rsplit(".new-").next().unwrap_or_default();
    Path::new("/proc").join(pid).exists()
}

/// Inodes of all files that processes map, on any file system. A library whose inode number equals a foreign file's is kept
/// longer than necessary.
fn mapped_inodes(proc: &Path) -> io::Result<Vec<u64>> {
    let mut inodes = Vec::new();
    for entry in fs::read_dir(proc)? {
        let name = entry?.file_name();
        // PID 1 runs in no container, and this manager may lack the right to read its maps.
        if name == "1" || !name.as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        // A process that has just ended maps nothing. A process that may not be read (without CAP_SYS_PTRACE) could map
        // anything.
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

/// Texts of the specifications that name a file of vcuda; empty if the directory does not exist.
fn specifications_of_ours(specifications: &Path) -> io::Result<Vec<String>> {
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

    /// A mapping of a file.
    struct Map(NonNull<c_void>);

    #[expect(unsafe_code, reason = "mapping a file")]
    impl Map {
        fn of(file: &File) -> Self {
            let (size, read) = (NonZeroUsize::new(4096).unwrap(), ProtFlags::PROT_READ);
            // SAFETY: a new map at an address of the kernel's choice, which nothing refers to.
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

    /// Writes the part of a library that an installation reads.
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
        let [unused, mapped, named, current] = &versions[..] else { panic!("four") };
        // The map outlives the name, like a mount.
        let file = File::open(&mapped.library).unwrap();
        let map = Map::of(&file);
        let name = named.library.file_name().unwrap().to_str().unwrap();
        fs::write(cdi.join("vcuda.io-slot-1.json"), format!("{{\"hostPath\": \"/x/{name}\"}}")).unwrap();
        fs::write(lib.join("another.txt"), "").unwrap();
        fs::write(lib.join(format!("{PREFIX}1.0.0-aa.so.new-999999999")), "").unwrap();

        let removed = collect(&lib, current, &[&cdi]).unwrap();
        assert_eq!(removed.len(), 3, "{removed:?}");
        assert!(!unused.library.exists() && !unused.preload.exists());
        for kept in [mapped, named, current] {
            assert!(kept.library.exists() && kept.preload.exists(), "{kept:?}");
        }
        drop(map);
        fs::remove_file(cdi.join("vcuda.io-slot-1.json")).unwrap();
        assert_eq!(collect(&lib, current, &[&cdi]).unwrap().len(), 4);
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
        // A file that cannot be read: a directory of that name.
        fs::create_dir(cdi.join("a.json")).unwrap();
        assert!(collect(&lib, &current, &[&cdi]).is_err());
        assert!(old.library.exists());
    }

    #[test]
    fn a_failure_is_told_until_an_installation_succeeds_and_leaves_the_version_before() {
        let scratch = tempfile::tempdir().unwrap();
        let current = Current::default();
        let failure = InstallError::NotALibrary("x".into());
        assert!(current.fail(&failure) && !current.fail(&failure), "told once");
        assert!(current.problem().unwrap().starts_with("new containers get no shim"));
        let installed = install(&library(scratch.path(), 1), None, scratch.path(), "1").unwrap();
        current.set(installed.clone());
        assert_eq!(current.problem(), None);
        assert!(current.fail(&failure));
        assert!(current.problem().unwrap().starts_with("new containers get the shim of before"));
        assert_eq!(current.get(), Some(installed));
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
        let error = install(&missing, None, scratch.path(), "1").unwrap_err().to_string();
        assert!(error.contains("leave the key out"), "{error}");
    }
}
