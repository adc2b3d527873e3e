//! The rule of versions: which files a program can use, by the first words of `limits` and `usage`.
//!
//! A program uses the files of its own version, and those of older versions down to the oldest that it knows
//! ([`release::layouts`]). It also uses files of a newer version whose header says that their layout begins with this
//! program's, with the same words in the same places (`compatible_version`). Such a file may be longer: this program
//! neither reads nor writes the rest. Every other file is refused, with both versions in the message: a quota is
//! never read from words that may mean something else (I11, I13).

use crate::layout::Header;
use crate::primitive::Ordering;
use crate::release;

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 24;

const _: () = assert!(HEADER_BYTES == size_of::<Header>());

impl Header {
    /// Fills the header of a file of this version. The first word is written last.
    pub(crate) fn fill(&self, magic: u64, size_bytes: usize) {
        let (oldest, own) = release::layouts();
        self.version.store(own, Ordering::Relaxed);
        self.compatible_version.store(oldest, Ordering::Relaxed);
        self.size_bytes.store(size_bytes as u64, Ordering::Relaxed);
        self.magic.store(magic, Ordering::Release);
    }
}

/// The words of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) magic: u64,
    pub(crate) version: u32,
    pub(crate) compatible_version: u32,
    pub(crate) size_bytes: u64,
}

impl Words {
    pub(crate) fn of_bytes(bytes: &[u8; HEADER_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, versions @ .., i, j, k, l, m, n, o, p] = *bytes;
        let [q, r, s, t, u, v, w, x] = versions;
        Self {
            magic: u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            version: u32::from_ne_bytes([q, r, s, t]),
            compatible_version: u32::from_ne_bytes([u, v, w, x]),
            size_bytes: u64::from_ne_bytes([i, j, k, l, m, n, o, p]),
        }
    }

    /// Whether this program can use a file of these versions.
    pub(crate) fn is_compatible(&self) -> bool {
        let (oldest, own) = release::layouts();
        is_compatible(self.version, self.compatible_version, oldest, own)
    }

    /// Whether a file of `found` bytes has the size of its version. `own`: the size in this version, and in older
    /// ones.
    pub(crate) fn has_size(&self, found: u64, own: u64) -> bool {
        self.size_bytes == found && (found == own || (found > own && self.version > release::layouts().1))
    }
}

/// Whether a program of version `own` that reads files from version `oldest` on can use a file of `version` that
/// programs from `compatible` on can use.
fn is_compatible(version: u32, compatible: u32, oldest: u32, own: u32) -> bool {
    if version > own { compatible <= own } else { version >= oldest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{OLDEST_VERSION, VERSION};

    #[test]
    fn each_of_two_releases_uses_the_others_files_if_the_newer_one_says_so() {
        // The newer release appended something: it reads the older files, and says that the older may read its own.
        let (older, newer) = (7, 8);
        assert!(is_compatible(older, older, older, newer));
        assert!(is_compatible(newer, older, older - 1, older));
        // It changed something: neither uses the other's.
        assert!(!is_compatible(older, older, newer, newer));
        assert!(!is_compatible(newer, newer, older, older));
        // Each uses its own files.
        assert!(is_compatible(newer, newer, newer, newer));
        assert!(is_compatible(newer, older, older, newer));
        // What an older file says of still older versions does not matter. Nor can it let in a file that is too old.
        assert!(!is_compatible(6, 0, older, newer));
        assert!(is_compatible(u32::MAX, newer, older, newer));
    }

    #[test]
    fn only_a_newer_file_may_be_longer() {
        let words =
            |version, size_bytes| Words { magic: 0, version, compatible_version: OLDEST_VERSION, size_bytes };
        assert!(words(VERSION, 100).has_size(100, 100));
        assert!(!words(VERSION, 100).has_size(99, 100), "cut");
        assert!(!words(VERSION, 99).has_size(99, 100));
        assert!(!words(VERSION, 128).has_size(128, 100));
        assert!(!words(OLDEST_VERSION, 128).has_size(128, 100));
        assert!(words(VERSION + 1, 128).has_size(128, 100));
        assert!(!words(VERSION + 1, 128).has_size(100, 100), "cut");
        assert!(!words(VERSION + 1, 64).has_size(64, 100));
    }

    #[test]
    fn the_words_lie_where_the_layout_has_them() {
        let bytes: [u8; HEADER_BYTES] = core::array::from_fn(|at| u8::try_from(at).unwrap_or(0));
        let words = Words::of_bytes(&bytes);
        assert_eq!(words.magic.to_ne_bytes(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(words.version.to_ne_bytes(), [8, 9, 10, 11]);
        assert_eq!(words.compatible_version.to_ne_bytes(), [12, 13, 14, 15]);
        assert_eq!(words.size_bytes.to_ne_bytes(), [16, 17, 18, 19, 20, 21, 22, 23]);
    }
}
