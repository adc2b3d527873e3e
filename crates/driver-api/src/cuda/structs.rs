//! Structures of the interface, with the layout of CUDA 13.5. Against 12.9 it only appends fields, except
//! that `CUDA_HOST_NODE_PARAMS_v2.ctx` stands where 13.5 has `syncMode`.
//!
//! Fields have CUDA's names. An anonymous union becomes a field `value`. If its members are one number or one handle
//! under several names, it is that member, and the structure's docs say so.

pub(super) mod device;
pub(super) mod execution;
pub(super) mod graph;
pub(super) mod memory;
