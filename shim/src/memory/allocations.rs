//! The table of this process's allocations: address or handle -> device, bytes, kind.
//!
//! Sharded, so that threads seldom meet. No lock is held across a call of the driver or taken on a launch.

use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::CUcontext;
use vcuda_region::shared::{ObjectKey, Outlives};

use crate::memory::charge::Charge;
use crate::memory::overhead::ManagedCharge;
use crate::memory::sparse_mappings::SparseMappings;
use crate::runtime::by_number::mix;
use crate::runtime::number_map::NumberMap;
use crate::runtime::shim::devices::{Denied, Device};

/// The kind of an allocation, which decides how it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Memory that lives in its context: `cuMemAlloc`, pitched, managed.
    Linear,
    /// Memory of another process, opened in this context.
    Opened,
    /// Memory of another process's pool.
    Imported,
    /// An array of its context.
    Array,
    /// A mipmapped array of its context.
    Mipmap,
    /// External memory, imported in its context.
    External,
}

impl Kind {
    /// The name space of this kind: addresses and each kind of handle have numbers of their own.
    const fn space(self) -> usize {
        match self {
            Self::Linear | Self::Opened | Self::Imported => 0,
            Self::Array => 1,
            Self::Mipmap => 2,
            Self::External => 3,
        }
    }

    /// Whether it ends with the context that it was made in. Memory of a pool belongs to its device.
    pub(crate) const fn ends_with_context(self) -> bool {
        !matches!(self, Self::Imported)
    }
}

/// The charge that an allocation keeps in the ledger.
#[derive(Debug)]
pub(crate) enum Holds {
    /// Bytes of its own.
    Charge(Charge),
    /// Bytes of managed memory.
    #[expect(dead_code, reason = "held until it is dropped, which gives the bytes back")]
    Managed(ManagedCharge),
    /// Bytes of the object that it is a part of: a buffer within external memory.
    Part(Arc<Charge>),
    /// Physical memory that is mapped into a sparse array.
    SparseMappings(Arc<SparseMappings>),
}

/// An allocation. Its charge is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Allocation {
    /// The context that it was made in.
    pub(crate) context: CUcontext,
    /// The kind of allocation.
    pub(crate) kind: Kind,
    /// Number of openings beyond the first.
    pub(crate) opens: u32,
    /// The charge that it keeps.
    pub(crate) holds: Holds,
}

impl Allocation {
    /// An allocation that was opened once.
    pub(crate) fn new(context: CUcontext, kind: Kind, holds: Holds) -> Self {
        Self { context, kind, opens: 0, holds }
    }

    /// Bytes that this process alone counts for it on the device, without managed memory.
    pub(crate) fn own_bytes_on(&self, device: &Device) -> u64 {
        match &self.holds {
            Holds::Charge(charge) => charge.own_bytes_on(device),
            Holds::Managed(_) | Holds::Part(_) | Holds::SparseMappings(_) => 0,
        }
    }

    /// Prepares for the driver's free, see [`Charge::end`].
    #[inline]
    fn end(&mut self) {
        if let Holds::Charge(charge) = &mut self.holds {
            charge.end();
        }
    }

    /// Whether it is an opening of the other process's object with this key.
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

/// The result of ending an allocation.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Nothing is known at this address or handle.
    Unknown,
    /// An opening ended, and others are left.
    Opening,
    /// The allocation ended.
    All(Allocation),
}

/// Number of shards of each name space: six bits of a name.
const SHARDS: usize = 64;

/// Number of name spaces, see [`Kind::space`].
const SPACES: usize = 4;

type Shard = Mutex<NumberMap<Allocation>>;

/// All allocations of this process, by name: an address or a handle.
#[derive(Debug)]
pub(crate) struct Allocations {
    /// Of each name space.
    shards: [[Shard; SHARDS]; SPACES],
}

impl Allocations {
    /// An empty table.
    pub(crate) fn new() -> Self {
        Self { shards: core::array::from_fn(|_| core::array::from_fn(|_| Mutex::default())) }
    }

    /// Notes an allocation. If one is known under this name already, the driver ended it unnoticed (for example with
    /// a context that was destroyed unseen). That record is returned, to be dropped.
    #[inline(always)]
    pub(crate) fn insert(&self, name: u64, allocation: Allocation) -> Option<Allocation> {
        self.shard(name, allocation.kind).lock().insert(name, allocation)
    }

    /// Ends an allocation, or one of several openings. `kind`: any kind with the same name space.
    #[inline(always)]
    pub(crate) fn end(&self, name: u64, kind: Kind) -> Ended {
        let mut shard = self.shard(name, kind).lock();
        let Some((place, known)) = shard.find_mut(name) else {
            return Ended::Unknown;
        };
        if known.opens > 0 {
            known.opens -= 1;
            return Ended::Opening;
        }
        known.end();
        match shard.take(place) {
            Some((_, allocation)) => Ended::All(allocation),
            None => Ended::Unknown,
        }
    }

