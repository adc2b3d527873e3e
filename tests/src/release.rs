//! A tenant's files in the form of another release: until there is one, a header changed by hand. The offsets are repeated
//! here on purpose, as two releases must agree on them.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use vcuda_region::layout::LIMITS_MAGIC;
use vcuda_region::seqlock::checksum;

/// Changes the files in `directory` to a release of this version, usable by programs from `compatible` on, with `appended`
/// further bytes each. Done in place, so that processes with open files see it.
pub fn of_release(directory: &Path, version: u32, compatible: u32, appended: usize) {
    for name in ["limits", "usage"] {
        let path = directory.join(name);
        let mut bytes = fs::read(&path).unwrap();
        bytes.resize(bytes.len() + appended, 0xab);
        let size = bytes.len() as u64;
        bytes[8..12].copy_from_slice(&version.to_ne_bytes());
        bytes[12..16].copy_from_slice(&compatible.to_ne_bytes());
        bytes[16..24].copy_from_slice(&size.to_ne_bytes());
        if name == "limits" {
            let half = |at: usize| u64::from(u32::from_ne_bytes(*bytes[at..].first_chunk().unwrap()));
            let word = |at: usize| u64::from_ne_bytes(*bytes[at..].first_chunk().unwrap());
            let mut words = vec![half(8), half(12), half(24), half(28), word(16)];
            words.extend((32..160).step_by(8).map(word));
            let devices = (0..16).map(|device| 256 + device * 384);
            words.extend(devices.flat_map(|device| [device, device + 8]).map(word));
            let sum = checksum(LIMITS_MAGIC, &words);
            bytes[160..168].copy_from_slice(&sum.to_ne_bytes());
        }
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        // The header is changed after the other bytes, as running processes write meanwhile.
        file.set_len(size).unwrap();
        file.write_all_at(&bytes[bytes.len() - appended..], (bytes.len() - appended) as u64).unwrap();
        file.write_all_at(&bytes[..if name == "limits" { 168 } else { 24 }], 0).unwrap();
    }
}
