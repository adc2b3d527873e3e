//! Sizes in `machine.toml`: a number of bytes, or a string such as "24GiB".

use serde::de::{self, Deserializer, Visitor};
use std::fmt;

/// Reads "24GiB", "4096 MiB", "4Gi", "4G", "512" as bytes: binary units with an `i`, decimal ones without.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let unit = unit.trim();
    let factor: u64 = match unit.strip_suffix('B').unwrap_or(unit) {
        "" => 1,
        "K" | "k" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Deserializer for `#[serde(deserialize_with)]`.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    struct Bytes;
    impl Visitor<'_> for Bytes {
        type Value = u64;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a size such as 24GiB, or a number of bytes")
        }
        fn visit_u64<E: de::Error>(self, value: u64) -> Result<u64, E> {
            Ok(value)
        }
        fn visit_i64<E: de::Error>(self, value: i64) -> Result<u64, E> {
            u64::try_from(value).map_err(|_| E::invalid_value(de::Unexpected::Signed(value), &self))
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
            parse_bytes(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
        }
    }
    deserializer.deserialize_any(Bytes)
}

#[cfg(test)]
mod tests {
    use super::parse_bytes;

    #[test]
    fn units() {
        assert_eq!(parse_bytes("24GiB"), Some(24 << 30));
        assert_eq!(parse_bytes("4Gi"), Some(4 << 30));
        assert_eq!(parse_bytes("4096 MiB"), Some(4 << 30));
        assert_eq!(parse_bytes("4G"), Some(4_000_000_000));
        assert_eq!(parse_bytes("17"), Some(17));
        for wrong in ["", "GiB", "-1", "4X", "4 Gi B", "99999999999TiB", "1.5GiB"] {
            assert_eq!(parse_bytes(wrong), None, "{wrong}");
        }
    }
}
