//! Memory of graphs' allocation nodes (CUDA C++ Programming Guide, "Graph Memory Nodes"; CUDA Driver API,
//! `cuDeviceGetGraphMemAttribute`).
//!
//! A node's address is fixed when the node is made; memory stands behind it from the node's run until the
//! memory is freed, and is then held for later runs until `cuDeviceGraphMemTrim`. It is taken at the first launch,
//! or at an upload before it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use crate::object::backing::Reserve;
use crate::object::device::Device;
use crate::object::memory::{self, Kind};

/// By ordinal.
static RESERVES: Mutex<BTreeMap<CUdevice, Arc<Reserve>>> = Mutex::new(BTreeMap::new());

/// Addresses of allocation nodes, by start: what other nodes may name before memory stands behind it.
static ADDRESSES: Mutex<BTreeMap<u64, (u64, &'static Device)>> = Mutex::new(BTreeMap::new());

/// The device whose graphs' memory a whole range of addresses is for, now or once a graph runs.
pub(crate) fn planned(address: u64, bytes: u64) -> Option<&'static Device> {
    let addresses = ADDRESSES.lock();
    let (start, (length, device)) = addresses.range(..=address).next_back()?;
    let end = address.checked_add(bytes)?;
    (end <= start + length).then_some(device)
}

/// What graphs hold of a device.
pub(crate) fn reserve_of(device: &'static Device) -> Arc<Reserve> {
    let mut reserves = RESERVES.lock();
    Arc::clone(
        reserves
            .entry(device.ordinal)
            .or_insert_with(|| Reserve::new(device, false)),
    )
}

/// The memory of one allocation node. The address lives as long as any clone.
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
        // A graph may be destroyed while memory that it allocated is in use: the address then stays taken.
        if memory::at(self.address).is_none() {
            self.device.arena.give(self.address, self.bytes);
        }
    }
}

impl GraphBlock {
    /// An address for a node; no memory yet.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for no bytes, `CUDA_ERROR_OUT_OF_MEMORY` without address space.
    pub(crate) fn reserve(device: &'static Device, bytes: u64) -> Result<GraphBlock, CUerror> {
        if bytes == 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        let address = device.arena.take(bytes).ok_or(CUerror::OUT_OF_MEMORY)?;
        ADDRESSES.lock().insert(address, (bytes, device));
        Ok(GraphBlock(Arc::new(Range {
            device,
            address,
            bytes,
        })))
    }

    /// Where it is.
    pub(crate) fn address(&self) -> u64 {
        self.0.address
    }

    /// Its size.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// The device that it is on.
    pub(crate) fn device(&self) -> &'static Device {
        self.0.device
    }

    /// Whether memory stands behind it now.
    pub(crate) fn is_backed(&self) -> bool {
        memory::at(self.0.address).is_some()
    }

    /// The node runs: memory stands behind the address.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`; `CUDA_ERROR_INVALID_VALUE` if it has not been freed since the last run.
    pub(crate) fn back(&self) -> CUresult {
        if self.is_backed() {
            return Err(CUerror::INVALID_VALUE);
        }
        reserve_of(self.0.device).enter(self.0.bytes, u64::MAX)?;
        memory::insert(self.0.address, self.0.bytes, Kind::Graph, self.0.device, None);
        Ok(())
    }
}

/// Takes the memory for allocations that are to run, or nothing.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) fn prepare<'a>(blocks: impl Iterator<Item = &'a GraphBlock>) -> CUresult {
    let mut needed: BTreeMap<CUdevice, (&'static Device, u64)> = BTreeMap::new();
    for block in blocks {
        let entry = needed
            .entry(block.device().ordinal)
            .or_insert((block.device(), 0));
        entry.1 = entry.1.saturating_add(block.bytes());
    }
    for (device, bytes) in needed.into_values() {
        reserve_of(device).hold(bytes)?;
    }
    Ok(())
}

/// The memory at an address is freed (by a node, or by `cuMemFree` and `cuMemFreeAsync` outside the graph).
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` where no graph's memory is there.
pub(crate) fn free(address: u64) -> CUresult {
    let range = memory::remove(address, |kind| kind == Kind::Graph).ok_or(CUerror::INVALID_VALUE)?;
    reserve_of(range.device).leave(range.bytes);
    Ok(())
}
