//! Command-line program of vcuda: runs a command under a GPU quota, and shows the use of all tenants.
//!
//! `run` makes a tenant's directory (crate `vcuda-region`), sets the preload and *becomes* the command: no process of vcuda
//! stays behind. All other commands read those directories, NVML or a simulated machine. Data goes to stdout, messages to
//! stderr.
//!
//! `demo` and `bench` belong to the program `vcuda-bench`, which uses the public modules.
#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines)]

mod apply;
pub mod args;
mod attached;
mod bench;
mod commands;
mod completion;
pub mod config;
mod docker_args;
mod doctor;
mod ended;
mod events;
mod exec;
pub mod failure;
mod front;
mod gpu;
mod grant;
pub mod installation;
pub mod inventory;
mod limit_container;
mod man;
pub mod manager_client;
mod output;
mod process_facts;
pub mod program;
mod ps;
pub mod render;
mod run;
mod sim;
mod smi;
mod snapshot_source;
mod support_bundle;
mod suspend;
mod top;
mod usage;

pub use commands::{carry_out, complete};
