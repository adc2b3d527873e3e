//! The driver's libraries and programs on the node, for containers whose runtime does not bring them (`inject = "cdi"`).
//!
//! They are found as the node's own loader finds them: in the cache of the driver's root, which is `/`, or
//! `/run/nvidia/driver` where NVIDIA's GPU Operator runs the driver in a container. A container gets each library under the
//! name by which programs ask for it, in the two directories that loaders search without a cache. So neither links nor a
//! rebuilt `ld.so.cache` are needed in it, which would take a hook that runs with the runtime's rights.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

mod cache;
mod resolve;

use resolve::resolve;

/// Libraries of a driver that compute, management and video programs load, without what follows `.so`
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
/// Without these two there is no driver.
const NEEDED: [&str; 2] = ["libcuda.so.1", "libnvidia-ml.so.1"];
/// Programs of a driver that people expect in a container.
const PROGRAMS: [&str; 1] = ["usr/bin/nvidia-smi"];
/// Folders that the loaders of Debian's and of Red Hat's families search without a cache (ld.so(8), "default path").
#[cfg(target_arch = "aarch64")]
const SEARCHED: [&str; 2] = ["usr/lib/aarch64-linux-gnu", "usr/lib64"];
#[cfg(not(target_arch = "aarch64"))]
const SEARCHED: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "usr/lib64"];

/// A file of the driver and where a container finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// On the host.
    pub host: PathBuf,
    /// In the container.
    pub container: PathBuf,
}

/// There is no driver to give to containers.
#[derive(Debug, Error)]
pub enum DriverError {
    /// One of its two main libraries is not there.
    #[error(
        "no {library} in the driver's root {root}: set driver.root (with NVIDIA's GPU Operator: /run/nvidia/driver), or \
         inject = \"toolkit-env\" where NVIDIA's container toolkit is the runtime"
    )]
    Missing {
        /// Name of the library.
        library: &'static str,
        /// Folder on the host in which it was looked for.
        root: PathBuf,
    },
    /// The loader's cache is not one.
    #[error("{0}: {1}; run ldconfig on the node")]
    Cache(PathBuf, &'static str),
    /// The system's.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
}

/// Finds the driver's files under `root` of the host, which this process sees at `view`.
///
/// # Errors
/// [`DriverError`]: containers would come up without a driver.
pub fn find(root: &Path, view: &Path) -> Result<Vec<Bound>, DriverError> {
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    for (name, path) in named(view)? {
        let is_new = !found.iter().any(|(known, _)| *known == name);
        if is_new && let Some(file) = resolve(view, &path) {
            found.push((name, file));
        }
    }
    for library in NEEDED {
        if !found.iter().any(|(name, _)| name == library) {
            return Err(DriverError::Missing {
                library,
                root: root.to_owned(),
            });
        }
    }
    found.sort();
    let mut bound = Vec::new();
    for (name, file) in &found {
        let host = root.join(file);
        // Some programs ask for the name that only development packages have.
        let development = (name == "libcuda.so.1").then_some("libcuda.so");
        for directory in SEARCHED {
            for name in development.into_iter().chain([name.as_str()]) {
                bound.push(Bound {
                    host: host.clone(),
                    container: Path::new("/").join(directory).join(name),
                });
            }
        }
    }
    for program in PROGRAMS {
        if let Some(file) = resolve(view, Path::new(program)) {
            bound.push(Bound {
                host: root.join(file),
                container: Path::new("/").join(program),
            });
        }
    }
    Ok(bound)
}

/// The driver's libraries by the names that programs ask for, each with a path below the root; the first of a name counts.
fn named(view: &Path) -> Result<Vec<(String, PathBuf)>, DriverError> {
    let path = view.join("etc/ld.so.cache");
    let mut named = match fs::read(&path) {
        Ok(bytes) => cache::libraries(&bytes).map_err(|why| DriverError::Cache(path, why))?,
        // A node without one (COS, Talos) has its libraries in the usual places.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(DriverError::Io(path, error)),
    };
    for directory in SEARCHED {
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

/// `libcuda.so.1`, `libnvidia-gpucomp.so.580.65.06`; not `libcuda.so`, which is a link for compilers.
fn is_of_the_driver(name: &str) -> bool {
    let stem = |library: &&str| {
        name.strip_prefix(*library)
            .is_some_and(|rest| rest.len() > 1 && rest.starts_with('.'))
    };
    LIBRARIES.iter().any(stem)
}

#[cfg(test)]
mod tests;
