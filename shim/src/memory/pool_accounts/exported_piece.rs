//! A piece of a pool that other processes may have imported (`cuMemPoolExportPointer`). It is an object of the tenant,
//! counted apart from the pool's other memory. So it stays counted if its process ends while others hold it.

use std::sync::Arc;

use vcuda_region::shared::ObjectKey;

use super::PoolAccount;
use crate::memory::charge::Charge;

/// The object. While the piece lives, the pool counts that much less. Before the driver is asked to free the piece,
/// the pool counts it again. So the driver never holds more than is counted, whether the pool keeps the memory or
/// another process does. Dropping it lets the object go.
#[derive(Debug)]
pub(super) struct ExportedPiece {
    pool_account: Arc<PoolAccount>,
    charge: Charge,
    is_back: bool,
}

impl ExportedPiece {
    /// Makes the object of `bytes` of the pool, which the tenant knows under `key`. `None` if the pool has not counted
    /// so many.
    pub(super) fn new(pool_account: &Arc<PoolAccount>, bytes: u64, key: ObjectKey) -> Option<Self> {
        if !pool_account.export(bytes) {
            return None;
        }
        let mut charge = Charge::counted(pool_account.device, bytes);
        charge.share(key);
        Some(Self { pool_account: Arc::clone(pool_account), charge, is_back: false })
    }

    /// Prepares for the driver's free.
    pub(super) fn take_back(&mut self) {
        if !self.is_back {
            self.is_back = true;
            self.pool_account.take_back(self.charge.bytes());
        }
    }

    /// Undoes [`ExportedPiece::take_back`], as the piece was not freed.
    pub(super) fn export_again(&mut self) {
        if self.is_back {
            self.is_back = !self.pool_account.export_again(self.charge.bytes());
        }
    }
}

impl Drop for ExportedPiece {
    fn drop(&mut self) {
        self.take_back();
    }
}