    /// As [`Allocations::end`], but only for memory of another process.
    pub(crate) fn end_opened(&self, address: u64) -> Ended {
        let shard = self.shard(address, Kind::Opened);
        let is_opened = matches!(shard.lock().get(address), Some(known) if known.kind == Kind::Opened);
        if is_opened { self.end(address, Kind::Opened) } else { Ended::Unknown }
    }

    /// Undoes [`Allocations::end`], as the driver did not free the memory.
    pub(crate) fn undo(&self, name: u64, kind: Kind, ended: Ended) {
        match ended {
            Ended::Unknown => {}
            Ended::Opening => {
                if let Some(allocation) = self.shard(name, kind).lock().get_mut(name) {
                    allocation.opens += 1;
                }
            }
            Ended::All(allocation) => drop(self.insert(name, allocation)),
        }
    }

    /// Counts one more opening at this address. Returns `false` if the object with this key is not open there.
    pub(crate) fn open_again(&self, address: u64, key: ObjectKey) -> bool {
        let mut shard = self.shard(address, Kind::Opened).lock();
        let known = shard.get_mut(address);
        known
            .filter(|allocation| allocation.is_opening_of(key))
            .map(|allocation| allocation.opens += 1)
            .is_some()
    }

    /// Notes that the object with this key was opened at this address. If another thread opened it meanwhile, both
    /// openings count, as in the driver. Returns the allocation to drop.
    pub(crate) fn open(&self, address: u64, key: ObjectKey, opened: Allocation) -> Option<Allocation> {
        let mut shard = self.shard(address, Kind::Opened).lock();
        match shard.get_mut(address) {
            Some(known) if known.is_opening_of(key) => {
                known.opens += 1;
                Some(opened)
            }
            _ => shard.insert(address, opened),
        }
    }

    /// Publishes the allocation at this address to the tenant under `key`. Returns `false` if there is none.
    pub(crate) fn share(&self, address: u64, key: ObjectKey) -> bool {
        let mut shard = self.shard(address, Kind::Linear).lock();
        match shard.get_mut(address) {
            Some(Allocation { holds: Holds::Charge(charge), .. }) => {
                charge.share(key);
                true
            }
            _ => false,
        }
    }

    /// The key of the allocation at this address, if the tenant knows it by one. `None` if there is no allocation.
    pub(crate) fn key(&self, address: u64) -> Option<Option<ObjectKey>> {
        let shard = self.shard(address, Kind::Linear).lock();
        let known = shard.get(address)?;
        known.charge().map(Charge::key)
    }

    /// Notes that the allocation at this address was exported as a descriptor under `key`. `keeper` may keep its
    /// memory.
    ///
    /// # Errors
    /// Fails if the tenant cannot count it beyond the end of this process, or if there is no such allocation.
    pub(crate) fn note_export(&self, address: u64, key: ObjectKey, keeper: Outlives) -> Result<(), Denied> {
        let mut shard = self.shard(address, Kind::Linear).lock();
        match shard.get_mut(address) {
            Some(Allocation { holds: Holds::Charge(charge), .. }) => charge.note_export(key, keeper),
            _ => Err(Denied),
        }
    }

    /// The mappings of a sparse array.
    pub(crate) fn sparse_mappings(&self, name: u64, kind: Kind) -> Option<Arc<SparseMappings>> {
        match &self.shard(name, kind).lock().get(name)?.holds {
            Holds::SparseMappings(sparse_mappings) => Some(Arc::clone(sparse_mappings)),
            Holds::Charge(_) | Holds::Managed(_) | Holds::Part(_) => None,
        }
    }

    /// The charge of imported external memory.
    pub(crate) fn external(&self, name: u64) -> Option<Arc<Charge>> {
        match &self.shard(name, Kind::External).lock().get(name)?.holds {
            Holds::Part(charge) => Some(Arc::clone(charge)),
            Holds::Charge(_) | Holds::Managed(_) | Holds::SparseMappings(_) => None,
        }
    }

    /// Takes out all allocations for which `dead` is true.
    pub(crate) fn take_all(&self, dead: impl Fn(&Allocation) -> bool) -> Vec<(u64, Allocation)> {
        let mut taken = Vec::new();
        for shard in self.shards.as_flattened() {
            taken.extend(shard.lock().take_all(&dead));
        }
        for (_, allocation) in &mut taken {
            allocation.end();
        }
        taken
    }

    /// Puts back allocations that were taken out, as the driver did not end them.
    pub(crate) fn put_back(&self, taken: Vec<(u64, Allocation)>) {
        for (name, allocation) in taken {
            self.insert(name, allocation);
        }
    }

    #[expect(clippy::indexing_slicing, reason = "below the lengths of the arrays")]
    #[inline]
    fn shard(&self, name: u64, kind: Kind) -> &Shard {
        // The highest bits: a shard's map uses lower ones.
        &self.shards[kind.space()][(mix(name) >> 58) as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests;
