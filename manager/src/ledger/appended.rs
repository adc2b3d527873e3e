//! Changes that the release before appended to its ledger: each a line of a fixed length with length and checksum, and of
//! both a checksum, then JSON, then the end of a line.
//!
//! ```text
//! + 000001c0 89abcdef 01234567
//! {"last_number":18,...
//! ```
//!
//! A record that the file has not room for is one of which the writer was killed in the middle: the change was never
//! answered, and was not made. Anything else that is wrong is damage.

use crate::checked_file::Damage;
use crate::grant_table::GrantTable;

/// Bytes of the line.
const HEAD: usize = 29;

/// The next of the bytes.
#[derive(Debug, PartialEq, Eq)]
enum Next<'b> {
    /// A change, and the bytes behind it.
    Change { json: &'b [u8], rest: &'b [u8] },
    /// Nothing.
    End,
    /// The beginning of a record that was not finished.
    Unfinished,
}

/// Makes the changes that are appended to a ledger whose grants are `grant_table`.
///
/// # Errors
/// The bytes are damaged. The table of grants is then of no use.
pub(super) fn add(grant_table: &mut GrantTable, appended: &[u8]) -> Result<(), Damage> {
    // A file may have grown before its bytes are in it, and no record ends with a zero.
    let end = appended.iter().rposition(|byte| *byte != 0);
    let mut rest = appended.get(..end.map_or(0, |last| last + 1)).unwrap_or_default();
    loop {
        match take(rest)? {
            Next::Change { json, rest: behind } => {
                grant_table.change_by_json(json).map_err(Damage::Content)?;
                rest = behind;
            }
            Next::End => return Ok(()),
            Next::Unfinished => {
                tracing::info!(
                    "the ledger's last change was not finished when its manager ended: it was not made"
                );
                return Ok(());
            }
        }
    }
}

/// The record of a change, as the release before wrote it.
#[cfg(test)]
pub(super) fn seal(json: &[u8]) -> Vec<u8> {
    let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
    let head = head(length, crc32fast::hash(json));
    [head.as_bytes(), json, b"\n"].concat()
}

/// The next record of `bytes`, which are without the zeros at their end.
fn take(bytes: &[u8]) -> Result<Next<'_>, Damage> {
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
