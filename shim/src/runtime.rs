//! The state of the process: limits, devices, configuration, registration, threads and their chores, and the effect of a
//! fork on all of it.

pub(crate) mod by_number;
pub(crate) mod bypass;
pub(crate) mod capture;
pub(crate) mod chores;
pub(crate) mod config;
pub(crate) mod fork;
pub(crate) mod futex;
pub(crate) mod heap;
pub(crate) mod in_flight;
pub(crate) mod limits;
pub(crate) mod log;
pub(crate) mod number_map;
pub(crate) mod ofd_key;
pub(crate) mod region;
pub(crate) mod registration;
pub(crate) mod room;
pub(crate) mod shim;
pub(crate) mod stream;
pub(crate) mod suspend;
pub(crate) mod threads;
pub(crate) mod visits;
