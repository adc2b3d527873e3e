//! Form of the names that callers give: keys of tenants, ids of requests.

/// Maximum length of a key (characters).
pub const KEY_MAX: usize = 40;
/// Maximum length of a transient grant's key, which is its directory's name (characters).
pub const RUN_MAX: usize = 64;
/// Maximum length of a request id (characters).
pub const REQUEST_MAX: usize = 64;

/// Whether this may be a tenant's key, which begins the name of its directory.
pub fn is_key(text: &str) -> bool {
    is_name(text, KEY_MAX) && !text.starts_with('.')
}

/// Whether this may be a transient grant's key.
pub fn is_run_name(text: &str) -> bool {
    is_name(text, RUN_MAX) && !text.starts_with('.')
}

/// Whether this is 1 to `most` letters, digits, `.`, `_` or `-`.
pub fn is_name(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}
