//! libvcuda_shim.so: the library preloaded into a tenant's processes.
//!
//! The story of one `cuMemAlloc`. The application found the function by its link-time name, by `dlsym`
//! (`interpose/dlsym.rs`) or by `cuGetProcAddress` (`hooks/lookup.rs`). Each leads to the row `cuMemAlloc_v2` of the
//! table (`hooks.rs`). If no limit applies to the process (`runtime/shim.rs`), the row's function goes straight to the
//! driver. Else it runs the handler `memory::alloc` under a guard (`driver.rs`). The handler finds the device of the
//! current context (`runtime/devices.rs`) and reserves the bytes in the region (`memory/reserve.rs`). It calls the
//! driver, and notes the address (`memory/allocations.rs`); on failure the reservation drops and the bytes go back.
//!
//! Layers, from top to bottom: `hooks` (the table and its handlers); `memory` and `compute`, side by side (accounting
//! of memory, and of GPU time); `runtime` (the state of the process); `interpose` (the application's look-ups);
//! `driver` (calls of the driver).

mod compute;
mod driver;
mod hooks;
mod interpose;
mod memory;
mod runtime;
