//! The name of an object in every process of the tenant.

#[cfg(not(loom))]
use crate::sys;
#[cfg(not(loom))]
use std::io;

/// The name of an object that several processes may hold: two words that all of them derive alike from the driver's
/// handle, and that no other object of the tenant has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObjectKey([u64; 2]);

impl ObjectKey {
    /// Bit of the offsets of all keys' locks, which no real file's bytes reach.
    pub const LOCK: u64 = 1 << 62;
    /// Additional bit of the offset if the object needs no memory itself (a multicast object).
    pub const MULTICAST: u64 = 1 << 61;
    /// First word of the keys that are made from offsets.
    pub const OF_OFFSET: u64 = u64::from_le_bytes(*b"vcudatag");

    /// Offset of the lock that descriptors of the object with this key carry.
    pub fn lock_offset(self) -> u64 {
        match self.0 {
            [Self::OF_OFFSET, offset] => offset,
            // A hash of another handle under which it was exported first, such as an IPC handle: as good as random.
            [_, hash] => hash & (Self::MULTICAST - 1) | Self::LOCK,
        }
    }

    /// The key for a handle with these bytes (an IPC handle, a pool pointer's export data, a fabric handle): a hash
    /// of 128 bits. It is no defence against malice: a process that forges handles corrupts its own tenant's sum
    /// only.
    pub fn of(bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut last = [0; 8];
        for (byte, from) in last.iter_mut().zip(rest) {
            *byte = *from;
        }
        let words = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
        let length = bytes.len() as u64;
        let (first, second) =
            words.fold((0x243f_6a88_85a3_08d3 ^ length, 0x1319_8a2e_0370_7344), |(first, second), word| {
                (
                    mix(first ^ word, 0x9e37_79b9_7f4a_7c15),
                    mix(second ^ word.rotate_left(32), 0xff51_afd7_ed55_8ccd),
                )
            });
        Self::from_parts(mix(first ^ second.rotate_left(29), 0xc4ce_b9fe_1a85_ec53), second)
    }

    /// The key of an object that carries these two words.
    pub fn from_parts(first: u64, second: u64) -> Self {
        // Zero marks an empty place.
        Self([if first == 0 { 1 } else { first }, second])
    }

    /// A key that no other object has.
    ///
    /// # Errors
    /// Fails if the kernel gives no random bytes.
    #[cfg(not(loom))]
    pub fn unique() -> io::Result<Self> {
        let [first, second] = sys::random_words()?;
        Ok(Self::from_parts(first, second))
    }

    /// The two words.
    pub fn parts(self) -> [u64; 2] {
        self.0
    }
}

/// Spreads each bit of `value` over all: multiplied to 128 bits, the halves folded together.
#[expect(clippy::cast_possible_truncation, reason = "the two halves are taken on purpose")]
const fn mix(value: u64, by: u64) -> u64 {
    let wide = (value ^ by) as u128 * 0xa0b9_5e3d_7c1f_4e8b;
    let folded = (wide >> 64) as u64 ^ wide as u64;
    folded ^ folded >> 32
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_of_like_bytes_differ_and_none_is_zero() {
        let mut seen = HashSet::new();
        let mut halves = [HashSet::new(), HashSet::new()];
        for length in 0..80 {
            assert!(seen.insert(ObjectKey::of(&vec![0; length])), "{length} zeros");
        }
        for at in 0..64 {
            for bit in 0..8 {
                let mut bytes = [0; 64];
                bytes[at] = 1 << bit;
                let key = ObjectKey::of(&bytes);
                assert_eq!(key, ObjectKey::of(&bytes));
                // The key of 64 zeros is among those above already.
                assert!(seen.insert(key), "bit {bit} of byte {at}");
                for (half, part) in halves.iter_mut().zip(key.parts()) {
                    assert!(half.insert(part), "bit {bit} of byte {at}: half a key is another's");
                }
            }
        }
        assert_ne!(ObjectKey::from_parts(0, 0).parts()[0], 0);
        assert_ne!(ObjectKey::unique().unwrap(), ObjectKey::unique().unwrap());
    }
}
