//! Keys of a claim's grants, and the check that a UID can be part of a file's name.

use super::PrepareError;
use crate::ids::digest;
use crate::mode::CLAIM_KEYS;

const UID_MAX: usize = 64;

/// Beginning of the keys of a claim's grants. The UID is hashed, as keys have at most 40 characters.
pub(in crate::dra) fn key_prefix(uid: &str) -> String {
    format!("{CLAIM_KEYS}{}-", digest(uid, 12))
}

/// Checks that a UID can be part of a file's name.
///
/// # Errors
/// It is empty, too long, or has other characters than letters, digits and `-`.
pub(super) fn check_uid(uid: &str) -> Result<(), PrepareError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    match !uid.is_empty() && uid.len() <= UID_MAX && uid.bytes().all(is_plain) {
        true => Ok(()),
        false => Err(PrepareError::Uid(uid.to_owned())),
    }
}
