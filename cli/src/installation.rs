//! vcuda's installed libraries and programs, found beside the executable. Libraries are linked under the names that the
//! loader searches for.

use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

const SHIM: &str = "libvcuda_shim.so";
const SIMULATED_CUDA: &str = "libvcuda_simulator_cuda.so";
const SIMULATED_NVML: &str = "libvcuda_simulator_nvml.so";
pub(crate) const REMEDY: &str = "install all of vcuda again, or of a checkout `cargo build --release`";

/// File names under which programs open the driver, and the simulator's library for each.
const DRIVER_NAMES: [(&str, &str); 4] = [
    ("libcuda.so.1", SIMULATED_CUDA),
    ("libcuda.so", SIMULATED_CUDA),
    ("libnvidia-ml.so.1", SIMULATED_NVML),
    ("libnvidia-ml.so", SIMULATED_NVML),
];

/// Path of the shim for `LD_PRELOAD`. The loader splits that variable at colons and spaces, so a path with either is
/// reached through a link under `root`.
pub fn shim(root: &Path) -> Result<PathBuf, Failure> {
    let shim = find(SHIM)?;
    if !has_separator(&shim) {
        return Ok(shim);
    }
    let links = links_directory(root, &shim)?;
    link(&shim, &links.join(SHIM))?;
    checked(links.join(SHIM))
}

/// A directory for `LD_LIBRARY_PATH` with links from the driver's names to the simulator.
pub fn simulator(root: &Path) -> Result<PathBuf, Failure> {
    let cuda = find(SIMULATED_CUDA)?;
    let links = links_directory(root, &cuda)?;
    for (name, library) in DRIVER_NAMES {
        link(&find(library)?, &links.join(name))?;
    }
    checked(links)
}

/// Path of the simulated driver, which a program can be linked with.
pub fn simulated_cuda() -> Result<PathBuf, Failure> {
    find(SIMULATED_CUDA)
}

pub(crate) fn simulated_nvml() -> Result<PathBuf, Failure> {
    find(SIMULATED_NVML)
}

/// Searches beside the executable (`target/release`) and in `../lib` (an installation).
fn find(library: &str) -> Result<PathBuf, Failure> {
    let executable = executable()?;
    let beside = executable.parent().unwrap_or(Path::new("/"));
    let places = [beside.join(library), beside.join("../lib").join(library)];
    let found = places.iter().find(|place| place.is_file());
    found.map(|place| fs::canonicalize(place).unwrap_or_else(|_| place.clone())).ok_or_else(|| {
        Failure::Unavailable(format!(
            "{library} is not beside {} nor in ../lib; {REMEDY}",
            executable.display()
        ))
    })
}

/// Path of another program of vcuda, beside this executable.
pub fn program(name: &str) -> Result<PathBuf, Failure> {
    let executable = executable()?;
    let program = executable.with_file_name(name);
    if program.is_file() {
        return Ok(program);
    }
    Err(Failure::Unavailable(format!("{name} is not beside {}; {REMEDY}", executable.display())))
}

/// Path of this program.
pub fn executable() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::access("find", Path::new("/proc/self/exe"), &error))
}

/// Directory of links, one for each build, so that builds do not replace each other's.
fn links_directory(root: &Path, library: &Path) -> Result<PathBuf, Failure> {
    let mut hasher = std::hash::DefaultHasher::new();
    library.parent().hash(&mut hasher);
    let directory = root.join(format!("lib-{:016x}", hasher.finish()));
    fs::create_dir_all(&directory).map_err(|error| Failure::access("create", &directory, &error))?;
    Ok(directory)
}

/// Makes a link from `name` to `target`, by rename, as another run may make it at the same time.
fn link(target: &Path, name: &Path) -> Result<(), Failure> {
    if fs::read_link(name).is_ok_and(|current| current == target) {
        return Ok(());
    }
    let mut aside = name.as_os_str().to_owned();
    aside.push(format!(".{}", std::process::id()));
    let aside = PathBuf::from(aside);
    let made = symlink(target, &aside).or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Ok(()),
        _ => Err(error),
    });
    made.and_then(|()| fs::rename(&aside, name)).map_err(|error| Failure::access("create", name, &error))
}

fn has_separator(path: &Path) -> bool {
    path.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':' | b';'))
}

/// The path, if the loader can carry it in a list.
pub(crate) fn checked(path: PathBuf) -> Result<PathBuf, Failure> {
    if has_separator(&path) {
        return Err(Failure::Usage(format!(
            "{} has a space or colon in its path, which the loader cannot carry; set XDG_RUNTIME_DIR to a path without",
            path.display()
        )));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_follow_the_build() {
        let scratch = tempfile::tempdir().unwrap();
        let name = scratch.path().join("libcuda.so.1");
        link(Path::new("/first"), &name).unwrap();
        link(Path::new("/second"), &name).unwrap();
        assert_eq!(fs::read_link(&name).unwrap(), Path::new("/second"));
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }

    #[test]
    fn paths_that_the_loader_would_split() {
        assert!(has_separator(Path::new("/my builds/x")));
        assert!(has_separator(Path::new("/a:b")));
        assert!(!has_separator(Path::new("/a-b")));
    }
}
