//! Devices of the plugins, as the device manager keeps them: listed, allocated, and stored in its checkpoint.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use prost::Message as _;
use serde_json::{Value, json};
use vcuda_kubelet_api::v1beta1::{ContainerAllocateResponse, Device};
use vcuda_kubelet_api::{HEALTHY, ID_MAX, UNHEALTHY};

use super::clients::Client;

/// Time for which a resource stays known without its plugin (endpointStopGracePeriod).
const STAYS: Duration = Duration::from_secs(300);

/// A container of a pod, by the pod's UID.
pub(super) type Key = (String, String);

/// IDs by their NUMA node; -1 without topology.
pub(super) type ByNuma = BTreeMap<i64, BTreeSet<String>>;

/// Devices of one resource allocated to a container.
#[derive(Debug, Clone)]
pub(super) struct Allocated {
    pub(super) ids: BTreeSet<String>,
    pub(super) answer: ContainerAllocateResponse,
    /// Text in the checkpoint, cached as it is written often.
    entry: String,
}

impl Allocated {
    pub(super) fn new(
        key: &Key,
        resource: &str,
        by_numa: &ByNuma,
        answer: ContainerAllocateResponse,
    ) -> Self {
        let (uid, container) = key;
        let entry = json!({
            "PodUID": uid, "ContainerName": container, "ResourceName": resource,
            "DeviceIDs": by_numa,
            "AllocResp": hex(&answer.encode_to_vec()),
        });
        Self { ids: by_numa.values().flatten().cloned().collect(), answer, entry: entry.to_string() }
    }
}

/// State of a plugin for one resource.
#[derive(Debug, Default)]
pub(super) struct Endpoint {
    pub(super) healthy: BTreeSet<String>,
    unhealthy: BTreeSet<String>,
    /// First NUMA node of each device with topology.
    numa: BTreeMap<String, i64>,
    /// Whether it wants PreStartContainer calls; `None` if unknown since kubelet's start.
    pub(super) pre_start: Option<bool>,
    stopped: Option<SystemTime>,
    /// Text in the checkpoint.
    entry: String,
}

impl Endpoint {
    fn note(&mut self, resource: &str) {
        let all: Vec<&String> = self.healthy.iter().chain(&self.unhealthy).collect();
        self.entry = format!("{}:{}", json!(resource), json!(all));
    }
}

/// All devices.
#[derive(Debug, Default)]
pub(super) struct Devices {
    pub(super) clients: HashMap<String, Client>,
    pub(super) endpoints: BTreeMap<String, Endpoint>,
    pub(super) allocated: BTreeMap<Key, BTreeMap<String, Allocated>>,
    /// UIDs of running pods.
    pub(super) active: BTreeSet<String>,
}

impl Devices {
    /// Resets the state after kubelet's start to that of the checkpoint, without plugins.
    pub(super) fn restarted(&mut self, checkpoint: &Path) {
        self.clients.clear();
        self.endpoints.clear();
        self.allocated.clear();
        let Ok(text) = fs::read_to_string(checkpoint) else {
            return;
        };
        let read: Value = serde_json::from_str(&text).unwrap();
        for (resource, ids) in read["Data"]["RegisteredDevices"].as_object().unwrap() {
            // All are unhealthy until their plugin is back; their number is known.
            let mut endpoint =
                Endpoint { unhealthy: strings(ids), stopped: Some(SystemTime::now()), ..Endpoint::default() };
            endpoint.note(resource);
            self.endpoints.insert(resource.clone(), endpoint);
        }
        for entry in read["Data"]["PodDeviceEntries"].as_array().into_iter().flatten() {
            let word = |name: &str| entry[name].as_str().unwrap().to_owned();
            let by_numa = entry["DeviceIDs"].as_object().unwrap();
            let by_numa = by_numa.iter().map(|(node, ids)| (node.parse().unwrap(), strings(ids)));
            let answer = unhex(&word("AllocResp"));
            let answer = ContainerAllocateResponse::decode(answer.as_slice()).unwrap();
            let key = (word("PodUID"), word("ContainerName"));
            let allocated = Allocated::new(&key, &word("ResourceName"), &by_numa.collect(), answer);
            let container = self.allocated.entry(key).or_default();
            container.insert(word("ResourceName"), allocated);
        }
    }

