//! libvcuda_shim.so: the library preloaded into a container's processes.
//!
//! The story of one `cuMemAlloc`. The application found the function by its link-time name, by `dlsym`
//! (`ffi/dlsym.rs`) or by `cuGetProcAddress` (`hooks/lookup.rs`); each door leads to the row `cuMemAlloc_v2` of the
//! table (`hooks.rs`). The row's function goes straight to the driver if no limit applies to the process (`shim.rs`),
//! and else, under a guard (`ffi.rs`), to the handler `memory::alloc`: it finds the device of the current context
//! (`devices.rs`), reserves the bytes in the region, calls the driver, and notes the address (`allocations.rs`), or the
//! reservation drops and the bytes go back.

mod allocations;
mod capture;
mod charge;
mod config;
mod devices;
mod exported;
mod ffi;
mod fork;
mod graph_cost;
mod graph_memory;
mod holdings;
mod hooks;
mod log;
mod mappings;
mod ofd_key;
mod overhead;
mod reaper;
mod registration;
mod shim;
mod threads;
mod tiles;
mod timing;
mod ways;
