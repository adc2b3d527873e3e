//! Memory sizes and shares of GPU time as people type and read them.

use core::fmt;
use core::str::FromStr;

/// An amount of GPU memory in bytes, written as in Kubernetes (`4Gi`, `4G`), with the unit spelled out (`4GiB`), or in plain
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemorySize(pub u64);

/// The reason why a typed value was rejected. The text says what to write instead; the caller adds the value itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// The value does not begin with a decimal number.
    NotANumber {
        /// A valid value.
        example: &'static str,
    },
    /// A number below zero.
    Negative {
        /// A valid value.
        example: &'static str,
    },
    /// The unit is not known.
    UnknownUnit {
        /// Text behind the number.
        unit: String,
    },
    /// A number without a unit, where it would be bytes.
    NoUnit {
        /// The number.
        number: String,
    },
    /// Zero bytes.
    NoMemory,
    /// A fraction that is not a whole number of bytes.
    Fraction,
    /// More bytes than 64 bits hold.
    TooLarge,
    /// A share of zero.
    NoShare,
    /// A percentage outside 0.1 to 100.
    PercentRange,
    /// More digits than a thousandth of the GPU can express.
    PercentPrecision,
    /// Not the name of a policy.
    Policy,
    /// Not the name of a priority.
    Priority,
    /// Neither true nor false.
    Truth,
    /// Not a whole number, or outside [`crate::WEIGHTS`].
    Weight,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotANumber { example } => return write!(f, "not a number; write for example {example}"),
            Self::Negative { example } => return write!(f, "less than nothing; write for example {example}"),
            Self::UnknownUnit { unit } => {
                return write!(
                    f,
                    "unknown unit '{unit}'; use Ki, Mi, Gi, Ti (powers of 1024) or k, M, G, T (powers of 1000), for \
                     example 4Gi"
                );
            }
            Self::NoUnit { number } => {
                // No GPU has 1024 GiB: such a number was meant in MiB, as in nvidia-smi. Nor has one 16 TiB: bytes.
                return match number.parse::<f64>() {
                    Ok(large) if large >= 16_777_216.0 => {
                        write!(f, "a number without a unit; write {number}B if it is bytes, or for example 4GiB")
                    }
                    found => {
                        let unit = if found.is_ok_and(|number| number < 1024.0) { "GiB" } else { "MiB" };
                        write!(f, "a number without a unit; write for example {number}{unit}, or {number}B for bytes")
                    }
                };
            }
            Self::NoMemory => "a tenant without memory cannot use the GPU; write for example 4Gi",
            Self::Fraction => "not a whole number of bytes; write for example 1536Mi",
            Self::TooLarge => "more than any GPU has; write for example 4Gi",
            Self::NoShare => {
                "nothing could run; for a tenant without a share of its own leave --cores out and write --policy \
                 best-effort"
            }
            Self::PercentRange => "outside 0.1 to 100; write for example 30 for 30 % of the GPU's time",
            Self::PercentPrecision => "finer than a tenth of a percent; write for example 12.5",
            Self::Policy => "write fixed, burst or best-effort",
            Self::Priority => "write low, normal or high",
            Self::Truth => "write true or false",
            Self::Weight => "write a whole number of 1 to 10000",
        })
    }
}

impl std::error::Error for ParseError {}

impl MemorySize {
    /// Reads an amount with its unit: without one, `4` would be four bytes.
    pub fn with_unit(text: &str) -> Result<Self, ParseError> {
        let size = text.parse()?;
        let number = text.trim();
        if number.ends_with(|c: char| c.is_ascii_digit()) {
            return Err(ParseError::NoUnit { number: number.to_owned() });
        }
        Ok(size)
    }
}

impl FromStr for MemorySize {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let number = Decimal::parse(number).ok_or_else(|| no_number(text, "4Gi"))?;
        let scale = unit_bytes(unit.trim_start())?;
        let bytes = number.times(scale)?;
        if bytes == 0 { Err(ParseError::NoMemory) } else { Ok(MemorySize(bytes)) }
    }
}

