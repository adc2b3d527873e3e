//! The device manager: which devices there are, who has which, and what was answered for them. Its checkpoint is all that a
//! restart leaves of it.
//!
//! pkg/kubelet/cm/devicemanager (manager, pod_devices, endpoint, checkpoint).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use prost::Message as _;
use serde_json::{Value, json};
use vcuda_kubelet_api::v1beta1::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, Device, PreStartContainerRequest, PreferredAllocationRequest,
};
use vcuda_kubelet_api::{HEALTHY, ID_MAX, UNHEALTHY};

use super::Node;
use super::clients::Client;

/// After its plugin, a resource stays known for so long (endpointStopGracePeriod).
const STAYS: Duration = Duration::from_secs(300);
/// For PreStartContainer (KubeletPreStartContainerRPCTimeoutInSecs).
const STARTS_WITHIN: Duration = Duration::from_secs(30);

/// A container of a pod, by the pod's UID.
pub(super) type Key = (String, String);

/// IDs by the NUMA node that they are near to: -1 without topology.
type ByNuma = BTreeMap<i64, BTreeSet<String>>;

/// What a container got of one resource.
#[derive(Debug, Clone)]
pub(super) struct Allocated {
    pub(super) ids: BTreeSet<String>,
    pub(super) answer: ContainerAllocateResponse,
    /// As the checkpoint has it: written often.
    entry: String,
}

impl Allocated {
    fn new(key: &Key, resource: &str, by_numa: &ByNuma, answer: ContainerAllocateResponse) -> Self {
        let (uid, container) = key;
        let entry = json!({
            "PodUID": uid, "ContainerName": container, "ResourceName": resource,
            "DeviceIDs": by_numa,
            "AllocResp": hex(&answer.encode_to_vec()),
        });
        Self {
            ids: by_numa.values().flatten().cloned().collect(),
            answer,
            entry: entry.to_string(),
        }
    }
}

/// What a plugin has said of one resource.
#[derive(Debug, Default)]
struct Endpoint {
    healthy: BTreeSet<String>,
    unhealthy: BTreeSet<String>,
    /// The first NUMA node of each device with topology.
    numa: BTreeMap<String, i64>,
    /// Whether it wants to be called before starts. None: it has not been asked since kubelet's start.
    pre_start: Option<bool>,
    stopped: Option<SystemTime>,
    /// As the checkpoint has it.
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
    endpoints: BTreeMap<String, Endpoint>,
    pub(super) allocated: BTreeMap<Key, BTreeMap<String, Allocated>>,
    /// Pods that kubelet runs.
    pub(super) active: BTreeSet<String>,
}

