//! Parser and formatter of Kubernetes quantities (Kubernetes API reference, "Quantity").

use thiserror::Error;

/// The text is not the quantity that is meant.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum QuantityError {
    /// It is none, or it is too large or negative.
    #[error("'{0}' is no quantity of Kubernetes from 0 to 2^63 - 1")]
    Form(String),
    /// A unit is missing, most likely.
    #[error("'{0}' is less than 1 MiB, as a number without a unit is bytes: write for example 4Gi")]
    Bytes(String),
}

/// Factor of a suffix, as a power of ten or of two.
enum Factor {
    Ten(i32),
    Two(u32),
}

/// Parses a quantity such as `4Gi`, `4200000001`, `1500m` or `2e3`, and rounds it up to a whole number.
pub fn parse(text: &str) -> Result<u64, QuantityError> {
    parse_times_ten_to(0, text)
}

/// Parses an amount of memory (bytes). Less than a MiB, which Kubernetes would round up to the least share, is refused.
pub fn parse_memory(text: &str) -> Result<u64, QuantityError> {
    parse(text).and_then(|bytes| {
        (bytes >= 1 << 20).then_some(bytes).ok_or_else(|| QuantityError::Bytes(text.to_owned()))
    })
}

/// Tenths of a quantity, rounded up to a whole number: percents in thousandths.
pub fn parse_tenths(text: &str) -> Result<u64, QuantityError> {
    parse_times_ten_to(1, text)
}

/// Whether a quantity has a suffix of a power of two, such as `Gi`: only sizes have.
pub fn is_binary(text: &str) -> bool {
    text.ends_with('i')
}

fn parse_times_ten_to(power: i32, text: &str) -> Result<u64, QuantityError> {
    value(power, text)
        .filter(|value| *value <= i64::MAX.unsigned_abs().into())
        .and_then(|value| u64::try_from(value).ok())
        .ok_or_else(|| QuantityError::Form(text.to_owned()))
}

/// The value times ten to the power of `power`.
fn value(power: i32, text: &str) -> Option<u128> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    let has_digits =
        !digits.is_empty() && digits.len() <= 30 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let digits: u128 = has_digits.then(|| digits.parse().ok())??;
    let places = i32::try_from(fraction.len()).ok()?;
    match factor(suffix)? {
        Factor::Ten(exponent) => shifted(digits, exponent.saturating_add(power).saturating_sub(places)),
        Factor::Two(bits) => shifted(digits.checked_mul(1 << bits)?, power - places),
    }
}

fn factor(suffix: &str) -> Option<Factor> {
    Some(match suffix {
        "" => Factor::Ten(0),
        "n" => Factor::Ten(-9),
        "u" => Factor::Ten(-6),
        "m" => Factor::Ten(-3),
        "k" => Factor::Ten(3),
        "M" => Factor::Ten(6),
        "G" => Factor::Ten(9),
        "T" => Factor::Ten(12),
        "P" => Factor::Ten(15),
        "E" => Factor::Ten(18),
        "Ki" => Factor::Two(10),
        "Mi" => Factor::Two(20),
        "Gi" => Factor::Two(30),
        "Ti" => Factor::Two(40),
        "Pi" => Factor::Two(50),
        "Ei" => Factor::Two(60),
        exponent => {
            let exponent: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            Factor::Ten(exponent)
        }
    })
}

/// `digits` times ten to the power of `exponent`, rounded up.
fn shifted(digits: u128, exponent: i32) -> Option<u128> {
    let power = 10_u128.checked_pow(exponent.unsigned_abs().min(60));
    match (exponent >= 0, power) {
        (true, Some(power)) => digits.checked_mul(power),
        (true, None) => (digits == 0).then_some(0),
        (false, Some(power)) => Some(digits.div_ceil(power)),
        (false, None) => Some(u128::from(digits > 0)),
    }
}

/// Formats a number of bytes as a quantity, such as `4Gi`.
pub fn bytes(bytes: u64) -> String {
    let units = [(40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")];
    let exact = units.iter().find(|(bits, _)| bytes > 0 && bytes.trailing_zeros() >= *bits);
    match exact {
        Some((bits, unit)) => format!("{}{unit}", bytes >> bits),
        None => bytes.to_string(),
    }
}

/// Formats thousandths as percent, such as `12.5`.
pub fn percent(permille: u32) -> String {
    match permille % 10 {
        0 => (permille / 10).to_string(),
        rest => format!("{}.{rest}", permille / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_means_them() {
        for (text, value) in [
            ("4Gi", 4 << 30),
            ("4006Mi", 4006 << 20),
            ("4200000001", 4_200_000_001),
            ("30", 30),
            ("0", 0),
            ("1.5Gi", 3 << 29),
            ("1500m", 2),
            ("1n", 1),
            ("2e3", 2000),
            ("2E3", 2000),
            ("1E", 1_000_000_000_000_000_000),
            ("+3k", 3000),
            ("0.5", 1),
            (".5Ki", 512),
            ("1e-40", 1),
        ] {
            assert_eq!(parse(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn memory_without_a_unit_is_refused() {
        assert_eq!(parse_memory("4Gi"), Ok(4 << 30));
        assert_eq!(parse_memory("4294967296"), Ok(4 << 30));
        for text in ["16", "16k", "0"] {
            assert!(parse_memory(text).unwrap_err().to_string().contains("write for example 4Gi"), "{text}");
        }
    }

    #[test]
    fn tenths_are_rounded_up() {
        let tenths = ["12.5", "12500m", "30", "0", "12.55", "1k"].map(|text| parse_tenths(text).unwrap());
        assert_eq!(tenths, [125, 125, 300, 0, 126, 10_000]);
        assert!(is_binary("4Gi") && !is_binary("4G") && !is_binary("16"));
    }

    #[test]
    fn written_quantities_are_read_as_the_same() {
        for (number, text) in [
            (0, "0"),
            (4 << 30, "4Gi"),
            (3 << 29, "1536Mi"),
            (1 << 50, "1024Ti"),
            (1 << 10, "1Ki"),
            (4_200_000_001, "4200000001"),
        ] {
            assert_eq!(bytes(number), text);
            assert_eq!(parse(text), Ok(number));
        }
        assert_eq!([percent(300), percent(125), percent(5)], ["30", "12.5", "0.5"]);
    }

    #[test]
    fn anything_else_is_refused_with_its_text() {
        for text in ["", "-1", "4GiB", "Gi", "1e", "1.2.3", "1e99", "9Ei", "0x10", "1 Gi", "4gi"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(&format!("'{text}'")), "{error}");
        }
    }
}