/// Bytes per unit. Case matters as in Kubernetes (`M` is mega, `m` would be milli), but `K` is accepted for `k`.
fn unit_bytes(unit: &str) -> Result<u64, ParseError> {
    Ok(match unit {
        "" | "B" => 1,
        "k" | "K" | "kB" | "KB" => 1_000,
        "M" | "MB" => 1_000_000,
        "G" | "GB" => 1_000_000_000,
        "T" | "TB" => 1_000_000_000_000,
        "Ki" | "KiB" => 1 << 10,
        "Mi" | "MiB" => 1 << 20,
        "Gi" | "GiB" => 1 << 30,
        "Ti" | "TiB" => 1 << 40,
        _ => {
            return Err(ParseError::UnknownUnit { unit: unit.to_owned() });
        }
    })
}

/// Why `text` does not begin with a number; `example` is a valid value.
fn no_number(text: &str, example: &'static str) -> ParseError {
    match text.strip_prefix('-') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_digit()) => ParseError::Negative { example },
        _ => ParseError::NotANumber { example },
    }
}

/// A decimal number as typed, kept exact: `digits / 10^places`.
struct Decimal {
    digits: u64,
    places: u32,
}

impl Decimal {
    /// Reads a number with at most 18 decimal places, so that `10^places` fits; `None` if it is not one.
    fn parse(text: &str) -> Option<Decimal> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        if whole.is_empty() || (fraction.is_empty() && text.contains('.')) {
            return None;
        }
        let fraction = fraction.trim_end_matches('0');
        let places = u32::try_from(fraction.len()).ok().filter(|places| *places <= 18)?;
        // 20 digits hold every u64; the rest is out of range and reported as such by `times`.
        let digits = format!("{whole}{fraction}").parse::<u128>().ok()?;
        Some(Decimal { digits: u64::try_from(digits).unwrap_or(u64::MAX), places })
    }

    fn times(&self, scale: u64) -> Result<u64, ParseError> {
        if self.digits == u64::MAX {
            return Err(ParseError::TooLarge);
        }
        let product = u128::from(self.digits) * u128::from(scale);
        let divisor = 10u128.pow(self.places);
        if !product.is_multiple_of(divisor) {
            return Err(ParseError::Fraction);
        }
        u64::try_from(product / divisor).map_err(|_| ParseError::TooLarge)
    }
}

impl fmt::Display for MemorySize {
    /// The largest unit that keeps the figure short: `4 GiB`, `1.5 GiB`, `480 MiB`, `17 B`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] =
            [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let Some((scale, unit)) = UNITS.into_iter().find(|(scale, _)| self.0 >= *scale) else {
            return write!(f, "{} B", self.0);
        };
        // Rounded down: a figure shown as free must not exceed what is free.
        let hundredths = u128::from(self.0) * 100 / u128::from(scale);
        match (hundredths / 100, hundredths % 100) {
            (whole, 0) => write!(f, "{whole} {unit}"),
            (whole, part) if part % 10 == 0 => write!(f, "{whole}.{} {unit}", part / 10),
            (whole, part) => write!(f, "{whole}.{part:02} {unit}"),
        }
    }
}

/// A share of a GPU's time in thousandths, typed as a percentage (`30`, `30%`, `12.5`). 1000 is the whole GPU: all that others
/// were not promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreShare(pub u32);

impl CoreShare {
    /// The whole GPU.
    pub const WHOLE: CoreShare = CoreShare(1000);

    /// The share in percent, as an option takes it: `30`, `12.5`.
    pub fn percent(self) -> String {
        match (self.0 / 10, self.0 % 10) {
            (whole, 0) => whole.to_string(),
            (whole, tenth) => format!("{whole}.{tenth}"),
        }
    }
}

impl FromStr for CoreShare {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let number = text.strip_suffix('%').unwrap_or(text).trim_end();
        let number = Decimal::parse(number).ok_or_else(|| no_number(text, "30"))?;
        let permille = number.times(10).map_err(|error| match error {
            ParseError::Fraction => ParseError::PercentPrecision,
            _ => ParseError::PercentRange,
        })?;
        match u32::try_from(permille) {
            Ok(0) => Err(ParseError::NoShare),
            Ok(permille @ 1..=1000) => Ok(CoreShare(permille)),
            _ => Err(ParseError::PercentRange),
        }
    }
}

