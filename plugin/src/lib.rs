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

mod amounts;
mod annotation_reconciler;
mod bind;
mod cdi;
mod cluster;
pub mod config;
mod dra;
mod event_writer;
mod gpu_request;
mod ids;
mod manager;
mod metrics;
mod mode;
mod node;
mod pod_events;
mod pods;
mod publish;
mod reclaim;
mod register;
mod release;
mod resources;
mod run;
mod serve;
mod share_lru;

pub use dra::run::run as run_dra_driver;
pub use run::run as run_device_plugin;
