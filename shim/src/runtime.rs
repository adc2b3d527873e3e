//! The state of the process: its limits, devices and configuration, its registration, its one worker thread, and what a fork
//! does to all of it.

pub(crate) mod bypass;
pub(crate) mod capture;
pub(crate) mod config;
pub(crate) mod devices;
pub(crate) mod fork;
pub(crate) mod futex;
pub(crate) mod log;
pub(crate) mod ofd_key;
pub(crate) mod registration;
pub(crate) mod shim;
pub(crate) mod stream;
pub(crate) mod threads;
pub(crate) mod worker;
