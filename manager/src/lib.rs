//! The node's manager: it owns the GPUs of a node and the record of their grants (docs/operations.md).
//!
//! The path of a grant: a request comes in through [`vcuda_manager_api`], is checked and turned into a
//! [`grant::Grant`], written to the ledger on disk, and then into the tenant's directory, where the shims of its processes
//! read it. Nothing of this is on a launch's path: manager and shims meet in mapped memory, and an absent manager is not
//! missed until something has to change.
#![cfg_attr(not(test), forbid(unsafe_code))]
#![warn(clippy::too_many_lines)]

pub mod admission;
pub mod audit;
mod background;
pub mod bounds;
pub mod checked_file;
pub mod config;
pub mod controller;
pub mod events;
pub mod gpu;
pub mod grant;
pub mod grant_table;
pub mod inventory;
pub mod ledger;
pub mod library;
pub mod metrics;
pub mod observe;
mod parts;
pub mod problems;
pub mod reaper;
pub mod registration;
pub mod run;
pub mod serve;
pub mod service;
pub mod settings;
pub mod standby;
pub mod state;
mod succession;
pub mod tenant_directories;
mod watchers;
