//! The kubelet device plugin and the DRA driver: they turn the resource requests of pods into grants of the manager and into
//! files in the containers (docs/kubernetes.md).
//!
//! The story of one pod: [`node`] polls the manager for the node's GPUs, [`resources`] makes device lists of them, [`register`]
//! keeps kubelet reading the lists from [`serve`]. Kubelet admits a pod and calls Allocate, which only names a CDI device by the
//! hash of the shares ([`ids`]). At the container's start kubelet calls `PreStartContainer`, which [`bind`] answers: [`pods`]
//! proves which container it is, [`gpu_request`] computes the amounts, the manager chooses the GPUs, [`cdi`] writes the
//! container's specification. When kubelet no longer knows the container, [`release`] releases its grant.
#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines)]

pub mod amounts;
pub mod annotation_reconciler;
pub mod bind;
pub mod cdi;
pub mod cluster;
pub mod config;
pub mod dra;
pub mod event_writer;
pub mod gpu_request;
pub mod ids;
pub mod manager;
pub mod metrics;
pub mod mode;
pub mod node;
pub mod pod_events;
pub mod pods;
pub mod publish;
pub mod reclaim;
pub mod register;
pub mod release;
pub mod resources;
pub mod run;
pub mod serve;
pub mod share_lru;
