//! The node daemon with real tenants.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it should be"
)]

mod files;
mod manager_access;
mod manager_audit;
mod manager_clock;
mod manager_doctor;
mod manager_inventory;
mod manager_life;
mod manager_node;
mod manager_pids;
mod manager_rest;
mod manager_unprivileged;
mod manager_upgrade;
mod manager_watch;
