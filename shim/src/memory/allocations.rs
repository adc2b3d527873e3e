//! What this process has allocated: address or handle -> device, bytes, kind.
//!
//! Sharded, so that threads seldom meet. No lock is held across a call of the driver, nor taken on a launch.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::CUcontext;
use vcuda_region::shared::{ObjectKey, Outlives};

use crate::memory::charge::Charge;
use crate::memory::overhead::ManagedCharge;
use crate::memory::sparse_mappings::SparseMappings;
use crate::runtime::devices::{Denied, Device};

/// How an allocation was made, as far as its end depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Lives in its context: `cuMemAlloc`, pitched, managed.
    Linear,
    /// Another process's, opened in this context.
    Opened,
    /// Of another process's pool.
    Imported,
    /// An array of its context.
    Array,
    /// A mipmapped array of its context.
    Mipmap,
    /// External memory, imported in its context.
    External,
}

impl Kind {
    /// Addresses and the kinds of handles are named by numbers of their own.
    const fn space(self) -> u64 {
        match self {
            Self::Linear | Self::Opened | Self::Imported => 0,
            Self::Array => 1,
            Self::Mipmap => 2,
            Self::External => 3,
        }
    }

    /// Whether it ends with the context it was made in. Memory of a pool belongs to its device.
    pub(crate) const fn ends_with_context(self) -> bool {
        !matches!(self, Self::Imported)
    }
}

/// What an allocation keeps counted.
#[derive(Debug)]
pub(crate) enum Holds {
    /// Bytes of its own.
    Charge(Charge),
    /// Bytes of managed memory.
    #[expect(dead_code, reason = "held until it is dropped, which gives the bytes back")]
    Managed(ManagedCharge),
    /// Bytes of what it is a part of: a buffer within external memory.
    Part(Arc<Charge>),
    /// Physical memory that is mapped into it: a sparse array.
    SparseMappings(Arc<SparseMappings>),
}

/// One allocation. Dropped, what it holds is given back.
#[derive(Debug)]
pub(crate) struct Allocation {
    /// The context it was made in.
    pub(crate) context: CUcontext,
    /// How it was made.
    pub(crate) kind: Kind,
    /// How often it was opened beyond the first time.
    pub(crate) opens: u32,
    /// What is counted for it.
    pub(crate) holds: Holds,
}

impl Allocation {
    /// Made once, and alone.
    pub(crate) fn new(context: CUcontext, kind: Kind, holds: Holds) -> Self {
        Self {
            context,
            kind,
            opens: 0,
            holds,
        }
    }

    /// What this process alone counts for it on the device, managed memory left out (bytes).
    pub(crate) fn own_bytes_on(&self, device: &Device) -> u64 {
        match &self.holds {
            Holds::Charge(charge) => charge.own_bytes_on(device),
            Holds::Managed(_) | Holds::Part(_) | Holds::SparseMappings(_) => 0,
        }
    }

    /// The driver is about to free it.
    #[inline]
    fn end(&mut self) {
        if let Holds::Charge(charge) = &mut self.holds {
            charge.end();
        }
    }

    /// Whether it is the object of this key, of another process.
    fn is_opening_of(&self, key: ObjectKey) -> bool {
        matches!(self.kind, Kind::Opened | Kind::Imported) && self.charge().and_then(Charge::key) == Some(key)
    }

    fn charge(&self) -> Option<&Charge> {
        match &self.holds {
            Holds::Charge(charge) => Some(charge),
            Holds::Managed(_) | Holds::Part(_) | Holds::SparseMappings(_) => None,
        }
    }
}

/// What the end of an allocation ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Nothing that is known.
    Unknown,
    /// One of several openings.
    Opening,
    /// The allocation.
    All(Allocation),
}

const SHARDS: usize = 64;

/// For maps whose keys are addresses and handles.
pub(crate) type ByNumber = BuildHasherDefault<Mix>;

/// What an allocation is named by: an address or a handle, and which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Name {
    number: u64,
    space: u64,
}

impl Name {
    #[inline]
    const fn new(number: u64, kind: Kind) -> Self {
        Self {
            number,
            space: kind.space(),
        }
    }
}

impl Hash for Name {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Addresses and handles are seldom the same number.
        state.write_u64(self.number ^ self.space);
    }
}

type Shard = Mutex<HashMap<Name, Allocation, ByNumber>>;

/// All of them.
#[derive(Debug)]
pub(crate) struct Allocations {
    shards: [Shard; SHARDS],
}

