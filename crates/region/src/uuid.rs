//! A GPU's identity: its UUID, the only name of a GPU that crosses a process or an API boundary (I10).

use core::fmt;
use core::str::FromStr;

/// A GPU's UUID: the 16 bytes of `cuDeviceGetUuid` (CUDA Driver API, Device Management), in text as NVML writes it
/// (`nvmlDeviceGetUUID`): `GPU-` and the groups of 8, 4, 4, 4 and 12 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GpuUuid([u8; 16]);

impl GpuUuid {
    /// The UUID with these bytes, as the driver's `CUuuid` holds them.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes, in the order of the driver's `CUuuid`.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The UUID that a text names, as [`GpuUuid::from_str`]; `None` if it names none. Each call of NVML about a GPU reads one.
    pub fn from_ascii(text: &[u8]) -> Option<Self> {
        let text: &[u8; 40] = text.try_into().ok()?;
        let (prefix, mut rest) = text.split_first_chunk::<4>()?;
        if !prefix.eq_ignore_ascii_case(b"GPU-") {
            return None;
        }
        let mut bytes = [0; 16];
        for (position, byte) in bytes.iter_mut().enumerate() {
            if matches!(position, 4 | 6 | 8 | 10) {
                rest = rest.strip_prefix(b"-")?;
            }
            let ([high, low], after) = rest.split_first_chunk()?;
            *byte = digit(*high)? << 4 | digit(*low)?;
            rest = after;
        }
        Some(Self(bytes))
    }

    /// The UUID as two words of the shared layout.
    pub(crate) fn to_words(self) -> [u64; 2] {
        let value = u128::from_le_bytes(self.0);
        #[expect(clippy::cast_possible_truncation, reason = "the two halves are taken on purpose")]
        [value as u64, (value >> 64) as u64]
    }

    /// The UUID in two words of the shared layout.
    pub(crate) fn from_words([low, high]: [u64; 2]) -> Self {
        Self((u128::from(low) | u128::from(high) << 64).to_le_bytes())
    }
}

impl fmt::Display for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = *b"GPU-00000000-0000-0000-0000-000000000000";
        let mut digits = text.iter_mut().filter(|place| **place == b'0');
        for half in self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]) {
            if let (Some(place), Some(digit)) = (digits.next(), DIGITS.get(usize::from(half))) {
                *place = *digit;
            }
        }
        f.write_str(str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error for a text that is not a GPU's UUID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UuidError(String);

impl fmt::Display for UuidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a GPU UUID: write it as nvidia-smi -L does, GPU- and 8-4-4-4-12 hex digits",
            self.0
        )
    }
}

impl std::error::Error for UuidError {}

impl FromStr for GpuUuid {
    type Err = UuidError;

    /// Reads the full form; the case of letters does not matter.
    fn from_str(text: &str) -> Result<Self, UuidError> {
        Self::from_ascii(text.as_bytes()).ok_or_else(|| UuidError(text.chars().take(64).collect()))
    }
}

/// The value of a hexadecimal digit.
fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        b'A'..=b'F' => Some(character - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_the_full_form_in_any_case() {
        let text = "GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
        let uuid: GpuUuid = text.parse().unwrap();
        assert_eq!(uuid.as_bytes()[..4], [0x0a, 0x1b, 0x2c, 0x3d]);
        assert_eq!(uuid.to_string(), text);
        assert_eq!(text.to_uppercase().parse(), Ok(uuid));
        assert_eq!(GpuUuid::from_words(uuid.to_words()), uuid);
    }

    #[test]
    fn refuses_everything_else_and_names_it() {
        for text in [
            "",
            "GPU-",
            "0",
            "GPU-0a1b2c3d",
            "MIG-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9",
            "GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9-",
            "GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f",
            "GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8+9",
            "GPU-0a1b2c3d4e5f60718293a4b5c6d7e8f9",
            "GPU-\u{e9}a1b2c3-4e5f-6071-8293-a4b5c6d7e8f9",
        ] {
            let error = text.parse::<GpuUuid>().unwrap_err().to_string();
            assert!(error.contains("GPU UUID"), "{error}");
            assert_eq!(error.lines().count(), 1);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn text_and_bytes_agree(bytes: [u8; 16]) {
            let uuid = GpuUuid::from_bytes(bytes);
            prop_assert_eq!(uuid.to_string().parse(), Ok(uuid));
        }

        #[test]
        fn any_text_is_answered(text in ".{0,50}") {
            let _ = text.parse::<GpuUuid>();
        }
    }
}
