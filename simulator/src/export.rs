//! Exported functions of the driver, one row each, in files by page of the CUDA Driver API.
//!
//! A handler reads the caller's arguments, calls `semantics` or an object, and writes the result. `lookup.rs` lists all
//! rows.
//!
//! | files | page of the CUDA Driver API |
//! |---|---|
//! | `device`, `errors` | Initialization; Version; Device; Error Handling; Peer Access |
//! | `context`, `primary` | Context; Primary Context Management |
//! | `green`, `resource` | Green Contexts |
//! | `memory`, `host`, `ipc`, `pointer` | Memory Management; Unified Addressing |
//! | `copy`, `copy_shapes`, `batch`, `set` | Memory Management, copies and sets |
//! | `array`, `sparse` | Memory Management, arrays; `cuMemMapArrayAsync` |
//! | `pool`, `pool_share` | Stream Ordered Memory Allocator |
//! | `vmm`, `multicast` | Virtual Memory Management; Multicast Object Management |
//! | `external` | External Resource Interoperability |
//! | `module`, `library`, `linker`, `function`, `occupancy` | Module; Library; Execution Control, attributes; Occupancy |
//! | `launch`, `launch_old`, `host_function` | Execution Control |
//! | `stream`, `stream_memory`, `event` | Stream; Stream Memory Operations; Event |
//! | `capture`, `graph` | Stream Management, capture; Graph Management |
//! | `checkpoint` | CUDA Checkpointing |
//! | `lookup`, `unsupported` | Driver Entry Point Access; functions that are not simulated |
//! | `faults` | none: injected failures |
//!
//! `export!` takes rows of `name => handler;`, a function or a closure of driver-api's signature. `name | name_v2` are
//! aliases. In `name / name_ptsz` the handler's first argument is the meaning of a null stream. A row yields the exported
//! symbol and an entry of the module's `EXPORTS`, from which `cuGetProcAddress` answers.

use std::panic::{AssertUnwindSafe, catch_unwind};

use vcuda_driver_api::{CUerror, CUresult};

/// An exported function, which begins as NVIDIA's do: with a comparison and a short jump. Programs move these instructions
/// elsewhere to put a jump in their place (UCX, `src/ucm/bistro`).
macro_rules! entry {
    ($name:ident($($argument:ident : $type:ty),*) -> $result:ty $body:block) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        #[allow(unused_variables, reason = "they are in the registers where the body expects them")]
        extern "C" fn $name($($argument: $type),*) -> $result {
            extern "C" fn body($($argument: $type),*) -> $result $body
            $crate::export::begin!(body)
        }
    };
}
pub(crate) use entry;

/// The instructions of an exported function: its beginning, and a jump to what it does.
#[cfg(target_arch = "x86_64")]
macro_rules! begin {
    ($body:ident) => {
        ::core::arch::naked_asm!(
            "cmp dword ptr [rip + {word}], 0x7fffffff",
            "je 2f",
            "2:",
            "jmp {body}",
            word = sym $crate::export::COMPARED,
            body = sym $body,
        )
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! begin {
    ($body:ident) => {
        ::core::arch::naked_asm!(
            "mov x16, x16",
            "mov x16, x16",
            "mov x16, x16",
            "mov x16, x16",
            "b {body}",
            body = sym $body,
        )
    };
}
pub(crate) use begin;

/// The word with which each exported function begins.
#[cfg(target_arch = "x86_64")]
pub(crate) static COMPARED: u32 = 0;

/// Expands one name of a row of `export!`; called back by driver-api's `signature!` with the prototype.
macro_rules! export_one {
    ({ $handler:expr } $name:ident ($($argument:ident : $type:ty),* $(,)?) -> $result:ty) => {
        $crate::export::entry! { $name($($argument: $type),*) -> $result {
            let handler: fn($($type),*) -> $result = $handler;
            $crate::export::guard(stringify!($name), &mut || handler($($argument),*))
        } }
    };
    ({ $null:expr => $handler:expr } $name:ident ($($argument:ident : $type:ty),* $(,)?) -> $result:ty) => {
        $crate::export::entry! { $name($($argument: $type),*) -> $result {
            let handler: fn($crate::semantics::stream::Null, $($type),*) -> $result = $handler;
            $crate::export::guard(stringify!($name), &mut || handler($null, $($argument),*))
        } }
    };
}

/// Exports functions: see the module's text.
macro_rules! export {
    ($($($name:ident $(/ $per_thread:ident)?)|+ => $handler:expr;)*) => {
        /// The symbols that this module exports.
        pub(crate) static EXPORTS: &[$crate::export::Export] = &[$($(
            $crate::export::Export { name: stringify!($name), address: $name as *const () },
            $($crate::export::Export { name: stringify!($per_thread), address: $per_thread as *const () },)?
        )+)*];
        $($($crate::export::export_names! { { $handler } $name $($per_thread)? })+)*
    };
}

/// Exports one name, or a pair of names that differ in the meaning of a null stream.
macro_rules! export_names {
    ({ $handler:expr } $name:ident) => {
        ::vcuda_driver_api::signature!($name, export_one! { $handler });
    };
    ({ $handler:expr } $name:ident $per_thread:ident) => {
        ::vcuda_driver_api::signature!(
            $name,
            export_one! { $crate::semantics::stream::Null::Legacy => $handler }
        );
        ::vcuda_driver_api::signature!(
            $per_thread,
            export_one! { $crate::semantics::stream::Null::PerThread => $handler }
        );
    };
}
pub(crate) use export_names;

pub(crate) mod array;
pub(crate) mod batch;
pub(crate) mod capture;
pub(crate) mod checkpoint;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod copy_shapes;
pub(crate) mod device;
pub(crate) mod errors;
pub(crate) mod event;
pub(crate) mod external;
pub(crate) mod faults;
pub(crate) mod function;
pub(crate) mod graph;
pub(crate) mod green;
pub(crate) mod host;
pub(crate) mod host_function;
pub(crate) mod ipc;
pub(crate) mod launch;
pub(crate) mod launch_old;
pub(crate) mod library;
pub(crate) mod linker;
pub(crate) mod lookup;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod multicast;
pub(crate) mod occupancy;
pub(crate) mod pointer;
pub(crate) mod pool;
pub(crate) mod pool_share;
pub(crate) mod prelude;
pub(crate) mod primary;
pub(crate) mod resource;
pub(crate) mod set;
pub(crate) mod sparse;
pub(crate) mod stream;
pub(crate) mod stream_memory;
pub(crate) mod unsupported;
pub(crate) mod vmm;

/// An exported symbol and its address.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) name: &'static str,
    pub(crate) address: *const (),
}

// SAFETY: the address is that of code, which never changes.
unsafe impl Sync for Export {}

/// Runs a handler, unless a fault is injected, once the process is not locked. A panic must not cross the C boundary, and becomes
/// `CUDA_ERROR_UNKNOWN`. Not generic: there are 730 exports.
pub(crate) fn guard(name: &str, body: &mut dyn FnMut() -> CUresult) -> CUresult {
    if let Some(code) = crate::export::faults::strike(name) {
        return Err(code);
    }
    crate::semantics::checkpoint::pass(name)?;
    crate::semantics::capture::named::check(name)?;
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(CUerror::UNKNOWN))
}
