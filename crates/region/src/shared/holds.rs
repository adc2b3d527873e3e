//! The operations of a process on the shared objects that it holds.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::foreign::ATTEMPTS;
use super::record::Payer;
use super::state::LIVE;
use super::{ObjectKey, Objects, Outlives, Shared};
use crate::DeviceIndex;
use crate::ledger::Denied;
use crate::primitive::Ordering;
use crate::slots::Slot;

/// Number of times that this process holds the object at a place. Its threads exclude each other here: their
/// operations are rare and wait for no other process.
#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<HashMap<usize, u64>>);

impl Slot<'_> {
    /// Publishes memory that this slot counts already to the tenant's other processes. From here on [`Slot::part`]
    /// gives it back, and no longer [`Slot::release`]. An object that this process holds already is held once more.
    /// `None` if there is no room, or another process counts that object: then nothing has changed, and importers pay
    /// themselves.
    pub fn share(&self, key: ObjectKey, device: DeviceIndex, bytes: u64) -> Option<Shared> {
        let mut holds = self.holds.0.lock();
        let objects = self.usage().objects();
        if let Some(place) = objects.find(key) {
            *holds.get_mut(&place)? += 1;
            return shared_at(&objects, place);
        }
        let payer = Payer::new(self.index(), self.usage().identity_state(self.index()));
        let place = objects.insert(self.index(), device.get(), (key, bytes), payer, LIVE)?;
        holds.insert(place, 1);
        shared_at(&objects, place)
    }

    /// Notes that the object is about to be exported in a way that may keep it beyond its holders, see [`Outlives`].
    /// Returns `false` if the tenant has no place for the object: no process would know of it once this one ends.
    pub fn outlive(&self, object: &Shared, by: Outlives) -> bool {
        let holds = self.holds.0.lock();
        let Some(place) = object.place.filter(|place| holds.contains_key(place)) else {
            return false;
        };
        self.usage().objects().entry(place).1.set_outlives(by);
        true
    }

    /// Holds the object with this key for an importer; nothing more is counted. `None` if the tenant does not know
    /// it.
    pub fn join(&self, key: ObjectKey) -> Option<Shared> {
        self.join_known(&mut self.holds.0.lock(), key)
    }

    /// As [`Slot::join`], with the process's holds locked.
    fn join_known(&self, holds: &mut HashMap<usize, u64>, key: ObjectKey) -> Option<Shared> {
        let objects = self.usage().objects();
        for _ in 0..ATTEMPTS {
            let place = objects.find(key)?;
            if let Some(count) = holds.get_mut(&place) {
                *count += 1;
                return shared_at(&objects, place);
            }
            if !objects.state(place).is_granted() {
                return None;
            }
            if objects.add_holder(place, self.index(), key) {
                holds.insert(place, 1);
                return shared_at(&objects, place);
            }
        }
        None
    }

    /// Joins an object from outside of the tenant: counts its `bytes` once for all processes that join it.
    ///
    /// # Errors
    /// Fails if it would not fit.
    pub fn join_foreign(
        &self,
        key: ObjectKey,
        device: DeviceIndex,
        bytes: u64,
        limit_bytes: u64,
    ) -> Result<Shared, Denied> {
        // Locked throughout: another thread that wants the same object finds what this one has joined.
        let mut holds = self.holds.0.lock();
        if let Some(shared) = self.join_known(&mut holds, key) {
            return Ok(shared);
        }
        let ledger = self.usage().ledger(device);
        if let Some(place) = ledger.join_foreign(self.index(), key, bytes, limit_bytes)?
            && let Some(shared) = shared_at(&ledger.objects, place)
        {
            *holds.entry(place).or_insert(0) += 1;
            return Ok(shared);
        }
        // The table is full: it is counted as this process's own memory, and again for each other process that joins
        // it.
        self.reserve(device, bytes, limit_bytes)?.commit();
        Ok(Shared { place: None, device, bytes })
    }

    /// Bytes on `device` of objects that this process holds and no process's record includes. They are not in
    /// [`Slot::used_bytes`], but the driver may attribute them to any of their holders.
    pub fn unpaid_held_bytes(&self, device: DeviceIndex) -> u64 {
        let holds = self.holds.0.lock();
        if holds.is_empty() {
            return 0;
        }
        self.usage().ledger(device).unpaid_among(holds.keys().copied())
    }

    /// Whether this process holds anything on `device` that another process's record includes. The driver attributes
    /// it to the other process until that one lets go or dies.
    pub fn holds_of_others(&self, device: DeviceIndex) -> bool {
        let holds = self.holds.0.lock();
        !holds.is_empty() && {
            let me = Payer::new(self.index(), self.usage().identity_state(self.index()));
            self.usage().ledger(device).is_any_paid_by_others(me, holds.keys().copied())
        }
    }

    /// Makes the object itself count the bytes that this process's record includes for it; the sum stays the same.
    /// Called before the driver is asked to free it: from then on the driver may attribute it to another holder,
    /// wherever this process stops. Returns `false`, and changes nothing, if this process does not pay for it or
    /// holds it more than once.
    pub fn stop_paying(&self, object: &Shared) -> bool {
        let holds = self.holds.0.lock();
        let Some(place) = object.place.filter(|place| holds.get(place) == Some(&1)) else {
            return false;
        };
        self.hand_over_bytes(place, object)
    }

    /// Hands over the bytes that this process pays for the object, if it does.
    fn hand_over_bytes(&self, place: usize, object: &Shared) -> bool {
        let objects = self.usage().objects();
        let record = objects.entry(place).1;
        let me = Payer::new(self.index(), self.usage().identity_state(self.index()));
        let is_paid =
            record.payer.load(Ordering::Relaxed) == me.0 && record.until.load(Ordering::Relaxed) == u64::MAX;
        if is_paid {
            self.hand_over(object.device, object.bytes, &record.until);
        }
        is_paid
    }

    /// Lets go of an object. It stays counted as long as another process of the tenant holds it.
    #[expect(clippy::needless_pass_by_value, reason = "the hold ends here")]
    pub fn part(&self, object: Shared) {
        let Some(place) = object.place else {
            return self.release(object.device, object.bytes);
        };
        let mut holds = self.holds.0.lock();
        match holds.get_mut(&place) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) => {
                holds.remove(&place);
                self.hand_over_bytes(place, &object);
                self.usage().objects().remove_holder(place, self.index());
            }
            None => {}
        }
    }
}

/// The object at `place`, which is held.
fn shared_at(objects: &Objects<'_>, place: usize) -> Option<Shared> {
    Some(Shared {
        place: Some(place),
        device: DeviceIndex::new(objects.state(place).device())?,
        bytes: objects.entry(place).1.bytes.load(Ordering::Relaxed),
    })
}