impl Allocations {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self {
            shards: core::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Notes an allocation. The driver may hand out an address again whose end it kept to itself (a context destroyed
    /// behind our back): then the earlier record comes back, and its bytes are free.
    #[inline]
    pub(crate) fn insert(&self, name: u64, allocation: Allocation) -> Option<Allocation> {
        let key = Name::new(name, allocation.kind);
        self.shard(name).lock().insert(key, allocation)
    }

    /// Ends an allocation (kind: any of those that are named alike), or one opening of several.
    #[inline]
    pub(crate) fn end(&self, name: u64, kind: Kind) -> Ended {
        let key = Name::new(name, kind);
        let mut shard = self.shard(name).lock();
        match shard.entry(key) {
            Entry::Vacant(_) => Ended::Unknown,
            Entry::Occupied(mut entry) if entry.get().opens > 0 => {
                entry.get_mut().opens -= 1;
                Ended::Opening
            }
            Entry::Occupied(entry) => {
                let mut allocation = entry.remove();
                drop(shard);
                allocation.end();
                Ended::All(allocation)
            }
        }
    }

    /// As [`Allocations::end`], for memory of another process only.
    pub(crate) fn end_opened(&self, address: u64) -> Ended {
        let key = Name::new(address, Kind::Opened);
        let is_opened =
            matches!(self.shard(address).lock().get(&key), Some(known) if known.kind == Kind::Opened);
        if is_opened {
            self.end(address, Kind::Opened)
        } else {
            Ended::Unknown
        }
    }

    /// The end did not come: undoes [`Allocations::end`].
    pub(crate) fn undo(&self, name: u64, kind: Kind, ended: Ended) {
        match ended {
            Ended::Unknown => {}
            Ended::Opening => {
                if let Some(allocation) = self.shard(name).lock().get_mut(&Name::new(name, kind)) {
                    allocation.opens += 1;
                }
            }
            Ended::All(allocation) => drop(self.insert(name, allocation)),
        }
    }

    /// Counts one more opening of what is opened at this address already, if that is the object of this key.
    pub(crate) fn open_again(&self, address: u64, key: ObjectKey) -> bool {
        let mut shard = self.shard(address).lock();
        let known = shard.get_mut(&Name::new(address, Kind::Opened));
        known
            .filter(|allocation| allocation.is_opening_of(key))
            .map(|allocation| allocation.opens += 1)
            .is_some()
    }

    /// Notes that the object of this key was opened at this address. Another thread may have opened it meanwhile: the
    /// driver counts the openings of both. Returns what is to be dropped.
    pub(crate) fn open(&self, address: u64, key: ObjectKey, opened: Allocation) -> Option<Allocation> {
        let mut shard = self.shard(address).lock();
        match shard.get_mut(&Name::new(address, Kind::Opened)) {
            Some(known) if known.is_opening_of(key) => {
                known.opens += 1;
                Some(opened)
            }
            _ => shard.insert(Name::new(address, Kind::Opened), opened),
        }
    }

    /// Tells the container under which key the allocation at this address goes; `false` if there is none.
    pub(crate) fn share(&self, address: u64, key: ObjectKey) -> bool {
        let mut shard = self.shard(address).lock();
        match shard.get_mut(&Name::new(address, Kind::Linear)) {
            Some(Allocation {
                holds: Holds::Charge(charge),
                ..
            }) => {
                charge.share(key);
                true
            }
            _ => false,
        }
    }

    /// The key under which the container knows the allocation at this address, if it does; nothing if there is none.
    pub(crate) fn key(&self, address: u64) -> Option<Option<ObjectKey>> {
        let shard = self.shard(address).lock();
        let known = shard.get(&Name::new(address, Kind::Linear))?;
        known.charge().map(Charge::key)
    }

    /// The allocation at this address was given away as a descriptor under `key`, and `keeper` may keep its memory.
    ///
    /// # Errors
    /// The container cannot count it beyond the end of this process; or it is gone.
    pub(crate) fn give_away(&self, address: u64, key: ObjectKey, keeper: Outlives) -> Result<(), Denied> {
        let mut shard = self.shard(address).lock();
        match shard.get_mut(&Name::new(address, Kind::Linear)) {
            Some(Allocation {
                holds: Holds::Charge(charge),
                ..
            }) => charge.give_away(key, keeper),
            _ => Err(Denied),
        }
    }

    /// The mappings of a sparse array.
    pub(crate) fn sparse_mappings(&self, name: u64, kind: Kind) -> Option<Arc<SparseMappings>> {
        match &self.shard(name).lock().get(&Name::new(name, kind))?.holds {
            Holds::SparseMappings(sparse_mappings) => Some(Arc::clone(sparse_mappings)),
            Holds::Charge(_) | Holds::Managed(_) | Holds::Part(_) => None,
        }
    }

    /// The charge of imported external memory.
    pub(crate) fn external(&self, name: u64) -> Option<Arc<Charge>> {
        match &self
            .shard(name)
            .lock()
            .get(&Name::new(name, Kind::External))?
            .holds
        {
            Holds::Part(charge) => Some(Arc::clone(charge)),
            Holds::Charge(_) | Holds::Managed(_) | Holds::SparseMappings(_) => None,
        }
    }

    /// Takes out all that `dead` says is gone.
    pub(crate) fn take_all(&self, dead: impl Fn(&Allocation) -> bool) -> Vec<(u64, Allocation)> {
        let mut taken = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            taken.extend(
                shard
                    .extract_if(|_, allocation| dead(allocation))
                    .map(|(name, gone)| (name.number, gone)),
            );
        }
        for (_, allocation) in &mut taken {
            allocation.end();
        }
        taken
    }

    /// Puts back what was taken out for an end that did not come.
    pub(crate) fn put_back(&self, taken: Vec<(u64, Allocation)>) {
        for (name, allocation) in taken {
            self.insert(name, allocation);
        }
    }

    #[expect(clippy::indexing_slicing, reason = "reduced to the length of the array")]
    #[inline]
    fn shard(&self, name: u64) -> &Shard {
        &self.shards[(mix(name) >> 32) as usize % SHARDS]
    }
}

/// Spreads an address, whose low bits are mostly zero, over all bits.
#[inline]
const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value ^ (value >> 29)
}

/// A hasher for addresses: they come from the driver, not from an adversary.
#[derive(Debug, Default)]
pub(crate) struct Mix(u64);

impl Hasher for Mix {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.0 = mix(self.0.rotate_left(5) ^ value);
    }
}

#[cfg(test)]
mod tests;
