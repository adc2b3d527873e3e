//! Device plugin, DRA driver and the cluster's programs, with kubelet, runtime and API server.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it should be"
)]

mod cdi_schema;
mod cluster_extender;
mod cluster_kubectl;
mod cluster_webhook;
mod dra_driver;
mod dra_node;
mod dra_status;
mod drain;
mod plugin_chain;
mod plugin_cluster;
mod plugin_containerd;
mod plugin_events;
mod plugin_init;
mod plugin_podman;
mod plugin_races;
mod plugin_refusals;
mod plugin_registration;
mod plugin_runtime;
mod plugin_strict;
mod plugin_userns;
mod pod_overcommit;
