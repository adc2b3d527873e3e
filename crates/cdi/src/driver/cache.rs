//! Reader of `ld.so.cache` in the format of glibc 2.2 and later (glibc, `sysdeps/generic/dl-cache.h`).

use std::path::{Path, PathBuf};

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// Magic of the older format, which `ldconfig` before 2.32 writes in front for old loaders.
const OLD_MAGIC: &[u8] = b"ld.so-1.7.0\0";
const OLD_ENTRY_BYTES: usize = 12;
const HEADER_BYTES: usize = 48;
const ENTRY_BYTES: usize = 24;
/// Flags of a library for this machine's 64-bit programs: the low byte is glibc 2, the next one the architecture.
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0x0a03;
#[cfg(not(target_arch = "aarch64"))]
const NATIVE: u32 = 0x0303;

/// Names and paths (below the root) of the 64-bit libraries in a cache, in its order.
pub(super) fn libraries(bytes: &[u8]) -> Result<Vec<(String, PathBuf)>, &'static str> {
    let cache = new_format(bytes).ok_or("not a cache that ldconfig of glibc 2.2 or later wrote")?;
    let count = word(cache, MAGIC.len()).ok_or("cut in its header")?;
    let mut libraries = Vec::new();
    for index in 0..count {
        let entry = index
            .checked_mul(ENTRY_BYTES)
            .and_then(|offset| offset.checked_add(HEADER_BYTES))
            .and_then(|offset| cache.get(offset..)?.get(..ENTRY_BYTES))
            .ok_or("cut in its list")?;
        let field = |at| word(entry, at).ok_or("cut in its list");
        if u32::try_from(field(0)?) != Ok(NATIVE) {
            continue;
        }
        let text = |offset: usize| text(cache, offset).ok_or("a name in it is none");
        let (name, path) = (text(field(4)?)?, text(field(8)?)?);
        let path = Path::new(path.trim_start_matches('/'));
        libraries.push((name.to_owned(), path.to_owned()));
    }
    Ok(libraries)
}

/// The part in the new format. Offsets of names count from its beginning.
fn new_format(bytes: &[u8]) -> Option<&[u8]> {
    if bytes.starts_with(MAGIC) {
        return Some(bytes);
    }
    let rest = bytes.strip_prefix(OLD_MAGIC)?;
    let entries = word(rest, 0)?.checked_mul(OLD_ENTRY_BYTES)?;
    let end = entries.checked_add(OLD_MAGIC.len() + 4)?;
    // The new format is aligned to its widest field.
    let newer = bytes.get(end.checked_next_multiple_of(8)?..)?;
    newer.starts_with(MAGIC).then_some(newer)
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let (word, _) = bytes.get(at..)?.split_first_chunk::<4>()?;
    usize::try_from(u32::from_le_bytes(*word)).ok()
}

fn text(bytes: &[u8], at: usize) -> Option<&str> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    str::from_utf8(rest.get(..end)?).ok()
}
