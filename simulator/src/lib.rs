//! A simulated CUDA driver, `libcuda.so.1`, for machines without a GPU.
//!
//! It answers as NVIDIA documents its driver to answer; kernels take time and compute nothing. It knows
//! nothing of the shim. Time, memory and what processes share are the simulated machine's (`vcuda-machine`);
//! contents of memory, handles and the rules of the interface are here.
//!
//! The modules are in four layers. A module uses its own layer and those below (`scripts/check-layers.py`).
//!
//! | layer | subject |
//! |---|---|
//! | `export` | the exported functions: reading arguments, writing answers |
//! | `semantics` | rules across objects: order, capture, launches, pools, ends |
//! | `object` | the objects and their state |
//! | `base` | callers' memory, handles, addresses, images of code |
//!
//! A call's way: an exported function is a row of some module's `export!`, with the prototype that driver-api declares.
//! Its handler finds the process (`object::process`: 3 before `cuInit`, and after it in a forked child), the thread's
//! context (`object::current`), checks handles (`base::table`), and does what its page says.
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
