//! Device manager: devices, their allocation, and the plugins' answers. Only its checkpoint survives a restart.
//!
//! pkg/kubelet/cm/devicemanager (manager, pod_devices, endpoint, checkpoint).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use vcuda_kubelet_api::v1beta1::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, PreStartContainerRequest, PreferredAllocationRequest,
};

use super::Node;
use super::clients::Client;
use super::devices::{Allocated, Key};

/// Time limit for PreStartContainer (KubeletPreStartContainerRPCTimeoutInSecs).
const STARTS_WITHIN: Duration = Duration::from_secs(30);

/// Devices of plain init containers that later containers of the pod reuse, by resource (manager.go, Allocate: devicesToReuse). A
/// container that is no plain init container keeps what it reuses.
pub(super) type Reusable = BTreeMap<String, BTreeSet<String>>;

impl Node {
    fn client(&self, resource: &str) -> Result<Client, String> {
        let client = self.devices.lock().clients.get(resource).cloned();
        client.ok_or_else(|| format!("endpoint {resource} has been stopped"))
    }

    /// Allocates devices for one container and resource, and calls the plugin.
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
            let healthy = devices.endpoints.get(resource).map(|endpoint| endpoint.healthy.clone());
            let healthy = healthy.unwrap_or_default();
            if healthy.is_empty() {
                return Err(format!(
                    "no healthy devices present; cannot allocate unhealthy devices {resource}"
                ));
            }
            let in_use = devices.in_use(resource);
            // Any of them: Go's order of a map (manager.go, devicesToAllocate: allocateRemainingFrom(reusableDevices)).
            let reusable = self.shuffled(reused.intersection(&healthy).cloned());
            let must: BTreeSet<String> = reusable.into_iter().take(count).collect();
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
        let answer = self.call_allocate(resource, chosen.iter().cloned().collect()).await?;
        for id in &chosen {
            reused.remove(id);
        }
        let mut devices = self.devices.lock();
        let allocated = Allocated::new(key, resource, &devices.by_numa(resource, chosen), answer);
        devices.allocated.entry(key.clone()).or_default().insert(resource.to_owned(), allocated);
        Ok(())
    }

    /// Chooses devices in this order: those of init containers, those preferred by the plugin, any.
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
            let request = PreferredAllocationRequest { container_requests: vec![request] };
            let answer = client.plugin().get_preferred_allocation(request).await;
            let answer = answer.map_err(|status| status.message().to_owned())?.into_inner();
            let preferred = answer.container_responses.into_iter().next().unwrap_or_default().device_i_ds;
            let preferred: BTreeSet<String> = preferred.into_iter().collect();
            if preferred.len() != count || !preferred.is_superset(must) || !preferred.is_subset(available) {
                self.wrong(format!("{resource}: preferred {preferred:?}, of {count} with {must:?}"));
            }
            chosen.extend(preferred.into_iter().filter(|id| available.contains(id)).take(count - must.len()));
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

    /// Calls Allocate without a deadline, like kubelet; but an answer that takes a second counts as wrong.
    pub(super) async fn call_allocate(
        &self,
        resource: &str,
        ids: Vec<String>,
    ) -> Result<ContainerAllocateResponse, String> {
        let request =
            AllocateRequest { container_requests: vec![ContainerAllocateRequest { devices_ids: ids }] };
        let begun = SystemTime::now();
        let answer = self.client(resource)?.plugin().allocate(request).await;
        let answer = answer.map_err(|status| format!("{}: {}", status.code(), status.message()))?;
        if begun.elapsed().unwrap_or_default() > Duration::from_secs(5) {
            self.wrong(format!("{resource}: Allocate took {:?}", begun.elapsed()));
        }
        // Only the first one counts.
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

    /// Calls PreStartContainer of each plugin that wants it. One whose options are unknown since kubelet's start is not
    /// called (behaviour 5).
    pub(super) async fn before_start(&self, key: &Key) -> Result<(), String> {
        let resources = self.devices.lock().allocated.get(key).cloned().unwrap_or_default();
        for (resource, allocated) in self.shuffled(resources) {
            let wants = self.devices.lock().endpoints.get(&resource).and_then(|endpoint| endpoint.pre_start);
            if wants == Some(true) {
                let ids = self.shuffled(allocated.ids);
                self.call_start(&resource, ids).await?;
            }
        }
        Ok(())
    }
}
