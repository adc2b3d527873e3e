//! Layout of the manager's files: a header line with kind, version, checksum and length, then JSON.
//!
//! ```text
//! vcuda-ledger 1 89abcdef 1234
//! {"last_number":17,...
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Damage {
    /// Without a header of this kind.
    #[error("it does not begin as a record of this kind")]
    Foreign,
    /// Written by a later release.
    #[error("it is of version {0}, of a later release")]
    Newer(u32),
    /// Length differs from the header's.
    #[error("it has {found} of {expected} bytes")]
    Size {
        /// Length of the content (bytes).
        found: usize,
        /// Length by the header (bytes).
        expected: usize,
    },
    #[error("its checksum is wrong")]
    Checksum,
    /// The checksum is right, and the content is no such record.
    #[error("it cannot be understood: {0}")]
    Content(String),
}

/// The bytes of a file of this kind with this record.
pub(crate) fn seal(kind: &str, version: u32, record: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    Ok(sealed(kind, version, &serde_json::to_vec(record)?))
}

/// The record in a file of this kind, of at most version `newest`.
pub(crate) fn open<T: DeserializeOwned>(kind: &str, newest: u32, bytes: &[u8]) -> Result<T, Damage> {
    serde_json::from_slice(content(kind, newest, bytes)?).map_err(|error| Damage::Content(error.to_string()))
}

fn sealed(kind: &str, version: u32, json: &[u8]) -> Vec<u8> {
    let header = format!("{kind} {version} {:08x} {}\n", crc32fast::hash(json), json.len());
    [header.as_bytes(), json].concat()
}

fn content<'b>(kind: &str, newest: u32, bytes: &'b [u8]) -> Result<&'b [u8], Damage> {
    let end = bytes.iter().take(128).position(|byte| *byte == b'\n').ok_or(Damage::Foreign)?;
    let (header, rest) = bytes.split_at(end);
    let rest = rest.get(1..).unwrap_or_default();
    let header = std::str::from_utf8(header).map_err(|_| Damage::Foreign)?;
    let words: Vec<&str> = header.split(' ').collect();
    let &[found, version, sum, length] = words.as_slice() else {
        return Err(Damage::Foreign);
    };
    if found != kind {
        return Err(Damage::Foreign);
    }
    let version: u32 = version.parse().map_err(|_| Damage::Foreign)?;
    if version == 0 {
        return Err(Damage::Foreign);
    }
    if version > newest {
        return Err(Damage::Newer(version));
    }
    let sum = u32::from_str_radix(sum, 16).map_err(|_| Damage::Foreign)?;
    let expected: usize = length.parse().map_err(|_| Damage::Foreign)?;
    if rest.len() != expected {
        return Err(Damage::Size { found: rest.len(), expected });
    }
    if crc32fast::hash(rest) != sum {
        return Err(Damage::Checksum);
    }
    Ok(rest)
}

/// Writes the file `path` of `directory` whole or not at all, through the file `new` beside it. The directory is made if it is missing.
/// The file is on the disk on return.
pub(crate) fn replace(directory: &Path, new: &str, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = write_beside(directory, new, bytes)?;
    file.sync_all()?;
    fs::rename(directory.join(new), path)?;
    File::open(directory)?.sync_all()
}

/// As [`replace`], for a file that has to survive its writer, and not the node.
pub(crate) fn replace_until_reboot(directory: &Path, new: &str, path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_beside(directory, new, bytes)?;
    fs::rename(directory.join(new), path)
}

fn write_beside(directory: &Path, new: &str, bytes: &[u8]) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(directory.join(new))?;
    file.write_all(bytes)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_kind_of_damage_is_told() {
        let whole = sealed("vcuda-ledger", 1, b"{}");
        assert_eq!(content("vcuda-ledger", 1, &whole), Ok(&b"{}"[..]));
        assert_eq!(content("vcuda-grant", 1, &whole), Err(Damage::Foreign));
        let newer = sealed("vcuda-ledger", 2, b"{}");
        assert_eq!(content("vcuda-ledger", 1, &newer), Err(Damage::Newer(2)));
        let cut = &whole[..whole.len() - 1];
        assert_eq!(content("vcuda-ledger", 1, cut), Err(Damage::Size { found: 1, expected: 2 }));
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        assert_eq!(content("vcuda-ledger", 1, &flipped), Err(Damage::Checksum));
        assert_eq!(content("vcuda-ledger", 1, b""), Err(Damage::Foreign));
    }

    proptest! {
        #[test]
        fn no_change_of_a_byte_goes_unseen(json in "[ -~]{0,200}", at in 0usize..250, bit in 0u8..8) {
            let whole = sealed("kind", 1, json.as_bytes());
            let mut changed = whole.clone();
            let at = at % changed.len();
            changed[at] ^= 1 << bit;
            // A change in the case of a checksum's letter changes nothing.
            let same_sum = changed.eq_ignore_ascii_case(&whole) && at < whole.len() - json.len();
            prop_assert!(content("kind", 1, &changed).is_err() || same_sum);
        }

        #[test]
        fn nonsense_is_refused_and_nothing_worse(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(content("kind", 1, &bytes).is_err());
        }
    }
}