    pub(super) fn write(&self, checkpoint: &Path) {
        let allocated = self.allocated.values().flat_map(BTreeMap::values);
        let entries: Vec<&str> = allocated.map(|allocated| allocated.entry.as_str()).collect();
        let entries = match entries.is_empty() {
            true => "null".to_owned(),
            false => format!("[{}]", entries.join(",")),
        };
        let registered: Vec<&str> = self.endpoints.values().map(|endpoint| endpoint.entry.as_str()).collect();
        let registered = registered.join(",");
        let text = format!(
            "{{\"Data\":{{\"PodDeviceEntries\":{entries},\"RegisteredDevices\":{{{registered}}}}},\"Checksum\":1}}"
        );
        let aside = checkpoint.with_extension("aside");
        fs::write(&aside, text).unwrap();
        fs::rename(aside, checkpoint).unwrap();
    }

    pub(super) fn counts(&self, resource: &str) -> (usize, usize) {
        let endpoint = self.endpoints.get(resource);
        endpoint.map_or((0, 0), |endpoint| {
            (endpoint.healthy.len(), endpoint.healthy.len() + endpoint.unhealthy.len())
        })
    }

    pub(super) fn knows(&self, resource: &str, later: Duration) -> bool {
        self.endpoints.get(resource).is_some_and(|endpoint| {
            let stopped = endpoint.stopped;
            stopped.is_none_or(|stopped| SystemTime::now() + later < stopped + STAYS)
        })
    }

    pub(super) fn connected(&mut self, resource: &str, client: Client) {
        let endpoint = self.endpoints.entry(resource.to_owned()).or_default();
        endpoint.pre_start = Some(client.options.pre_start_required);
        endpoint.note(resource);
        endpoint.stopped = None;
        self.clients.insert(resource.to_owned(), client);
    }

    pub(super) fn disconnected(&mut self, resource: &str) -> Option<Client> {
        let endpoint = self.endpoints.entry(resource.to_owned()).or_default();
        let healthy = std::mem::take(&mut endpoint.healthy);
        endpoint.unhealthy.extend(healthy);
        endpoint.stopped = Some(SystemTime::now());
        self.clients.remove(resource)
    }

    pub(super) fn listed(&mut self, resource: &str, devices: &[Device]) -> Result<(), String> {
        let endpoint = self.endpoints.entry(resource.to_owned()).or_default();
        endpoint.healthy.clear();
        endpoint.unhealthy.clear();
        endpoint.numa.clear();
        for device in devices {
            if device.id.is_empty() || device.id.len() > ID_MAX {
                return Err(format!("device ID {:?} has not 1 to {ID_MAX} characters", device.id));
            }
            let is_new = match device.health.as_str() {
                HEALTHY => endpoint.healthy.insert(device.id.clone()),
                UNHEALTHY => endpoint.unhealthy.insert(device.id.clone()),
                other => return Err(format!("health {other:?}")),
            };
            if !is_new {
                return Err(format!("device {:?} is listed twice", device.id));
            }
            let nodes = device.topology.iter().flat_map(|topology| &topology.nodes);
            let nodes = nodes.map(|node| (device.id.clone(), node.id));
            endpoint.numa.extend(nodes);
        }
        endpoint.note(resource);
        Ok(())
    }

    /// Frees the devices of pods that no longer run. This does not write the checkpoint.
    pub(super) fn update_allocated(&mut self) {
        let active = &self.active;
        self.allocated.retain(|(uid, _), _| active.contains(uid));
    }

    /// These IDs by their NUMA node.
    pub(super) fn by_numa(&self, resource: &str, ids: BTreeSet<String>) -> ByNuma {
        let numa = self.endpoints.get(resource).map(|endpoint| &endpoint.numa);
        let mut by_numa = ByNuma::new();
        for id in ids {
            let node = numa.and_then(|numa| numa.get(&id)).copied().unwrap_or(-1);
            by_numa.entry(node).or_default().insert(id);
        }
        by_numa
    }

    /// NUMA nodes of all devices of a resource.
    pub(super) fn numa_nodes(&self, resource: &str) -> BTreeSet<i64> {
        let all = self.endpoints.get(resource);
        let all = all.map(|endpoint| endpoint.healthy.union(&endpoint.unhealthy).cloned().collect());
        self.by_numa(resource, all.unwrap_or_default()).into_keys().collect()
    }

    pub(super) fn in_use(&self, resource: &str) -> BTreeSet<String> {
        let all = self.allocated.values().filter_map(|resources| resources.get(resource));
        all.flat_map(|allocated| allocated.ids.iter().cloned()).collect()
    }
}

pub(super) fn strings(list: &Value) -> BTreeSet<String> {
    let all = list.as_array().into_iter().flatten();
    all.map(|id| id.as_str().unwrap().to_owned()).collect()
}

/// Kubelet uses base64 here; nothing else reads it.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().map(|digit| digit.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
}
