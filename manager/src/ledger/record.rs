//! How changes lie behind the ledger's snapshot: each a line of a fixed length with length and checksum, and of both a
//! checksum, then JSON, then the end of a line.
//!
//! ```text
//! + 000001c0 89abcdef 01234567
//! {"last_number":18,...
//! ```
//!
//! A record that the file has not room for is one of which the writer was killed in the middle: nobody was told that the
//! change was made, and it was not. Anything else that is wrong is damage.

use crate::checked_file::Damage;

/// Bytes of the line.
const HEAD: usize = 29;

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<'b> {
    /// A change, and what is behind it.
    Change { json: &'b [u8], rest: &'b [u8] },
    /// Nothing.
    End,
    /// The beginning of one that was not finished.
    Unfinished,
}

/// The record of a change.
pub(super) fn seal(json: &[u8]) -> Vec<u8> {
    let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
    let head = head(length, crc32fast::hash(json));
    [head.as_bytes(), json, b"\n"].concat()
}

/// Takes the next record. `bytes` are without the zeros at their end: a file may have grown before what was written is in
/// it, and no record ends with one.
pub(super) fn take(bytes: &[u8]) -> Result<Next<'_>, Damage> {
    if bytes.is_empty() {
        return Ok(Next::End);
    }
    let Some((found, rest)) = bytes.split_at_checked(HEAD) else {
        return Ok(Next::Unfinished);
    };
    let number = |at: std::ops::Range<usize>| {
        let digits = found
            .get(at)
            .and_then(|digits| std::str::from_utf8(digits).ok())?;
        u32::from_str_radix(digits, 16).ok()
    };
    let (Some(length), Some(sum)) = (number(2..10), number(11..19)) else {
        return Err(Damage::Checksum);
    };
    // Byte for byte: the length has to be right before anything is taken for unfinished.
    if found != head(length, sum).as_bytes() {
        return Err(Damage::Checksum);
    }
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let Some((json, rest)) = rest.split_at_checked(length) else {
        return Ok(Next::Unfinished);
    };
    match rest.split_first() {
        None => Ok(Next::Unfinished),
        Some((b'\n', rest)) if crc32fast::hash(json) == sum => Ok(Next::Change { json, rest }),
        Some(_) => Err(Damage::Checksum),
    }
}

fn head(length: u32, sum: u32) -> String {
    let both = format!("+ {length:08x} {sum:08x}");
    format!("{both} {:08x}\n", crc32fast::hash(both.as_bytes()))
}