impl Devices {
    /// Kubelet has started: it knows what its checkpoint says, and no plugin.
    pub(super) fn restarted(&mut self, checkpoint: &Path) {
        self.clients.clear();
        self.endpoints.clear();
        self.allocated.clear();
        let Ok(text) = fs::read_to_string(checkpoint) else {
            return;
        };
        let read: Value = serde_json::from_str(&text).unwrap();
        for (resource, ids) in read["Data"]["RegisteredDevices"].as_object().unwrap() {
            // All of them are unhealthy until their plugin is back; how many there were is known.
            let mut endpoint = Endpoint {
                unhealthy: strings(ids),
                stopped: Some(SystemTime::now()),
                ..Endpoint::default()
            };
            endpoint.note(resource);
            self.endpoints.insert(resource.clone(), endpoint);
        }
        for entry in read["Data"]["PodDeviceEntries"].as_array().into_iter().flatten() {
            let word = |name: &str| entry[name].as_str().unwrap().to_owned();
            let by_numa = entry["DeviceIDs"].as_object().unwrap();
            let by_numa = by_numa
                .iter()
                .map(|(node, ids)| (node.parse().unwrap(), strings(ids)));
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
        let registered: Vec<&str> = self
            .endpoints
            .values()
            .map(|endpoint| endpoint.entry.as_str())
            .collect();
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
            (
                endpoint.healthy.len(),
                endpoint.healthy.len() + endpoint.unhealthy.len(),
            )
        })
    }

    pub(super) fn ways(&self, resource: &str) -> Vec<&'static str> {
        self.clients
            .get(resource)
            .map(|client| client.way)
            .into_iter()
            .collect()
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
                return Err(format!(
                    "device ID {:?} has not 1 to {ID_MAX} characters",
                    device.id
                ));
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

    /// Takes from pods that kubelet runs no more what they had. The checkpoint is not written for that.
    pub(super) fn update_allocated(&mut self) {
        let active = &self.active;
        self.allocated.retain(|(uid, _), _| active.contains(uid));
    }

    /// These IDs by the NUMA node that they are near to.
    fn by_numa(&self, resource: &str, ids: BTreeSet<String>) -> ByNuma {
        let numa = self.endpoints.get(resource).map(|endpoint| &endpoint.numa);
        let mut by_numa = ByNuma::new();
        for id in ids {
            let node = numa.and_then(|numa| numa.get(&id)).copied().unwrap_or(-1);
            by_numa.entry(node).or_default().insert(id);
        }
        by_numa
    }

    /// The NUMA nodes of all devices of a resource.
    pub(super) fn numa_nodes(&self, resource: &str) -> BTreeSet<i64> {
        let all = self.endpoints.get(resource);
        let all = all.map(|endpoint| endpoint.healthy.union(&endpoint.unhealthy).cloned().collect());
        self.by_numa(resource, all.unwrap_or_default())
            .into_keys()
            .collect()
    }

    fn in_use(&self, resource: &str) -> BTreeSet<String> {
        let all = self
            .allocated
            .values()
            .filter_map(|resources| resources.get(resource));
        all.flat_map(|allocated| allocated.ids.iter().cloned()).collect()
    }
}

/// What an init container of the pod leaves to those after it, by resource.
pub(super) type Reusable = BTreeMap<String, BTreeSet<String>>;

impl Node {
    fn client(&self, resource: &str) -> Result<Client, String> {
        let client = self.devices.lock().clients.get(resource).cloned();
        client.ok_or_else(|| format!("endpoint {resource} has been stopped"))
    }

    /// Devices for one container and resource; asks the plugin.
    pub(super) async fn allocate(
        &self,
        key: &Key,
        resource: &str,
        count: usize,
        reusable: &mut Reusable,
    ) -> Result<(), String> {
        let reused = reusable.entry(resource.to_owned()).or_default();
        let (available, must) = {
            let mut devices = self.devices.lock();
            devices.update_allocated();
            let healthy = devices
                .endpoints
                .get(resource)
                .map(|endpoint| endpoint.healthy.clone());
            let healthy = healthy.unwrap_or_default();
            if healthy.is_empty() {
                return Err(format!(
                    "no healthy devices present; cannot allocate unhealthy devices {resource}"
                ));
            }
            let in_use = devices.in_use(resource);
            let must: BTreeSet<String> = reused.intersection(&healthy).take(count).cloned().collect();
            let free = healthy.difference(&in_use).cloned();
            let available: BTreeSet<String> = free.chain(must.iter().cloned()).collect();
            (available, must)
        };
        if available.len() < count {
            return Err(format!(
                "requested number of devices unavailable for {resource}. Requested: {count}, Available: {}",
                available.len()
            ));
        }
        let chosen = self.choose(resource, &available, &must, count).await?;
        let answer = self
            .call_allocate(resource, chosen.iter().cloned().collect())
            .await?;
        for id in &chosen {
            reused.remove(id);
        }
        let mut devices = self.devices.lock();
        let allocated = Allocated::new(key, resource, &devices.by_numa(resource, chosen), answer);
        devices
            .allocated
            .entry(key.clone())
            .or_default()
            .insert(resource.to_owned(), allocated);
        Ok(())
    }

