//! A simulated CUDA driver, `libcuda.so.1`, for machines without a GPU.
//!
//! It follows NVIDIA's documentation of its driver; kernels take time and compute nothing. It does not know the shim. Time,
//! memory and shared state belong to the simulated machine (`vcuda-machine`); memory contents, handles and rules of the API
//! are here.
//!
//! The modules form four layers. A module uses its own layer and those below (`scripts/check-layers.py`).
//!
//! | layer | subject |
//! |---|---|
//! | `export` | exported functions: reading arguments, writing results |
//! | `semantics` | rules across objects: order, capture, launches, pools, end of contexts |
//! | `object` | the objects and their state |
//! | `base` | callers' memory, handles, addresses, code images |
//!
//! A call: an exported function is a row of some module's `export!`, with driver-api's prototype. Its handler gets the
//! process (`object::process`; error 3 before `cuInit` and in a forked child), the thread's context (`object::current`),
//! checks handles (`base::table`), and does what its page says.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    reason = "C's integers and pointers meet Rust's at every export; each narrowing is of a value that was checked \
              or that the interface defines in the narrower type"
)]

mod base;
mod export;
mod object;
mod semantics;
