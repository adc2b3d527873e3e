//! The LZ4 block format (LZ4 Block Format Description), which compressed fatbin entries use.

/// Decompresses a block into exactly `size` bytes; none if it is damaged.
pub(super) fn decompress(block: &[u8], size: usize) -> Option<Vec<u8>> {
    // The header that names the size is foreign: room is made as bytes come, not at once.
    let mut out = Vec::with_capacity(size.min(1 << 20));
    let mut input = block.iter().copied();
    loop {
        let Some(token) = input.next() else {
            return (out.len() == size).then_some(out);
        };
        let literals = length(token >> 4, &mut input)?;
        for _ in 0..literals {
            out.push(input.next()?);
        }
        if out.len() > size {
            return None;
        }
        // The last sequence has literals only; padding may follow it.
        if out.len() == size || input.len() == 0 {
            return (out.len() == size).then_some(out);
        }
        let offset = usize::from(u16::from_le_bytes([input.next()?, input.next()?]));
        let matched = length(token & 15, &mut input)?.checked_add(4)?;
        let start = out.len().checked_sub(offset).filter(|_| offset != 0)?;
        if out.len().checked_add(matched)? > size {
            return None;
        }
        for index in start..start + matched {
            out.push(*out.get(index)?);
        }
    }
}

fn length(nibble: u8, input: &mut impl Iterator<Item = u8>) -> Option<usize> {
    let mut length = usize::from(nibble);
    if nibble == 15 {
        loop {
            let more = input.next()?;
            length = length.checked_add(usize::from(more))?;
            if more != 255 {
                break;
            }
        }
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::decompress;

    #[test]
    fn literals_matches_and_overlaps() {
        assert_eq!(
            decompress(&[0x30, b'a', b'b', b'c'], 3).as_deref(),
            Some(&b"abc"[..])
        );
        // "ab", then 8 bytes from 2 back, then "!".
        assert_eq!(
            decompress(&[0x24, b'a', b'b', 2, 0, 0x10, b'!'], 11).as_deref(),
            Some(&b"ababababab!"[..])
        );
    }

    #[test]
    fn damaged_blocks_are_refused() {
        for block in [
            &[0x30, b'a'][..],
            &[0x10, b'a', 9, 0],
            &[0x10, b'a', 0, 0],
            &[0xf0, 255],
            &[],
        ] {
            assert_eq!(decompress(block, 20), None, "{block:?}");
        }
        assert_eq!(
            decompress(&[0x1f, b'a', 1, 0, 255, 255, 255, 0], 100),
            None,
            "longer than announced"
        );
    }
}
