//! Names of a claim's grants, and whether a UID can be part of a file's name.

use sha2::{Digest as _, Sha256};

use super::PrepareError;
use crate::mode::CLAIM_KEYS;

/// The longest UID.
const UID_MAX: usize = 64;

/// Beginning of the keys of a claim's grants. Keys have 40 characters at most, so that the UID is hashed.
pub(in crate::dra) fn prefix(uid: &str) -> String {
    format!("{CLAIM_KEYS}{}-", hash(uid, 12))
}

/// The first bytes of the SHA-256 of a text, as a text.
pub(in crate::dra) fn hash(text: &str, bytes: usize) -> String {
    let digest = Sha256::digest(text);
    digest
        .iter()
        .take(bytes)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A UID names files.
pub(super) fn check(uid: &str) -> Result<(), PrepareError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    match !uid.is_empty() && uid.len() <= UID_MAX && uid.bytes().all(is_plain) {
        true => Ok(()),
        false => Err(PrepareError::Uid(uid.to_owned())),
    }
}
