//! Kubelet's checkpoint of devices, `kubelet_internal_checkpoint`: JSON in an internal format. Any other form is refused.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use super::{Containers, ExtendedResources};

/// The largest file that is read (bytes).
const MOST_BYTES: u64 = 64 << 20;

#[derive(Debug, Clone, Error)]
pub(crate) enum CheckpointError {
    #[error("kubelet's checkpoint {} cannot be read: {}", .0.display(), .1)]
    Unreadable(PathBuf, String),
    #[error("kubelet's checkpoint {} has a form that this release does not know: {}", .0.display(), .1)]
    Unknown(PathBuf, String),
    #[error("kubelet's checkpoint {} was not read", .0.display())]
    NotRead(PathBuf),
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct File {
    data: Data,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Data {
    /// Null if there are none; a missing key is an unknown form.
    #[serde(deserialize_with = "Option::deserialize")]
    pod_device_entries: Option<Vec<Entry>>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    #[serde(rename = "ContainerName")]
    container: String,
    #[serde(rename = "ResourceName")]
    resource: String,
    /// Device IDs by NUMA node.
    #[serde(rename = "DeviceIDs")]
    device_ids: BTreeMap<String, Vec<String>>,
}

/// Reads the containers that have our devices, by their pods' UIDs.
pub(super) fn read(
    path: &Path,
    names: &ExtendedResources,
) -> Result<BTreeMap<String, Containers>, CheckpointError> {
    let unreadable = |error: io::Error| CheckpointError::Unreadable(path.to_owned(), error.to_string());
    let unknown = |why: String| CheckpointError::Unknown(path.to_owned(), why);
    if std::fs::metadata(path).map_err(unreadable)?.len() > MOST_BYTES {
        return Err(unknown(format!("more than {MOST_BYTES} bytes")));
    }
    let text = std::fs::read(path).map_err(unreadable)?;
    let file: File = serde_json::from_slice(&text).map_err(|error| unknown(error.to_string()))?;
    let mut pods: BTreeMap<String, Containers> = BTreeMap::new();
    for entry in file.data.pod_device_entries.unwrap_or_default() {
        let Some(kind) = names.kind(&entry.resource) else {
            continue;
        };
        if entry.pod_uid.is_empty() || entry.container.is_empty() {
            return Err(unknown("an entry without a pod or container".to_owned()));
        }
        let containers = pods.entry(entry.pod_uid).or_default();
        let devices = containers.entry(entry.container).or_default();
        devices.add(kind, entry.device_ids.values().flatten());
    }
    Ok(pods)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Ids, Kind};

    fn names() -> ExtendedResources {
        let names = ["vcuda.io/gpu", "vcuda.io/memory", "vcuda.io/cores"].map(str::to_owned);
        ExtendedResources::new(names, None)
    }

    fn read_text(text: &str) -> Result<BTreeMap<String, Containers>, String> {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("kubelet_internal_checkpoint");
        std::fs::write(&path, text).unwrap();
        read(&path, &names()).map_err(|error| error.to_string())
    }

    #[test]
    fn devices_are_united_over_numa_nodes_and_resources() {
        let pods = read_text(
            r#"{"Data":{"PodDeviceEntries":[
                {"PodUID":"u","ContainerName":"init","ResourceName":"vcuda.io/gpu","DeviceIDs":{"-1":["s-3"]},"AllocResp":"Cg=="},
                {"PodUID":"u","ContainerName":"c","ResourceName":"vcuda.io/memory","DeviceIDs":{"0":["m-1"],"1":["m-2"]},"AllocResp":""},
                {"PodUID":"u","ContainerName":"c","ResourceName":"vcuda.io/cores","DeviceIDs":{"-1":["GPU-x"]},"AllocResp":""},
                {"PodUID":"v","ContainerName":"c","ResourceName":"other.io/nic","DeviceIDs":{"-1":["n"]},"AllocResp":""}],
                "RegisteredDevices":{}},"Checksum":1}"#,
        )
        .unwrap();
        assert_eq!(pods.len(), 1);
        assert_eq!(pods["u"]["init"].ids_of(Kind::Gpu), &Ids::from([3]));
        assert_eq!(pods["u"]["c"].ids_of(Kind::Memory), &Ids::from([1, 2]));
        assert!(pods["u"]["c"].foreign.contains("GPU-x"));
        assert!(read_text(r#"{"Data":{"PodDeviceEntries":null}}"#).unwrap().is_empty());
    }

    #[test]
    fn another_form_is_refused() {
        for text in [
            "",
            "{}",
            r#"{"Data":{}}"#,
            r#"{"Data":{"PodDeviceEntries":{}}}"#,
            r#"{"Data":{"PodDeviceEntries":[{"PodUID":"u"}]}}"#,
            r#"{"Data":{"PodDeviceEntries":[{"PodUID":"","ContainerName":"c","ResourceName":"vcuda.io/gpu","DeviceIDs":{}}]}}"#,
            // The form before Kubernetes 1.20.
            r#"{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"vcuda.io/gpu","DeviceIDs":["s-1"]}]}}"#,
        ] {
            let error = read_text(text).unwrap_err();
            assert!(error.contains("does not know"), "{text}: {error}");
        }
        let missing = read(Path::new("/nowhere/x"), &names()).unwrap_err().to_string();
        assert!(missing.contains("cannot be read"), "{missing}");
    }
}
