//! Addresses of device memory, and the host memory behind them.
//!
//! The device address of a byte is the address of a byte in a private mapping of this process. Copies and memsets then need
//! no translation, and addresses are unique across devices, as unified addressing promises. Mappings are large and get
//! memory when touched.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

/// Alignment of blocks: "allocated memory is suitably aligned for any kind of variable" (`cuMemAlloc`); the programming
/// guide promises 256, and textures need 512. Whole pages, so that a block can be shared with other processes.
pub(crate) const ALIGNMENT: u64 = 4096;
/// Address space reserved at a time (bytes).
const REGION_BYTES: u64 = 64 << 30;
/// Size from which the memory of freed blocks is returned to the system (bytes).
const RETURN_BYTES: u64 = 128 << 10;

/// Free addresses of one device.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    free: Mutex<Free>,
}

/// Free ranges, indexed by address and by size.
#[derive(Debug, Default)]
struct Free {
    by_address: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
}

impl Free {
    fn insert(&mut self, address: u64, bytes: u64) {
        self.by_address.insert(address, bytes);
        self.by_size.insert((bytes, address));
    }

    fn remove(&mut self, address: u64, bytes: u64) {
        self.by_address.remove(&address);
        self.by_size.remove(&(bytes, address));
    }

    /// Takes the smallest sufficient range.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let &(found, address) = self.by_size.range((bytes, 0)..).next()?;
        self.remove(address, found);
        if found > bytes {
            self.insert(address + bytes, found - bytes);
        }
        Some(address)
    }

    /// Returns a range, and joins it with its neighbours.
    fn give(&mut self, mut address: u64, mut bytes: u64) {
        if let Some((&next, &length)) = self.by_address.range(address + bytes..).next()
            && next == address + bytes
        {
            self.remove(next, length);
            bytes += length;
        }
        if let Some((&before, &length)) = self.by_address.range(..address).next_back()
            && before + length == address
        {
            self.remove(before, length);
            address = before;
            bytes += length;
        }
        self.insert(address, bytes);
    }
}

/// Address space for a block of this size (bytes); `None` for impossible sizes.
fn rounded(bytes: u64) -> Option<u64> {
    bytes.max(1).checked_next_multiple_of(ALIGNMENT)
}

impl Arena {
    /// Takes an address for a block; `None` if the process has no address space left.
    pub(crate) fn take(&self, bytes: u64) -> Option<u64> {
        let bytes = rounded(bytes)?;
        let mut free = self.free.lock();
        if let Some(address) = free.take(bytes) {
            return Some(address);
        }
        let region = bytes.max(REGION_BYTES).checked_next_multiple_of(2 << 20)?;
        let (address, region) = map(region).map(|address| (address, region)).or_else(|| {
            // With little address space, only what is needed.
            let region = bytes.checked_next_multiple_of(2 << 20)?;
            map(region).map(|address| (address, region))
        })?;
        free.give(address, region);
        free.take(bytes)
    }

    /// Returns the addresses of a block that [`Arena::take`] gave for the same size.
    pub(crate) fn give(&self, address: u64, bytes: u64) {
        let Some(bytes) = rounded(bytes) else { return };
        if bytes >= RETURN_BYTES {
            let start = address.next_multiple_of(4096);
            let end = (address + bytes) / 4096 * 4096;
            // SAFETY: a part of a mapping of this arena that no allocation uses any more.
            unsafe { libc::madvise(start as *mut _, (end - start) as usize, libc::MADV_DONTNEED) };
        }
        self.free.lock().give(address, bytes);
    }
}

fn map(bytes: u64) -> Option<u64> {
    let length = usize::try_from(bytes).ok()?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
    let address = unsafe { libc::mmap(core::ptr::null_mut(), length, protection, flags, -1, 0) };
    if address == libc::MAP_FAILED {
        return None;
    }
    // Simulated memory is left out of core dumps. SAFETY: the mapping just made.
    unsafe { libc::madvise(address, length, libc::MADV_DONTDUMP) };
    Some(address as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_apart_and_join_again() {
        let arena = Arena::default();
        let blocks: Vec<u64> = [1, 4095, 4096, 4097, 8192].map(|bytes| arena.take(bytes).unwrap()).to_vec();
        assert!(blocks.iter().all(|block| block % ALIGNMENT == 0));
        assert_eq!(blocks[4] - blocks[3], 8192);
        let first = blocks[0];
        for (block, bytes) in blocks.into_iter().zip([1, 4095, 4096, 4097, 8192]) {
            arena.give(block, bytes);
        }
        let free = arena.free.lock();
        assert_eq!(free.by_address.len(), 1, "all is one range again");
        assert_eq!(free.by_address.get(&first), Some(&REGION_BYTES));
        drop(free);
        assert_eq!(arena.take(u64::MAX), None);
    }
}
