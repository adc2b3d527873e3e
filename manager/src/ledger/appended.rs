//! Changes that the previous release appended to its ledger. Each has a line of fixed length with its length, its checksum,
//! and a checksum of both, then JSON, then a newline.
//!
//! ```text
//! + 000001c0 89abcdef 01234567
//! {"last_number":18,...
//! ```
//!
//! A record that is cut off at the end of the file comes from a writer that was killed: the change was never answered, and
//! is dropped. Any other deviation is damage.

use crate::checked_file::Damage;
use crate::grant_table::GrantTable;

/// Length of the line (bytes).
const HEAD: usize = 29;

/// Next item of the appended bytes.
#[derive(Debug, PartialEq, Eq)]
enum Next<'b> {
    /// A change, and the bytes after it.
    Change { json: &'b [u8], rest: &'b [u8] },
    /// The end.
    End,
    /// A record that was not finished.
    Unfinished,
}

/// Applies the appended changes to the grants before them.
///
/// # Errors
/// Fails if the bytes are damaged; `grant_table` must then be discarded.
pub(super) fn apply(grant_table: &mut GrantTable, appended: &[u8]) -> Result<(), Damage> {
    // Trailing zeros are skipped: a file may be longer than its written bytes, and no record ends with a zero.
    let end = appended.iter().rposition(|byte| *byte != 0);
    let mut rest = appended.get(..end.map_or(0, |last| last + 1)).unwrap_or_default();
    loop {
        match next_record(rest)? {
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

/// A record of a change in the form of the previous release.
#[cfg(test)]
pub(super) fn seal(json: &[u8]) -> Vec<u8> {
    let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
    let head = head(length, crc32fast::hash(json));
    [head.as_bytes(), json, b"\n"].concat()
}

/// Parses the next record of `bytes`, from which trailing zeros were removed.
fn next_record(bytes: &[u8]) -> Result<Next<'_>, Damage> {
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
    // The whole line is compared: its length must be right before a record counts as unfinished.
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
