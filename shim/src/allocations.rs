//! What this process has allocated: address or handle -> device, bytes, kind.
//!
//! Sharded, so that threads seldom meet. No lock is held across a call of the driver, nor taken on a launch.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use parking_lot::Mutex;
use vcuda_driver_api::prelude::CUcontext;

use crate::charge::Charge;

/// How an allocation was made, as far as its end depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Lives in its context: `cuMemAlloc`, pitched, managed.
    Linear,
    /// Lives in a pool of its device.
    Pooled,
    /// An array of its context.
    Array,
    /// A mipmapped array of its context.
    Mipmap,
}

impl Kind {
    /// Addresses, arrays and mipmapped arrays are named by numbers of their own.
    const fn space(self) -> u64 {
        match self {
            Self::Linear | Self::Pooled => 0,
            Self::Array => 1,
            Self::Mipmap => 2,
        }
    }
}

/// One allocation that is counted in the ledger. Dropped, its bytes are given back.
#[derive(Debug)]
pub(crate) struct Allocation {
    /// The context it was made in.
    pub(crate) context: CUcontext,
    /// How it was made.
    pub(crate) kind: Kind,
    /// What is counted for it.
    pub(crate) charge: Charge,
}

const SHARDS: usize = 64;

type Shard = Mutex<HashMap<(u64, u64), Allocation, BuildHasherDefault<Mix>>>;

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
        let key = (name, allocation.kind.space());
        self.shard(name).lock().insert(key, allocation)
    }

    /// Takes the record of an address (kind: linear or pooled), an array or a mipmapped array out.
    #[inline]
    pub(crate) fn take(&self, name: u64, kind: Kind) -> Option<Allocation> {
        self.shard(name).lock().remove(&(name, kind.space()))
    }

    /// Takes out all that `dead` says is gone.
    pub(crate) fn take_all(&self, dead: impl Fn(&Allocation) -> bool) -> Vec<(u64, Allocation)> {
        let mut taken = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            taken.extend(
                shard
                    .extract_if(|_, allocation| dead(allocation))
                    .map(|((name, _), gone)| (name, gone)),
            );
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
struct Mix(u64);

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
    fn write_u64(&mut self, value: u64) {
        self.0 = mix(self.0.rotate_left(5) ^ value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(kind: Kind, context: usize) -> Allocation {
        Allocation {
            context: CUcontext(context),
            kind,
            charge: Charge::for_tests(),
        }
    }

    #[test]
    fn a_record_is_taken_once() {
        let allocations = Allocations::new();
        assert!(allocations.insert(512, allocation(Kind::Pooled, 1)).is_none());
        assert!(
            allocations.take(512, Kind::Array).is_none(),
            "an array of the same number is another thing"
        );
        assert!(
            allocations.take(512, Kind::Linear).is_some(),
            "an address is an address, however it was made"
        );
        assert!(allocations.take(512, Kind::Linear).is_none());
    }

    #[test]
    fn a_context_takes_its_own_along() {
        let allocations = Allocations::new();
        for address in 0..1000 {
            allocations.insert(address * 512, allocation(Kind::Linear, (address % 2) as usize));
        }
        let gone = allocations.take_all(|one| one.context == CUcontext(1));
        assert_eq!(gone.len(), 500);
        allocations.put_back(gone);
        assert_eq!(allocations.take_all(|_| true).len(), 1000);
    }
}
