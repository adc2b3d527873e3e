//! Folders of the node that a pod has mounted, and places of a container where it mounts something.

use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::Volume;

use super::super::refusal::Refusal;
use super::{Part, refuse};

/// Paths in a container that carry its limits.
const OURS: [&str; 4] = ["/etc/vcuda", "/etc/ld.so.preload", "/usr/lib/vcuda", "/usr/local/bin/vcuda"];
/// Folder in a container whose entries tell NVIDIA's toolkit GPUs (`accept-nvidia-visible-devices-as-volume-mounts`).
const OF_TOOLKIT: &str = "/run/nvidia-container-devices";

/// Folders of the node that pods with shares may mount, as an administrator lists them. A hostPath must be one of them, not
/// merely lie in one: a pod that may write a folder can make a link there, and a later hostPath through the link reaches any
/// folder of the node. A `subPath` of the mount is safe, as kubelet follows no link out of the volume.
///
/// # Errors
/// One that is not absolute, is the root, or lies in another.
pub(crate) fn host_paths(listed: &[String]) -> Result<Vec<PathBuf>, String> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for text in listed {
        let path = normal(text);
        if !text.starts_with('/') || text.split('/').any(|part| part == "..") || path == Path::new("/") {
            return Err(format!("'{text}': write the absolute path of a folder, such as /data"));
        }
        if let Some(other) = paths.iter().find(|other| is_on_the_way(&path, other)) {
            return Err(format!(
                "'{text}': it and {} lie in each other; list one of them, as pods reach the rest by subPath",
                other.display()
            ));
        }
        paths.push(path);
    }
    Ok(paths)
}

/// Checks that a volume is no folder of the node but one of `host_paths`.
pub(super) fn check_volume(volume: &Volume, host_paths: &[PathBuf]) -> Result<(), Refusal> {
    let Some(host) = &volume.host_path else {
        return Ok(());
    };
    if host_paths.contains(&normal(&host.path)) {
        return Ok(());
    }
    refuse(format!(
        "volume {}: hostPath {}: a container could reach GPUs or limits that are not its own; use another kind of volume, or a \
         folder that an administrator lists (cluster.hostPaths in the chart's values) and a subPath of it",
        volume.name, host.path
    ))
}

/// Checks that a container's mounts hide no file that carries its limits.
pub(super) fn check_mounts(part: &Part<'_>) -> Result<(), Refusal> {
    for path in places(part) {
        let hides = OURS.iter().find(|ours| is_on_the_way(&normal(path), Path::new(ours)));
        if let Some(ours) = hides {
            return refuse(format!(
                "container {}: mountPath {path}: it would hide {ours}, which carries the limits; mount it elsewhere",
                part.name
            ));
        }
    }
    Ok(())
}

/// Checks that no mount tells NVIDIA's toolkit a GPU.
pub(super) fn check_toolkit(part: &Part<'_>) -> Result<(), Refusal> {
    match places(part).find(|path| normal(path).starts_with(OF_TOOLKIT)) {
        None => Ok(()),
        Some(path) => refuse(format!(
            "container {}: mountPath {path}: it would get GPUs around all limits; remove it",
            part.name
        )),
    }
}

/// Paths in a container where something is mounted.
fn places<'a>(part: &'a Part<'_>) -> impl Iterator<Item = &'a str> {
    let mounts = part.mounts.iter().map(|mount| mount.mount_path.as_str());
    mounts.chain(part.devices.iter().copied())
}

/// Whether one of the paths lies in the other, or is it.
fn is_on_the_way(path: &Path, ours: &Path) -> bool {
    path.starts_with(ours) || ours.starts_with(path)
}

/// A path without `.`, `..` and doubled slashes; `/var/run` is a link to `/run` on all nodes.
fn normal(path: &str) -> PathBuf {
    let mut normal = PathBuf::from("/");
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => {
                normal.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    match normal.strip_prefix("/var/run") {
        Ok(rest) => Path::new("/run").join(rest),
        Err(_) => normal,
    }
}
