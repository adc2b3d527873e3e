//! A request on its way to the driver. The growth that it may cause is counted before the driver is asked. What the
//! driver holds afterwards is counted when it has answered.

use core::sync::atomic::{AtomicU64, Ordering};

use vcuda_region::slots::Slot;
use vcuda_region::{DeviceIndex, ledger};

use super::{PoolAccount, State};
use crate::driver::Relaxed;
use crate::runtime::shim::devices::Denied;

/// Looks of a request that does not fit while other requests of this process are under way. Their share of the memory
/// is only known once they are back.
const LOOKS: u32 = 64;

/// A request on its way to the driver. Dropping it means that the driver refused.
#[derive(Debug)]
pub(crate) struct Promise<'h> {
    pool_account: &'h PoolAccount,
    bytes: u64,
    growth: u64,
    is_asked: bool,
}

impl PoolAccount {
    /// Counts the growth that a request of `bytes` may cause in a pool. A request that the pool can serve from what
    /// it holds needs none. The thread is relaxed.
    ///
    /// # Errors
    /// Fails if it would not fit, whatever was given back.
    pub(crate) fn promise(&self, bytes: u64) -> Result<Promise<'_>, Denied> {
        self.device.count(bytes, move |slot, index, limit_bytes| {
            self.attempt(|state| {
                // If the driver does not tell, all of it counts as used.
                let used = state.holder.used(self.device);
                let used = used.unwrap_or_else(|| state.balance.charged());
                let (first, least) = state.balance.growth(used, bytes);
                let growth = grow(slot, index, limit_bytes, first).or_else(|denied| {
                    if least < first { grow(slot, index, limit_bytes, least) } else { Err(denied) }
                })?;
                state.balance.promise(bytes, growth);
                Ok(Promise { pool_account: self, bytes, growth, is_asked: true })
            })
        })
    }

    /// Counts the growth that the launch of a graph with `bytes` may cause. `epoch`: the time of the graph's last
    /// mapping.
    ///
    /// # Errors
    /// Fails if it would not fit, whatever was given back.
    pub(crate) fn promise_launch(&self, bytes: u64, epoch: &AtomicU64) -> Result<Promise<'_>, Denied> {
        self.device.count(bytes, |slot, index, limit_bytes| {
            self.attempt(|state| {
                let is_mapped = epoch.load(Ordering::Relaxed) == state.balance.epoch;
                let most = state.balance.growth_of_graph(bytes, is_mapped);
                let growth = grow(slot, index, limit_bytes, most).or_else(|denied| {
                    // Graphs that do not run at the same time share memory: less growth may do.
                    let used = state.holder.used(self.device).unwrap_or(u64::MAX);
                    match state.balance.growth(used, bytes) {
                        (_, least) if least < most => grow(slot, index, limit_bytes, least),
                        _ => Err(denied),
                    }
                })?;
                if !is_mapped {
                    state.balance.map(bytes);
                    epoch.store(state.balance.epoch, Ordering::Relaxed);
                }
                state.balance.promise(bytes, growth);
                Ok(Promise {
                    pool_account: self,
                    bytes,
                    growth,
                    // A graph that runs again in its own memory is launched without asking the driver (I6).
                    is_asked: growth > 0 || most > 0,
                })
            })
        })
    }

    fn attempt<T>(
        &self,
        mut admit: impl FnMut(&mut State) -> Result<T, ledger::Denied>,
    ) -> Result<T, ledger::Denied> {
        let mut looks = 0;
        loop {
            let mut state = self.state.lock();
            match admit(&mut state) {
                Err(_) if state.balance.is_busy() && looks < LOOKS => {
                    drop(state);
                    looks += 1;
                    std::thread::yield_now();
                }
                outcome => return outcome,
            }
        }
    }

    /// Follows the driver's figure after a request that was answered or refused.
    fn settle(&self, promise: &Promise<'_>, was_refused: bool) -> Result<(), Denied> {
        let _relaxed = Relaxed::enter();
        let mut state = self.state.lock();
        state.balance.fulfil(promise.bytes, promise.growth);
        if !promise.is_asked && !was_refused {
            return Ok(());
        }
        let held = state.holder.held(self.device);
        if was_refused && held.is_none() {
            self.device.release(state.balance.undo(promise.growth));
            return Ok(());
        }
        let followed = self.follow(&mut state, held);
        let (Ok(missing) | Err((missing, _))) = followed;
        if missing > 0 {
            state.balance.learn(promise.bytes, promise.growth, missing);
        }
        followed.map(drop).map_err(|(_, denied)| denied)
    }
}

impl Promise<'_> {
    /// Counts what the driver holds after its answer.
    ///
    /// # Errors
    /// Fails if the driver took more than was counted and that is beyond the limit. It is counted all the same, until
    /// it is gone.
    pub(crate) fn settle(self) -> Result<(), Denied> {
        let settled = self.pool_account.settle(&self, false);
        core::mem::forget(self);
        settled
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        let _ = self.pool_account.settle(self, true);
    }
}

/// Counts `bytes` for growth.
fn grow(slot: &Slot<'_>, index: DeviceIndex, limit_bytes: u64, bytes: u64) -> Result<u64, ledger::Denied> {
    if bytes > 0 {
        slot.reserve(index, bytes, limit_bytes)?.commit();
    }
    Ok(bytes)
}
