//! A piece of a pool that other processes may have imported (`cuMemPoolExportPointer`): it is an object of the container,
//! counted apart from the pool's other memory, so that it stays counted if its process ends while others hold it.

use std::sync::Arc;

use vcuda_region::shared::ObjectKey;

use super::Holding;
use crate::charge::Charge;

/// Dropped, the pool counts what it still holds of the piece, and the object is let go of: in this order, since the pool may
/// keep the memory.
#[derive(Debug)]
pub(super) struct Lent {
    holding: Arc<Holding>,
    charge: Charge,
}

impl Lent {
    /// `bytes` of the pool, known to the container under `key`; nothing if the pool has not counted so many.
    pub(super) fn of(holding: &Arc<Holding>, bytes: u64, key: ObjectKey) -> Option<Self> {
        if !holding.lend(bytes) {
            return None;
        }
        let mut charge = Charge::counted(holding.device, bytes);
        charge.share(key);
        Some(Self {
            holding: Arc::clone(holding),
            charge,
        })
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.holding.reclaim(self.charge.bytes());
    }
}
