//! Manager of a node: owns its GPUs and the record of their grants (docs/operations.md).
//!
//! A grant's path: a request arrives through [`vcuda_manager_api`], is checked, becomes a [`grant::Grant`], is written to
//! the ledger on disk, then into the tenant's directory, from which the shims of its processes read it. No launch depends
//! on the manager: it communicates with shims through mapped memory, and its absence only blocks changes.
#![cfg_attr(not(test), forbid(unsafe_code))]
#![warn(clippy::too_many_lines)]

pub mod access;
mod accounting;
pub mod admission;
pub mod arbiter;
mod audit;
mod background;
mod checked_file;
pub mod checkpoint;
pub mod config;
mod controller;
pub mod driver_limits;
pub mod events;
pub mod gpu;
pub mod grant;
mod grant_devices;
pub mod grant_table;
pub mod inventory;
pub mod keeper;
pub mod ledger;
mod library;
pub mod metrics;
pub mod observe;
mod parts;
pub mod problems;
mod reaper;
pub mod registration;
pub mod run;
pub mod serve;
pub mod service;
pub mod settings;
pub mod state;
mod succession;
mod suspend;
mod tenant_directories;
mod users;
mod value;
mod watchers;
