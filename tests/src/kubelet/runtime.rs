//! Container runtime, as far as it reads CDI specifications: each device name must be in exactly one of them, and mounted
//! paths must exist.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// A created container.
#[derive(Debug, Clone, Default)]
pub struct Started {
    /// Names of its devices.
    pub names: Vec<String>,
    /// Container edits of its devices.
    pub edits: Vec<Value>,
}

impl Started {
    /// Host path of a mounted path in the container.
    pub fn host_path(&self, inside: &str) -> Option<PathBuf> {
        let mounts = self.edits.iter().filter_map(|edits| edits["mounts"].as_array());
        let mount = mounts.flatten().find(|mount| mount["containerPath"] == inside)?;
        Some(PathBuf::from(mount["hostPath"].as_str()?))
    }

    /// Mount points in the container.
    pub fn mounted(&self) -> Vec<PathBuf> {
        let mounts = self.edits.iter().filter_map(|edits| edits["mounts"].as_array());
        mounts.flatten().filter_map(|mount| Some(PathBuf::from(mount["containerPath"].as_str()?))).collect()
    }

    /// The container's directory on the host.
    pub fn directory(&self) -> PathBuf {
        self.host_path("/etc/vcuda").unwrap()
    }

    /// Paths of its device nodes.
    pub fn nodes(&self) -> Vec<String> {
        let nodes = self.edits.iter().filter_map(|edits| edits["deviceNodes"].as_array());
        nodes.flatten().map(|node| node["path"].as_str().unwrap().to_owned()).collect()
    }
}

/// Creates a container with these devices.
pub(super) fn create(cdi: &Path, names: &[String]) -> Result<Started, String> {
    let mut edits = Vec::new();
    for name in names {
        let unresolvable = || format!("CDI device injection failed: unresolvable CDI devices {name}");
        let (kind, device) = name.split_once('=').ok_or_else(unresolvable)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(cdi).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_read = path.extension().is_some_and(|end| end == "json" || end == "yaml");
            let Some(spec) = is_read.then(|| fs::read(&path).ok()).flatten() else {
                continue;
            };
            // A file without the name is not needed.
            if !spec.windows(device.len()).any(|part| part == device.as_bytes()) {
                continue;
            }
            let spec: Value = serde_json::from_slice(&spec)
                .map_err(|error| format!("failed to parse CDI Spec {}: {error}", path.display()))?;
            let devices = spec["devices"].as_array().cloned().unwrap_or_default();
            found.extend(
                devices
                    .into_iter()
                    .filter(|one| spec["kind"] == kind && one["name"] == device)
                    .map(|one| one["containerEdits"].clone()),
            );
        }
        // Equal names of the same priority conflict.
        let [one] = found.as_slice() else {
            return Err(unresolvable());
        };
        edits.push(one.clone());
    }
    let started = Started { names: names.to_vec(), edits };
    for mount in started.edits.iter().filter_map(|edits| edits["mounts"].as_array()).flatten() {
        let host = Path::new(mount["hostPath"].as_str().unwrap_or_default());
        if !host.exists() {
            return Err(format!("error mounting {}: no such file or directory", host.display()));
        }
    }
    Ok(started)
}
