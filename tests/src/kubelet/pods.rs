//! Pods: admitted as a whole or not at all, their containers started repeatedly, removed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use super::devices::Allocated;
use super::manager::Reusable;
use super::runtime::Started;
use super::{Kubelet, Node, runtime};

/// Role of a container in its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Runs to its end before the others, which inherit its devices.
    Init,
    /// An init container that is restarted and keeps its devices.
    Sidecar,
    /// A main container.
    Main,
}

/// A container in a pod's manifest.
#[derive(Debug, Clone)]
pub struct ContainerSpec {
    /// Its name.
    pub name: String,
    /// Role of the container.
    pub role: Role,
    /// Number of devices by resource.
    pub wants: BTreeMap<String, usize>,
}

/// A pod's manifest.
#[derive(Debug, Clone)]
pub struct PodSpec {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its containers, init containers first.
    pub containers: Vec<ContainerSpec>,
}

impl PodSpec {
    /// A pod in the namespace `default`.
    pub fn new(name: &str) -> Self {
        Self { namespace: "default".to_owned(), name: name.to_owned(), containers: Vec::new() }
    }

    /// Adds a container with its requests of the resources `vcuda.io/<word>`.
    pub fn with(mut self, name: &str, role: Role, wants: &[(&str, usize)]) -> Self {
        self.containers.push(ContainerSpec {
            name: name.to_owned(),
            role,
            wants: wants
                .iter()
                .filter(|(_, count)| *count > 0)
                .map(|(word, count)| (format!("vcuda.io/{word}"), *count))
                .collect(),
        });
        self
    }

    /// A pod with one container `c` and this share of a GPU.
    pub fn share(name: &str, chunks: usize, percent: usize) -> Self {
        Self::new(name).with("c", Role::Main, &[("gpu", 1), ("memory", chunks), ("cores", percent)])
    }
}

/// An admitted pod.
#[derive(Debug, Clone)]
pub struct Pod {
    /// Its UID.
    pub uid: String,
    /// Its manifest.
    pub spec: PodSpec,
}

static UIDS: AtomicU64 = AtomicU64::new(1);

impl Pod {
    /// A pod without our resources, so that no plugin has to admit it.
    pub fn named(name: &str) -> Self {
        Self::of(PodSpec::new(name))
    }

    fn of(spec: PodSpec) -> Self {
        let uid = format!("uid-{}", UIDS.fetch_add(1, Ordering::Relaxed));
        Self { uid, spec }
    }
}

impl Kubelet {
    /// Admits a pod: devices for each of its containers.
    ///
    /// # Errors
    /// Fails with kubelet's message if it is refused for good.
    pub fn admit(&self, spec: PodSpec) -> Result<Pod, String> {
        let pod = Pod::of(spec);
        let admitted = self.runtime().block_on(self.node.admit(&pod));
        match admitted {
            Ok(()) => Ok(pod),
            Err(why) => {
                self.remove(&pod);
                Err(format!("UnexpectedAdmissionError: Allocate failed due to {why}, which is unexpected"))
            }
        }
    }

    /// Starts a container of it.
    ///
    /// # Errors
    /// Fails with the pod's status, `CreateContainerConfigError` or `CreateContainerError`, after which kubelet tries
    /// again.
    pub fn start_container(&self, pod: &Pod, container: &str) -> Result<Started, String> {
        self.runtime().block_on(self.node.start(pod, container))
    }

    /// Ends and deletes the pod. Its devices are free at the next look.
    pub fn remove(&self, pod: &Pod) {
        let mut devices = self.node.devices.lock();
        devices.active.remove(&pod.uid);
        drop(devices);
        self.node.pods.lock().remove(&pod.uid);
    }

    /// Gives one pod's container a device of this resource that another pod's has, which keeps it, in place of one of its own: kubelet
    /// 1.36 was seen to do so under load.
    pub fn give_twice(&self, from: &Pod, to: &Pod, container: &str, word: &str) {
        let resource = format!("vcuda.io/{word}");
        let key = |pod: &Pod| (pod.uid.clone(), container.to_owned());
        let mut devices = self.node.devices.lock();
        let others = devices.allocated[&key(from)][&resource].ids.first().cloned();
        let own = devices.allocated.get_mut(&key(to)).unwrap();
        let Allocated { ids, answer, .. } = own[&resource].clone();
        let ids = ids.into_iter().skip(1).chain(others).collect();
        let twice = Allocated::new(&key(to), &resource, &[(-1, ids)].into(), answer);
        own.insert(resource, twice);
        devices.write(&self.node.checkpoint());
    }

    /// Devices of a container, by resource word.
    pub fn devices_of(&self, pod: &Pod, container: &str, word: &str) -> BTreeSet<String> {
        let devices = self.node.devices.lock();
        let key = (pod.uid.clone(), container.to_owned());
        let allocated = devices.allocated.get(&key).and_then(|all| all.get(&format!("vcuda.io/{word}")));
        allocated.map(|allocated| allocated.ids.clone()).unwrap_or_default()
    }
}

impl Node {
    async fn admit(&self, pod: &Pod) -> Result<(), String> {
        self.devices.lock().active.insert(pod.uid.clone());
        self.pods.lock().insert(pod.uid.clone(), pod.clone());
        let mut reusable = Reusable::new();
        for container in &pod.spec.containers {
            let key = (pod.uid.clone(), container.name.clone());
            for (resource, count) in self.shuffled(container.wants.clone()) {
                self.allocate(&key, &resource, count, &mut reusable).await?;
            }
            // Once for each container, whatever its devices.
            self.devices.lock().write(&self.checkpoint());
            if container.role == Role::Init {
                let devices = self.devices.lock();
                for (resource, allocated) in devices.allocated.get(&key).into_iter().flatten() {
                    reusable.entry(resource.clone()).or_default().extend(allocated.ids.iter().cloned());
                }
            }
        }
        Ok(())
    }

    async fn start(&self, pod: &Pod, container: &str) -> Result<Started, String> {
        let key = (pod.uid.clone(), container.to_owned());
        self.before_start(&key)
            .await
            .map_err(|why| format!("CreateContainerConfigError: rpc error: {why}"))?;
        // The stored answers of all resources.
        let resources = self.devices.lock().allocated.get(&key).cloned().unwrap_or_default();
        let answers = resources.into_values().map(|allocated| allocated.answer);
        let names: Vec<String> =
            answers.flat_map(|answer| answer.cdi_devices).map(|device| device.name).collect();
        runtime::create(&self.cdi, &names).map_err(|why| format!("CreateContainerError: {why}"))
    }
}
