//! Facts about this release for programs of other releases: the layouts of the files that it uses, the versions of
//! the registration protocol that it supports, and its own number.
//!
//! These words lie together in the built file, behind [`MAGIC`], and the program reads them from there. So the
//! versions of a library or program can be read from its file without running it. The tests make the programs of the
//! releases before and after from one build, by changing these words (`tests/tests/manager/manager_upgrade.rs`).

use core::sync::atomic::{AtomicU32, Ordering};

use crate::{layout, registration};

/// Marker before the words in the built file.
pub const MAGIC: [u8; 16] = *b"vcuda-release-1\0";
/// This source's release as one number that grows with each release: major, minor and patch, a byte each.
pub const NUMBER: u32 = part(env!("CARGO_PKG_VERSION_MAJOR")) << 16
    | part(env!("CARGO_PKG_VERSION_MINOR")) << 8
    | part(env!("CARGO_PKG_VERSION_PATCH"));

/// The words as they lie in the file. Atomics, so that the compiler builds no value in where it is used.
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
pub fn layouts() -> (u32, u32) {
    let [newest, oldest, ..] = &STAMP.words;
    (oldest.load(Ordering::Relaxed), newest.load(Ordering::Relaxed))
}

/// The oldest and the newest version of the registration protocol that this program supports.
pub fn protocols() -> (u32, u32) {
    let [_, _, newest, oldest, _] = &STAMP.words;
    (oldest.load(Ordering::Relaxed), newest.load(Ordering::Relaxed))
}

/// This program's release, numbered as [`NUMBER`].
pub fn number() -> u32 {
    let [.., number] = &STAMP.words;
    number.load(Ordering::Relaxed)
}

/// A release's number as text.
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
