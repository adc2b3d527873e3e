//! Pieces of pools, by address.

use std::sync::Arc;

use vcuda_driver_api::prelude::*;
use vcuda_region::shared::ObjectKey;

use super::exported_piece::ExportedPiece;
use super::{PoolAccount, PoolAccounts};
use crate::runtime::shim::devices::Device;

/// A piece of a pool. It keeps the account of a pool that was destroyed.
#[derive(Debug)]
pub(crate) struct Block {
    /// The account of its pool.
    pub(crate) pool_account: Arc<PoolAccount>,
    bytes: u64,
    /// The piece as an object of the tenant, if other processes may have imported it: counted apart.
    exported: Option<ExportedPiece>,
}

impl Block {
    /// Whether other processes may import it.
    pub(crate) fn is_exported(&self) -> bool {
        self.exported.is_some()
    }

    /// Bytes counted on the device for it, besides what its pool counts.
    pub(super) fn exported_bytes_on(&self, device: &Device) -> u64 {
        let is_here = self.pool_account.device.ordinal == device.ordinal;
        if is_here && self.is_exported() { self.bytes } else { 0 }
    }
}

impl PoolAccounts {
    /// Notes a piece of a pool at this address.
    #[inline]
    pub(crate) fn allocated(&self, address: CUdeviceptr, bytes: u64, pool_account: &Arc<PoolAccount>) {
        pool_account.note_allocated(bytes);
        let block = Block { pool_account: Arc::clone(pool_account), bytes, exported: None };
        self.put(address, block);
    }

    /// Takes out the piece of a pool at this address, which is about to be freed.
    #[inline(always)]
    pub(crate) fn remove_block(&self, address: CUdeviceptr) -> Option<Block> {
        if !super::is_any() {
            return None;
        }
        let mut block = self.blocks.lock().remove(address)?;
        if let Some(exported) = &mut block.exported {
            exported.take_back();
        }
        block.pool_account.freed(block.bytes);
        Some(block)
    }

    /// Undoes [`PoolAccounts::remove_block`], as the piece was not freed.
    pub(crate) fn put_block_back(&self, address: CUdeviceptr, mut block: Block) {
        block.pool_account.note_allocated(block.bytes);
        if let Some(exported) = &mut block.exported {
            exported.export_again();
        }
        self.put(address, block);
    }

    /// Publishes the piece at this address to the tenant under `key`, by which other processes import it.
    pub(crate) fn export(&self, address: CUdeviceptr, key: ObjectKey) {
        if let Some(block) = self.blocks.lock().get_mut(address)
            && block.exported.is_none()
        {
            block.exported = ExportedPiece::new(&block.pool_account, block.bytes, key);
        }
    }

    #[inline(always)]
    fn put(&self, address: CUdeviceptr, block: Block) {
        let before = self.blocks.lock().insert(address, block);
        // The driver freed an earlier piece at this address unnoticed.
        if let Some(block) = before {
            block.pool_account.freed(block.bytes);
        }
    }
}
