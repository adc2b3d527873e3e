//! What this program says of its release to programs of others: which layouts of the files it uses, which versions of the
//! registration's protocol it speaks, and its own number.
//!
//! These words lie in one place of the built file, behind [`MAGIC`], and are read from there as the program runs: so what
//! speaks which version can be read off a library or program without running it, and the tests make of one build the
//! programs of the releases before and after, by changing them there (`tests/tests/manager_upgrade.rs`).

use core::sync::atomic::{AtomicU32, Ordering};

use crate::{layout, registration};

/// What stands before the words in the built file.
pub const MAGIC: [u8; 16] = *b"vcuda-release-1\0";
/// This source's release as one number, in which a later one is greater: major, minor and patch, a byte each.
pub const NUMBER: u32 = part(env!("CARGO_PKG_VERSION_MAJOR")) << 16
    | part(env!("CARGO_PKG_VERSION_MINOR")) << 8
    | part(env!("CARGO_PKG_VERSION_PATCH"));

/// As it lies in the file. Atomics, so that no value is built in where it is used.
#[repr(C)]
struct Stamp {
    magic: [u8; 16],
    words: [AtomicU32; 5],
}

#[used]
static STAMP: Stamp = Stamp {
    magic: MAGIC,
    words: [
        AtomicU32::new(layout::VERSION),
        AtomicU32::new(layout::OLDEST_VERSION),
        AtomicU32::new(registration::VERSION),
        AtomicU32::new(registration::OLDEST),
        AtomicU32::new(NUMBER),
    ],
};

/// The oldest and the newest layout of `limits` and `usage` that this program uses.
#[must_use]
pub fn layouts() -> (u32, u32) {
    let [newest, oldest, ..] = &STAMP.words;
    (oldest.load(Ordering::Relaxed), newest.load(Ordering::Relaxed))
}

/// The oldest and the newest version of the registration's protocol that this program speaks.
#[must_use]
pub fn protocols() -> (u32, u32) {
    let [_, _, newest, oldest, _] = &STAMP.words;
    (oldest.load(Ordering::Relaxed), newest.load(Ordering::Relaxed))
}

/// This program's release, numbered as [`NUMBER`].
#[must_use]
pub fn number() -> u32 {
    let [.., number] = &STAMP.words;
    number.load(Ordering::Relaxed)
}

/// A release's number as people write it.
#[must_use]
pub fn name(number: u32) -> String {
    let [_, major, minor, patch] = number.to_be_bytes();
    format!("{major}.{minor}.{patch}")
}

const fn part(text: &str) -> u32 {
    match u8::from_str_radix(text, 10) {
        Ok(number) => number as u32,
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stamp_says_what_the_source_says() {
        assert_eq!(STAMP.magic, MAGIC);
        assert_eq!(layouts(), (layout::OLDEST_VERSION, layout::VERSION));
        assert_eq!(protocols(), (registration::OLDEST, registration::VERSION));
        assert_eq!(name(number()), env!("CARGO_PKG_VERSION"));
        assert_eq!(name(0x0001_0203), "1.2.3");
    }
}