    /// What init containers left first, then what the plugin prefers, then any.
    async fn choose(
        &self,
        resource: &str,
        available: &BTreeSet<String>,
        must: &BTreeSet<String>,
        count: usize,
    ) -> Result<BTreeSet<String>, String> {
        let mut chosen = must.clone();
        let client = self.client(resource)?;
        if chosen.len() < count
            && available.len() > count
            && client.options.get_preferred_allocation_available
        {
            let request = ContainerPreferredAllocationRequest {
                available_device_i_ds: self.shuffled(available.clone()),
                must_include_device_i_ds: self.shuffled(must.clone()),
                allocation_size: i32::try_from(count).unwrap(),
            };
            let request = PreferredAllocationRequest {
                container_requests: vec![request],
            };
            let answer = client.plugin().get_preferred_allocation(request).await;
            let answer = answer.map_err(|status| status.message().to_owned())?.into_inner();
            let preferred = answer
                .container_responses
                .into_iter()
                .next()
                .unwrap_or_default()
                .device_i_ds;
            let preferred: BTreeSet<String> = preferred.into_iter().collect();
            if preferred.len() != count || !preferred.is_superset(must) || !preferred.is_subset(available) {
                self.wrong(format!(
                    "{resource}: preferred {preferred:?}, of {count} with {must:?}"
                ));
            }
            chosen.extend(
                preferred
                    .into_iter()
                    .filter(|id| available.contains(id))
                    .take(count - must.len()),
            );
        }
        for id in self.shuffled(available.clone()) {
            if chosen.len() >= count {
                break;
            }
            chosen.insert(id);
        }
        Ok(chosen)
    }

    pub(super) fn shuffled<T: Clone>(&self, of: impl IntoIterator<Item = T>) -> Vec<T> {
        let mut all: Vec<T> = of.into_iter().collect();
        self.random.lock().shuffle(&mut all);
        all
    }

    /// Without a deadline, as kubelet's; but an answer that takes a second is wrong.
    pub(super) async fn call_allocate(
        &self,
        resource: &str,
        ids: Vec<String>,
    ) -> Result<ContainerAllocateResponse, String> {
        let request = AllocateRequest {
            container_requests: vec![ContainerAllocateRequest { devices_ids: ids }],
        };
        let begun = SystemTime::now();
        let answer = self.client(resource)?.plugin().allocate(request).await;
        let answer = answer.map_err(|status| format!("{}: {}", status.code(), status.message()))?;
        if begun.elapsed().unwrap_or_default() > Duration::from_secs(5) {
            self.wrong(format!("{resource}: Allocate took {:?}", begun.elapsed()));
        }
        // Only the first counts.
        let first = answer.into_inner().container_responses.into_iter().next();
        first.ok_or_else(|| "no containers in container allocation response".to_owned())
    }

    pub(super) async fn call_start(&self, resource: &str, ids: Vec<String>) -> Result<(), String> {
        let request = PreStartContainerRequest { devices_ids: ids };
        let mut plugin = self.client(resource)?.plugin();
        let answer = tokio::time::timeout(STARTS_WITHIN, plugin.pre_start_container(request)).await;
        let answer = answer.map_err(|_| "DeadlineExceeded: context deadline exceeded".to_owned())?;
        answer.map_err(|status| format!("{}: {}", status.code(), status.message()))?;
        Ok(())
    }

    /// Calls the plugins before a container's start: each that wants it. One that has not been asked since kubelet's start
    /// is not called (behaviour 5).
    pub(super) async fn before_start(&self, key: &Key) -> Result<(), String> {
        let resources = self
            .devices
            .lock()
            .allocated
            .get(key)
            .cloned()
            .unwrap_or_default();
        for (resource, allocated) in self.shuffled(resources) {
            let wants = self
                .devices
                .lock()
                .endpoints
                .get(&resource)
                .and_then(|endpoint| endpoint.pre_start);
            if wants == Some(true) {
                let ids = self.shuffled(allocated.ids);
                self.call_start(&resource, ids).await?;
            }
        }
        Ok(())
    }
}

fn strings(list: &Value) -> BTreeSet<String> {
    let all = list.as_array().into_iter().flatten();
    all.map(|id| id.as_str().unwrap().to_owned()).collect()
}

/// Kubelet has base64 here; nobody else reads it.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().map(|digit| digit.to_digit(16).unwrap()).collect();
    digits
        .chunks(2)
        .map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap())
        .collect()
}
