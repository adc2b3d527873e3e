//! Memory of graphs' allocation nodes (CUDA C++ Programming Guide, "Graph Memory Nodes"; CUDA Driver API,
//! `cuDeviceGetGraphMemAttribute`).
//!
//! A node's address is fixed when the node is made. Memory exists there from the node's run until it is freed, and is then
//! kept for later runs until `cuDeviceGraphMemTrim`. It is taken at the first launch, or at an upload before.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use crate::object::backing::Reserve;
use crate::object::device::Device;
use crate::object::memory::{self, Kind};

/// Reserves by ordinal.
static RESERVES: Mutex<BTreeMap<CUdevice, Arc<Reserve>>> = Mutex::new(BTreeMap::new());

/// Addresses of allocation nodes by start, which other nodes may name before there is memory.
static ADDRESSES: Mutex<BTreeMap<u64, (u64, &'static Device)>> = Mutex::new(BTreeMap::new());

/// The device for a range of allocation nodes' addresses, even without memory there now.
pub(crate) fn planned(address: u64, bytes: u64) -> Option<&'static Device> {
    let addresses = ADDRESSES.lock();
    let (start, (length, device)) = addresses.range(..=address).next_back()?;
    let end = address.checked_add(bytes)?;
    (end <= start + length).then_some(device)
}

pub(crate) fn reserve_of(device: &'static Device) -> Arc<Reserve> {
    let mut reserves = RESERVES.lock();
    Arc::clone(reserves.entry(device.ordinal).or_insert_with(|| Reserve::new(device, false)))
}

/// Memory block of an allocation node. Its address is reserved while a clone exists.
#[derive(Clone, Debug)]
pub(crate) struct GraphBlock(Arc<Range>);

#[derive(Debug)]
struct Range {
    device: &'static Device,
    address: u64,
    bytes: u64,
}

impl Drop for Range {
    fn drop(&mut self) {
        ADDRESSES.lock().remove(&self.address);
        // A graph may be destroyed while its memory is in use: the address then stays reserved.
        if memory::at(self.address).is_none() {
            self.device.arena.give(self.address, self.bytes);
        }
    }
}

impl GraphBlock {
    /// Reserves an address for a node, without memory. Errors: `CUDA_ERROR_INVALID_VALUE` for no bytes,
    /// `CUDA_ERROR_OUT_OF_MEMORY` without address space.
    pub(crate) fn reserve(device: &'static Device, bytes: u64) -> Result<GraphBlock, CUerror> {
        if bytes == 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        let address = device.arena.take(bytes).ok_or(CUerror::OUT_OF_MEMORY)?;
        ADDRESSES.lock().insert(address, (bytes, device));
        Ok(GraphBlock(Arc::new(Range { device, address, bytes })))
    }

    pub(crate) fn address(&self) -> u64 {
        self.0.address
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes
    }

    pub(crate) fn device(&self) -> &'static Device {
        self.0.device
    }

    /// Whether it has memory now.
    pub(crate) fn is_backed(&self) -> bool {
        memory::at(self.0.address).is_some()
    }

    /// Provides memory when the node runs. Errors: `CUDA_ERROR_OUT_OF_MEMORY`; `CUDA_ERROR_INVALID_VALUE` if the memory
    /// of the last run was not freed.
    pub(crate) fn back(&self) -> CUresult {
        if self.is_backed() {
            return Err(CUerror::INVALID_VALUE);
        }
        reserve_of(self.0.device).begin_use(self.0.bytes, u64::MAX)?;
        memory::insert(self.0.address, self.0.bytes, Kind::Graph, self.0.device, None);
        Ok(())
    }
}

/// Takes the memory for blocks that are about to run, all or none.
pub(crate) fn prepare<'a>(blocks: impl Iterator<Item = &'a GraphBlock>) -> CUresult {
    let mut needed: BTreeMap<CUdevice, (&'static Device, u64)> = BTreeMap::new();
    for block in blocks {
        let entry = needed.entry(block.device().ordinal).or_insert((block.device(), 0));
        entry.1 = entry.1.saturating_add(block.bytes());
    }
    for (device, bytes) in needed.into_values() {
        reserve_of(device).hold(bytes)?;
    }
    Ok(())
}

/// Frees memory at an address (by a node, or by `cuMemFree` and `cuMemFreeAsync` outside the graph). Error:
/// `CUDA_ERROR_INVALID_VALUE` if there is no graph's memory.
pub(crate) fn free(address: u64) -> CUresult {
    let range = memory::remove(address, |kind| kind == Kind::Graph).ok_or(CUerror::INVALID_VALUE)?;
    reserve_of(range.device).end_use(range.bytes);
    Ok(())
}
