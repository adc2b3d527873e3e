//! Competition of tenants for GPU time: policy, priority and weight (docs/policies.md).

use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;

use crate::ParseError;

/// The weights that a tenant may have.
pub const WEIGHTS: RangeInclusive<u32> = 1..=10_000;

/// Way in which a tenant's share of GPU time limits it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Policy {
    /// The share is promised, and is the most that the tenant gets.
    #[default]
    Fixed,
    /// The share is promised. The tenant also gets what others leave idle, up to a maximum.
    Burst,
    /// Nothing is promised. The tenant gets what others leave idle, up to its share.
    BestEffort,
}

impl Policy {
    /// All policies, in the order of their numbers in `limits`.
    pub const ALL: [Self; 3] = [Self::Fixed, Self::Burst, Self::BestEffort];

    /// The name on command lines, in annotations and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Burst => "burst",
            Self::BestEffort => "best-effort",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Policy {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let named = Self::ALL.into_iter().find(|policy| policy.name() == text);
        named.ok_or(ParseError::Policy)
    }
}

/// Rank of a tenant if there is not enough GPU time for all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Priority {
    /// After tenants of normal and high priority.
    Low,
    /// Between low and high.
    #[default]
    Normal,
    /// Before tenants of normal and low priority.
    High,
}

impl Priority {
    /// All priorities, the lowest first.
    pub const ALL: [Self; 3] = [Self::Low, Self::Normal, Self::High];

    /// The name on command lines, in annotations and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Priority {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let named = Self::ALL.into_iter().find(|priority| priority.name() == text);
        named.ok_or(ParseError::Priority)
    }
}

/// Reads a weight, as a person or a pod writes it.
pub fn parse_weight(text: &str) -> Result<u32, ParseError> {
    let weight = text.parse().ok();
    weight.filter(|weight| WEIGHTS.contains(weight)).ok_or(ParseError::Weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_read_as_it_is_written() {
        for policy in Policy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        for priority in Priority::ALL {
            assert_eq!(priority.to_string().parse(), Ok(priority));
        }
        assert_eq!("Burst".parse::<Policy>(), Err(ParseError::Policy));
        assert_eq!("9".parse::<Priority>(), Err(ParseError::Priority));
    }

    #[test]
    fn a_weight_is_a_whole_number_in_its_bounds() {
        assert_eq!(parse_weight("1"), Ok(1));
        assert_eq!(parse_weight("10000"), Ok(10_000));
        for text in ["0", "10001", "-1", "1.5", ""] {
            assert_eq!(parse_weight(text), Err(ParseError::Weight), "{text}");
        }
    }
}
