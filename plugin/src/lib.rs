//! The kubelet device plugin: what pods ask for in chunks and percents becomes grants of the manager and files in their
//! containers (docs/kubernetes.md).
//!
//! The story of one pod: [`node`] follows the manager's GPUs, [`resources`] makes lists of devices of them, [`register`] sees
//! that kubelet reads the lists from [`serve`]. Kubelet admits a pod and calls Allocate, which names a CDI device by the hash
//! of the shares ([`ids`]) and decides nothing. At the container's start it calls `PreStartContainer`: [`pods`] proves which
//! container this is, [`demand`] counts what it was promised, the manager chooses the GPUs, [`cdi`] writes what the container
//! receives: [`bind`] tells that in order. When kubelet knows the container no more, [`release`] gives it all back.
#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines)]

pub mod amounts;
pub mod bind;
pub mod cdi;
pub mod cluster;
pub mod config;
pub mod demand;
pub mod dra;
pub mod driver;
pub mod event_writer;
pub mod follow;
pub mod ids;
pub mod manager;
pub mod metrics;
pub mod mode;
pub mod node;
pub mod pod_choices;
pub mod pod_events;
pub mod pods;
pub mod publish;
pub mod recency;
pub mod register;
pub mod release;
pub mod resources;
pub mod room;
pub mod run;
pub mod serve;
