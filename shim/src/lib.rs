//! libvcuda_shim.so: the library preloaded into a tenant's processes.
//!
//! The story of one `cuMemAlloc`. The application found the function by its link-time name, by `dlsym`
//! (`interpose/dlsym.rs`) or by `cuGetProcAddress` (`hooks/lookup.rs`); each door leads to the row `cuMemAlloc_v2` of the
//! table (`hooks.rs`). The row's function goes straight to the driver if no limit applies to the process (`runtime/shim.rs`),
//! and else, under a guard (`driver.rs`), to the handler `memory::alloc`: it finds the device of the current context
//! (`runtime/devices.rs`), reserves the bytes in the region (`memory/reserve.rs`), calls the driver, and notes the address
//! (`memory/allocations.rs`), or the reservation drops and the bytes go back.
//!
//! Layers, from top to bottom: `hooks` (the table and its handlers); `memory` and `compute`, side by side (what is counted
//! of memory, and of GPU time); `runtime` (the state of the process); `interpose` (how the application's look-ups lead
//! here); `driver` (how the shim reaches the driver).

mod compute;
mod driver;
mod hooks;
mod interpose;
mod memory;
mod runtime;
