//! Memory whose last handle and mapping are gone while a descriptor of it is open, here or in another process: the driver
//! keeps it, so it stays counted. The kernel tells of which memory descriptors are open (`tag.rs`); it is asked when the
//! last handle goes, before an answer and before a denial.

use core::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::charge::Charge;
use crate::devices::Device;
use crate::tag;

/// All that only descriptors hold.
#[derive(Debug, Default)]
pub(crate) struct Adrift {
    is_any: AtomicBool,
    held: Mutex<Vec<(Charge, Vec<Charge>)>>,
}

impl Adrift {
    /// Keeps what is counted for memory that nothing of this process holds any more, as long as a descriptor does.
    pub(crate) fn keep(&self, charge: Charge, more: Vec<Charge>) {
        if charge.key().is_some() {
            let mut held = self.held.lock();
            held.push((charge, more));
            // An earlier hold on the same memory may be over too, and this may be the process's last call for long.
            self.look(held);
        }
    }

    /// Gives back what no descriptor holds any more.
    #[inline]
    pub(crate) fn poll(&self) {
        // Whoever finds it locked need not look too.
        if self.is_any.load(Ordering::Relaxed)
            && let Some(held) = self.held.try_lock()
        {
            self.look(held);
        }
    }

    /// What of it is on a device and in this process's own record (bytes).
    pub(crate) fn own_bytes(&self, device: &Device) -> u64 {
        if !self.is_any.load(Ordering::Relaxed) {
            return 0;
        }
        let held = self.held.lock();
        let charges = held
            .iter()
            .flat_map(|(charge, more)| core::iter::once(charge).chain(more));
        let here = charges.filter(|charge| charge.device().ordinal == device.ordinal);
        here.map(Charge::own_bytes).sum()
    }

    #[cold]
    fn look(&self, mut held: MutexGuard<'_, Vec<(Charge, Vec<Charge>)>>) {
        let keys: Vec<_> = held.iter().filter_map(|(charge, _)| charge.key()).collect();
        let open = tag::are_open(&keys);
        let is_over =
            |(charge, _): &mut (Charge, Vec<Charge>)| charge.key().is_none_or(|key| !open.contains(&key));
        let over: Vec<_> = held.extract_if(.., is_over).collect();
        self.is_any.store(!held.is_empty(), Ordering::Relaxed);
        drop(held);
        drop(over);
    }
}
