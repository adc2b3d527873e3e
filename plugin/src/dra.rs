//! The driver for Dynamic Resource Allocation: Kubernetes' own scheduler places shares of GPUs (docs/kubernetes.md).
//!
//! The story of one pod: [`slices`] publishes the node's GPUs to the API server. Their capacities are memory, GPU time and
//! slots, of which each claim consumes a part ([`device`]). The scheduler allocates a claim's requests to GPUs. Kubelet then
//! asks [`service`] to prepare the claim: [`claim`] reads the allocation, [`users`] finds the containers of each request,
//! [`prepare`] has the manager create the grants and writes the containers' specifications. After the pod's end kubelet asks to
//! unprepare the claim; [`orphans`] does so if kubelet does not. Meanwhile [`status`] writes the grants into the claim's
//! status, [`claim_reconciler`] applies changed annotations, [`shared_claims`] finds the objects of events, and [`health`] reports unhealthy GPUs to kubelet.

pub(crate) mod claim;
mod claim_annotations;
mod claim_holders;
pub(crate) mod claim_reconciler;
pub(crate) mod device;
pub(crate) mod gpus;
mod grants;
pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod node_lock;
pub(crate) mod orphans;
pub(crate) mod prepare;
pub(crate) mod register;
pub(crate) mod run;
pub(crate) mod service;
mod shared;
mod shared_claims;
pub(crate) mod slices;
pub(crate) mod status;
pub(crate) mod users;

/// Name of the driver in slices, claims and device classes.
pub(crate) const DRIVER: &str = "vcuda.io";
