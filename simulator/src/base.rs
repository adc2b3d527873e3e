//! Lowest layer: what every other module may use, and what knows no object of the driver.
//!
//! Arguments and answers of C callers (`ffi`), tables of handles (`table`), addresses (`arena`), images of code
//! (`image`), durations of kernels (`pace`), environment variables (`config`) and the devices that they show (`visible`).

pub(crate) mod arena;
pub(crate) mod config;
pub(crate) mod ffi;
pub(crate) mod image;
pub(crate) mod pace;
pub(crate) mod table;
pub(crate) mod thread;
pub(crate) mod visible;