impl fmt::Display for CoreShare {
    /// `30 %`, `12.5 %`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.percent())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(text: &str) -> Result<u64, ParseError> {
        text.parse::<MemorySize>().map(|size| size.0)
    }

    #[test]
    fn sizes_as_in_kubernetes() {
        for (text, bytes) in [
            ("4Gi", 4 << 30),
            ("4GiB", 4 << 30),
            ("4096MiB", 4 << 30),
            ("4096Mi", 4 << 30),
            ("4294967296", 4 << 30),
            ("4G", 4_000_000_000),
            ("4GB", 4_000_000_000),
            ("1.5Gi", 3 << 29),
            ("0.5GiB", 1 << 29),
            ("1.50Gi", 3 << 29),
            ("100k", 100_000),
            ("128Ki", 128 << 10),
            ("1Ti", 1 << 40),
            (" 2 GiB ", 2 << 30),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn sizes_that_are_refused() {
        for text in ["", "Gi", "-4Gi", "four", ".", ".5Gi", "4.Gi", "4,5Gi"] {
            let expected = match text {
                "4,5Gi" => ParseError::UnknownUnit { unit: ",5Gi".to_owned() },
                "-4Gi" => ParseError::Negative { example: "4Gi" },
                _ => ParseError::NotANumber { example: "4Gi" },
            };
            assert_eq!(size(text), Err(expected), "{text}");
        }
        assert_eq!(size("4Gib"), Err(ParseError::UnknownUnit { unit: "Gib".to_owned() }));
        assert_eq!(size("4m"), Err(ParseError::UnknownUnit { unit: "m".to_owned() }));
        assert_eq!(size("0"), Err(ParseError::NoMemory));
        assert_eq!(size("0.0Gi"), Err(ParseError::NoMemory));
        assert_eq!(size("1.3"), Err(ParseError::Fraction));
        assert_eq!(size("99999999999999999999"), Err(ParseError::TooLarge));
        assert_eq!(size("99999999999Gi"), Err(ParseError::TooLarge));
    }

    #[test]
    fn a_number_without_a_unit_gets_the_likely_one() {
        let refused = |text: &str| MemorySize::with_unit(text).unwrap_err().to_string();
        for (number, example) in
            [("4", "4GiB"), ("1023", "1023GiB"), ("1024", "1024MiB"), ("4096", "4096MiB")]
        {
            assert!(refused(number).contains(&format!("for example {example},")), "{number}");
        }
    }

    #[test]
    fn sizes_are_shown_short_and_never_rounded_up() {
        for (bytes, text) in [
            (0, "0 B"),
            (17, "17 B"),
            (480 << 20, "480 MiB"),
            (4 << 30, "4 GiB"),
            (3 << 29, "1.5 GiB"),
            ((1 << 30) + (1 << 20), "1 GiB"),
            ((1 << 30) + (30 << 20), "1.02 GiB"),
            ((1 << 40) - 1, "1023.99 GiB"),
        ] {
            assert_eq!(MemorySize(bytes).to_string(), text);
        }
    }

    #[test]
    fn shares() {
        for (text, permille) in
            [("30", 300), ("30%", 300), ("12.5", 125), ("100", 1000), ("0.1", 1), ("30 %", 300)]
        {
            assert_eq!(text.parse(), Ok(CoreShare(permille)), "{text}");
        }
        for text in ["0", "0.0", "0 %"] {
            assert_eq!(text.parse::<CoreShare>(), Err(ParseError::NoShare), "{text}");
        }
        for text in ["101", "100.1", "1000"] {
            assert_eq!(text.parse::<CoreShare>(), Err(ParseError::PercentRange), "{text}");
        }
        assert_eq!("0.05".parse::<CoreShare>(), Err(ParseError::PercentPrecision));
        assert_eq!("-5".parse::<CoreShare>(), Err(ParseError::Negative { example: "30" }));
        for text in ["", "half", "-", "%"] {
            assert_eq!(text.parse::<CoreShare>(), Err(ParseError::NotANumber { example: "30" }), "{text}");
        }
        assert_eq!(CoreShare(125).to_string(), "12.5 %");
        assert_eq!(CoreShare(300).percent(), "30");
        assert_eq!(CoreShare(125).percent().parse(), Ok(CoreShare(125)));
        assert_eq!(CoreShare::WHOLE.to_string(), "100 %");
    }
}
