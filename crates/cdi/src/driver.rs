//! The driver's libraries and programs on the node, for containers whose runtime does not provide them (`inject = "cdi"`).
//!
//! They are found as the node's own loader finds them: by the `ld.so.cache` of the driver's root. The root is `/`, or
//! `/run/nvidia/driver` if NVIDIA's GPU Operator runs the driver in a container. A container gets each library under the name
//! that programs load, in the two directories that loaders search without a cache. So it needs no links and no new
//! `ld.so.cache`, which a hook with the runtime's rights would have to make.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

mod cache;
mod resolve;

use resolve::resolve;

/// Libraries of a driver that compute, management and video programs load, without the version after `.so`
/// (libnvidia-container, `nvc_info.c`: its utility, compute and video lists).
const LIBRARIES: [&str; 18] = [
    "libcuda.so",
    "libcudadebugger.so",
    "libnvcuvid.so",
    "libnvidia-allocator.so",
    "libnvidia-cfg.so",
    "libnvidia-compiler.so",
    "libnvidia-encode.so",
    "libnvidia-fatbinaryloader.so",
    "libnvidia-gpucomp.so",
    "libnvidia-ml.so",
    "libnvidia-nvvm.so",
    "libnvidia-nvvm70.so",
    "libnvidia-opencl.so",
    "libnvidia-opticalflow.so",
    "libnvidia-pkcs11-openssl3.so",
    "libnvidia-pkcs11.so",
    "libnvidia-ptxjitcompiler.so",
    "libnvidia-sandboxutils.so",
];
/// Libraries without which a root has no driver.
const REQUIRED: [&str; 2] = ["libcuda.so.1", "libnvidia-ml.so.1"];
/// Programs of a driver that users expect in a container.
const PROGRAMS: [&str; 1] = ["usr/bin/nvidia-smi"];
/// Directories that the loaders of Debian's and of Red Hat's families search without a cache (ld.so(8), "default path").
#[cfg(target_arch = "aarch64")]
const LIBRARY_DIRECTORIES: [&str; 2] = ["usr/lib/aarch64-linux-gnu", "usr/lib64"];
#[cfg(not(target_arch = "aarch64"))]
const LIBRARY_DIRECTORIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "usr/lib64"];

/// A file of the driver and its path in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverFile {
    /// Path on the host.
    pub host: PathBuf,
    /// Path in the container.
    pub container: PathBuf,
}

/// The driver's files cannot be found.
#[derive(Debug, Error)]
pub enum DriverError {
    /// A required library is missing.
    #[error(
        "no {library} in the driver's root {root}: set driver.root (in the manager cdi.driver_root; with NVIDIA's GPU Operator: \
         /run/nvidia/driver), or inject = \"toolkit-env\" where NVIDIA's container toolkit is the runtime"
    )]
    Missing {
        /// Name of the library.
        library: &'static str,
        /// The driver's root on the host.
        root: PathBuf,
    },
    /// The loader's cache is damaged.
    #[error("{0}: {1}; run ldconfig on the node")]
    Cache(PathBuf, &'static str),
    /// A file cannot be read.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
}

/// Finds the driver's files under `root` on the host, which this process sees at `view`.
pub fn find(root: &Path, view: &Path) -> Result<Vec<DriverFile>, DriverError> {
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    for (name, path) in driver_libraries(view)? {
        let is_new = !found.iter().any(|(known, _)| *known == name);
        if is_new && let Some(file) = resolve(view, &path) {
            found.push((name, file));
        }
    }
    for library in REQUIRED {
        if !found.iter().any(|(name, _)| name == library) {
            return Err(DriverError::Missing { library, root: root.to_owned() });
        }
    }
    found.sort();
    let mut bound = Vec::new();
    for (name, file) in &found {
        let host = root.join(file);
        // Some programs load the name that only development packages have.
        let development = (name == "libcuda.so.1").then_some("libcuda.so");
        for directory in LIBRARY_DIRECTORIES {
            for name in development.into_iter().chain([name.as_str()]) {
                bound.push(DriverFile {
                    host: host.clone(),
                    container: Path::new("/").join(directory).join(name),
                });
            }
        }
    }
    for program in PROGRAMS {
        if let Some(file) = resolve(view, Path::new(program)) {
            bound.push(DriverFile { host: root.join(file), container: Path::new("/").join(program) });
        }
    }
    Ok(bound)
}

/// The driver's libraries: the name that programs load, and the path below the root. The first entry of a name counts.
fn driver_libraries(view: &Path) -> Result<Vec<(String, PathBuf)>, DriverError> {
    let path = view.join("etc/ld.so.cache");
    let mut named = match fs::read(&path) {
        Ok(bytes) => cache::libraries(&bytes).map_err(|why| DriverError::Cache(path, why))?,
        // A node without a cache (COS, Talos) has its libraries in the searched directories.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(DriverError::Io(path, error)),
    };
    for directory in LIBRARY_DIRECTORIES {
        let Ok(entries) = fs::read_dir(view.join(directory)) else {
            continue;
        };
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let path = Path::new(directory).join(&name);
            named.push((name, path));
        }
    }
    named.retain(|(name, _)| is_of_the_driver(name));
    Ok(named)
}

/// Whether the file is a library of the driver: `libcuda.so.1` or `libnvidia-gpucomp.so.580.65.06`, but not `libcuda.so`, which
/// is a link for compilers.
fn is_of_the_driver(name: &str) -> bool {
    let stem = |library: &&str| {
        name.strip_prefix(*library).is_some_and(|rest| rest.len() > 1 && rest.starts_with('.'))
    };
    LIBRARIES.iter().any(stem)
}

#[cfg(test)]
mod tests;
