//! Fatbin containers: PTX and cubins for several architectures.

use std::io::Read;

use super::{Image, elf, part, ptx, u16_at, u32_at, u64_at};

pub(super) const MAGIC: u32 = 0xba55_ed50;
const HEADER_BYTES: usize = 16;
const KIND_PTX: u16 = 1;
const KIND_ELF: u16 = 2;
const FLAG_LZ4: u64 = 0x2000;
/// Zstandard, which CUDA 12.8 brought.
const FLAG_ZSTD: u64 = 0x8000;

/// Length of the whole container, by its header.
pub(super) fn length(header: &[u8]) -> Option<usize> {
    u64_at(header, 8)?.checked_add(usize::from(u16_at(header, 6)?))
}

/// Merges the entries: one kernel per name, from cubins first, as they have more information.
pub(super) fn parse(bytes: &[u8]) -> Option<Image> {
    if u32_at(bytes, 0)? != MAGIC || usize::from(u16_at(bytes, 6)?) < HEADER_BYTES {
        return None;
    }
    let end = length(bytes)?.min(bytes.len());
    let mut offset = usize::from(u16_at(bytes, 6)?);
    let mut entries = Vec::new();
    let mut is_opaque = false;
    while offset < end {
        let (kind, header, payload) =
            (u16_at(bytes, offset)?, u32_at(bytes, offset + 4)? as usize, u64_at(bytes, offset + 8)?);
        let start = offset.checked_add(header)?;
        let content = content(bytes, offset, start, payload)?;
        match (kind, content) {
            (_, Content::Unknown) => is_opaque = true,
            (KIND_ELF, Content::Known(content)) => entries.insert(0, elf::parse(&content)?),
            (KIND_PTX, Content::Known(content)) => {
                let text = String::from_utf8_lossy(&content);
                entries.push(ptx::parse(text.trim_end_matches('\0'))?);
            }
            // Kinds without a program of their own (an index, intermediate code).
            _ => {}
        }
        let next = start.checked_add(payload)?;
        if next <= offset {
            return None;
        }
        offset = next;
    }
    let mut image = Image { is_opaque: is_opaque && entries.is_empty(), ..Image::default() };
    for entry in entries {
        image.architecture = image.architecture.max(entry.architecture);
        for kernel in entry.kernels {
            if image.kernels.iter().all(|known| known.name != kernel.name) {
                image.kernels.push(kernel);
            }
        }
        for global in entry.globals {
            if image.globals.iter().all(|known| known.name != global.name) {
                image.globals.push(global);
            }
        }
    }
    Some(image)
}

enum Content {
    Known(Vec<u8>),
    Unknown,
}

fn content(bytes: &[u8], entry: usize, start: usize, payload: usize) -> Option<Content> {
    let flags = u64_at(bytes, entry + 40)? as u64;
    if flags & (FLAG_LZ4 | FLAG_ZSTD) == 0 {
        return Some(Content::Known(part(bytes, start, payload)?.to_vec()));
    }
    let compressed = u32_at(bytes, entry + 16)? as usize;
    let size = u64_at(bytes, entry + 56)?;
    let block = part(bytes, start, compressed.min(payload))?;
    let content = if flags & FLAG_ZSTD != 0 { unzstd(block, size) } else { unlz4(block, size) };
    Some(content.map_or(Content::Unknown, Content::Known))
}

/// A Zstandard frame of exactly `size` bytes.
fn unzstd(frame: &[u8], size: usize) -> Option<Vec<u8>> {
    let decoder = ruzstd::decoding::StreamingDecoder::new(frame).ok()?;
    // The size comes from a foreign header, so at most this much is allocated beforehand.
    let mut content = Vec::with_capacity(size.min(1 << 20));
    decoder.take(size as u64 + 1).read_to_end(&mut content).ok()?;
    (content.len() == size).then_some(content)
}

/// An LZ4 block of exactly `size` bytes.
fn unlz4(block: &[u8], size: usize) -> Option<Vec<u8>> {
    // The size comes from a foreign header: a byte of a block expands to 255 at most.
    if size / 255 > block.len() {
        return None;
    }
    let content = lz4_flex::block::decompress(block, size).ok()?;
    (content.len() == size).then_some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = ".version 7.0\n.target sm_80\n.visible .entry k(.param .u64 a) { ret; }\n";

    fn container(flags: u64, payload: &[u8], size: usize) -> Vec<u8> {
        let mut entry = vec![0; 64];
        entry[0..2].copy_from_slice(&KIND_PTX.to_le_bytes());
        entry[4..8].copy_from_slice(&64_u32.to_le_bytes());
        entry[8..16].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        entry[16..20].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        entry[40..48].copy_from_slice(&flags.to_le_bytes());
        entry[56..64].copy_from_slice(&(size as u64).to_le_bytes());
        entry.extend_from_slice(payload);
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend_from_slice(&[1, 0, 16, 0]);
        bytes.extend_from_slice(&(entry.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&entry);
        bytes
    }

    #[test]
    fn plain_and_compressed_entries_say_the_same() {
        let plain = parse(&container(0, PTX.as_bytes(), 0)).unwrap();
        assert_eq!(plain.kernels[0].name, "k");
        // One run of literals is a valid LZ4 block.
        let mut block = vec![0xf0];
        block.push((PTX.len() - 15) as u8);
        block.extend_from_slice(PTX.as_bytes());
        assert_eq!(parse(&container(FLAG_LZ4, &block, PTX.len())).unwrap(), plain);
    }

    #[test]
    fn a_block_is_as_long_as_announced() {
        // "ab", then 8 bytes from 2 back, then "!".
        let block = [0x24, b'a', b'b', 2, 0, 0x10, b'!'];
        assert_eq!(unlz4(&block, 11).as_deref(), Some(&b"ababababab!"[..]));
        for size in [10, 12, usize::MAX] {
            assert_eq!(unlz4(&block, size), None, "{size}");
        }
    }

    #[test]
    fn an_unreadable_payload_makes_it_opaque_and_damage_is_refused() {
        assert!(parse(&container(FLAG_ZSTD, b"????", 100)).unwrap().is_opaque);
        let whole = container(0, PTX.as_bytes(), 0);
        for length in 0..whole.len() {
            let _ = parse(&whole[..length]);
        }
        assert!(parse(&whole[..40]).is_none());
    }
}
