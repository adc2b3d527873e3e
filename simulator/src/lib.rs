//! A simulated CUDA driver, `libcuda.so.1`, for machines without a GPU.
//!
//! It answers as NVIDIA documents its driver to answer; kernels take time and compute nothing. It knows
//! nothing of the shim. Time, memory and what processes share are the simulated machine's (`vcuda-machine`);
//! contents of memory, handles and the rules of the interface are here.
//!
//! A call's way: an exported function is a row of some module's `ffi::export`, with the prototype that
//! driver-api declares. Its handler finds the process (`process`: 3 before `cuInit`, and after it in a forked
//! child), the thread's context (`current`), checks handles (`table`), and does what its page says.
//!
//! | modules | page of the CUDA Driver API |
//! |---|---|
//! | `device`, `attributes`, `visible`, `errors` | Initialization; Version; Device; Error Handling; Peer Access |
//! | `context`, `context_api`, `primary`, `current` | Context; Primary Context Management |
//! | `faults` | none: failures on request |
//! | `limits` | Context, `cuCtxSetLimit` |
//! | `green`, `resource` | Green Contexts |
//! | `memory`, `memory_api`, `arena`, `backing`, `host`, `pointer`, `managed` | Memory; Unified Addressing |
//! | `transfer`, `fill`, `copy`, `copy_shapes`, `batch`, `set` | Memory Management, copies and sets |
//! | `pool`, `pool_api`, `pool_share` | Stream Ordered Memory Allocator |
//! | `vmm`, `vmm_api` | Virtual Memory Management |
//! | `sharing`, `ipc`, `external` | what other processes hold too; Memory Management, IPC; External Resource Interoperability |
//! | `multicast` | Multicast Object Management |
//! | `array`, `array_api`, `sparse` | Memory Management, arrays; `cuMemMapArrayAsync` |
//! | `image`, `module`, `module_api`, `library`, `library_api`, `function_api`, `linker` | Module; Library; Execution Control, attributes |
//! | `occupancy` | Occupancy |
//! | `stream`, `event`, `launch`, `hostfunc` | Stream; Event; Execution Control; Stream Memory Operations |
//! | `capture`, `graph`, `graph_memory` | Stream Management, capture; Graph Management |
//! | `lookup`, `unsupported` | Driver Entry Point Access |
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    reason = "C's integers and pointers meet Rust's at every export; each narrowing is of a value that was checked \
              or that the interface defines in the narrower type"
)]

/// One row of [`ffi::export`], called back by driver-api's `signature!` with the prototype.
macro_rules! export_one {
    ({ $handler:path } $name:ident ($($argument:ident : $type:ty),* $(,)?) -> $result:ty) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) -> $result {
            $crate::ffi::guard(stringify!($name), move || $handler($($argument),*))
        }
    };
}

mod arena;
mod array;
mod array_api;
mod attributes;
mod backing;
mod batch;
mod config;
mod context;
mod context_api;
mod copy;
mod copy_shapes;
mod current;
mod device;
mod errors;
mod external;
mod faults;
mod ffi;
mod fill;
mod function_api;
mod graph_memory;
mod green;
mod host;
mod image;
mod ipc;
mod library;
mod library_api;
mod limits;
mod linker;
mod lookup;
mod managed;
mod memory;
mod memory_api;
mod module;
mod module_api;
mod multicast;
mod occupancy;
mod pointer;
mod pool;
mod pool_api;
mod pool_share;
mod primary;
mod process;
mod resource;
mod set;
mod sharing;
mod sparse;
mod table;
mod transfer;
mod unsupported;
mod visible;
mod vmm;
mod vmm_api;
mod work;
// Streams and what happens in them.
mod capture;
mod event;
mod graph;
mod hostfunc;
mod launch;
mod stream;
