//! Lowest layer: helpers without knowledge of the driver's objects.
//!
//! Arguments and results of C callers (`ffi`), tables of handles (`table`), addresses (`arena`), code images (`image`),
//! durations of kernels (`pace`), environment variables (`config`) and the devices that they select (`visible`).

pub(crate) mod arena;
pub(crate) mod config;
pub(crate) mod ffi;
pub(crate) mod image;
pub(crate) mod pace;
pub(crate) mod table;
pub(crate) mod thread;
pub(crate) mod visible;
