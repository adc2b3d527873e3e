//! The driver for Dynamic Resource Allocation: Kubernetes' own scheduler places shares of GPUs (docs/kubernetes.md).
//!
//! The story of one pod: [`slices`] tells the API server which GPUs the node has, with memory, time and places as capacities
//! of which each claim consumes a part ([`device`]). The scheduler allocates a claim's requests to GPUs. Kubelet then asks
//! [`service`] to prepare the claim: [`claim`] reads what was allocated, [`users`] which containers use which requests,
//! [`prepare`] has the manager grant it and writes what the containers receive. After the pod's end kubelet asks to undo it;
//! [`leftover`] does so for claims that are gone without that. Meanwhile [`status`] shows in the claim what it
//! has, and [`follow`] lets it follow annotations; [`health`] tells kubelet
//! which GPUs are ill.

mod chosen;
pub mod claim;
pub mod device;
pub mod follow;
pub mod gpus;
mod grants;
pub mod health;
pub mod leftover;
pub mod metrics;
pub mod parameters;
pub mod prepare;
pub mod register;
pub mod run;
pub mod service;
pub mod slices;
pub mod status;
pub mod turn;
pub mod users;

/// Name of the driver in slices, claims and device classes.
pub const DRIVER: &str = "vcuda.io";
