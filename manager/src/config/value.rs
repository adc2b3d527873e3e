//! Types of values that only the manager's configuration has.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use vcuda_daemon::value::parsed;
use vcuda_quota::MemorySize;

/// A size in bytes; zero is allowed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size(pub(super) u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, |text| match text {
            "0" => Ok(Self(0)),
            text => MemorySize::with_unit(text).map(|size| Self(size.0)).map_err(|error| error.to_string()),
        })
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Factor(pub(super) u32);

impl<'de> Deserialize<'de> for Factor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let factor = f64::deserialize(deserializer)?;
        if !(1.0..=10.0).contains(&factor) {
            return Err(D::Error::custom(format!(
                "{factor}: outside 1 to 10; 1 promises what there is, 1.5 half as much again"
            )));
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1000 to 10000")]
        let permille = (factor * 1000.0).round() as u32;
        Ok(Self(permille))
    }
}

/// A time of 100 ms to 24 h.
#[derive(Debug, Clone, Copy)]
pub(super) struct Residence(pub(super) Duration);

impl<'de> Deserialize<'de> for Residence {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, |text| {
            let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
            let (number, unit) = text.split_at(digits.len());
            let unit_ms = match unit {
                "ms" => Some(1),
                "s" => Some(1000),
                "m" => Some(60_000),
                "h" => Some(3_600_000),
                _ => None,
            };
            let time_ms = number
                .parse()
                .ok()
                .zip(unit_ms)
                .and_then(|(number, unit): (u64, u64)| number.checked_mul(unit));
            time_ms
                .filter(|time_ms| (100..=86_400_000).contains(time_ms))
                .map(|time_ms| Self(Duration::from_millis(time_ms)))
                .ok_or_else(|| "outside 100ms to 24h; write for example 30s or 5m".to_owned())
        })
    }
}

/// Maximum number of tenants on one GPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sharers(pub(super) u32);

impl<'de> Deserialize<'de> for Sharers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            sharers @ 1..=512 => Ok(Self(sharers)),
            sharers => Err(D::Error::custom(format!("{sharers}: outside 1 to 512"))),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Mode(pub(super) u32);

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, |text| match u32::from_str_radix(text, 8) {
            Ok(mode) if mode > 0o777 => Err("not permissions; write for example 0660".to_owned()),
            Ok(mode) if mode & 0o002 != 0 => {
                Err("everybody could change every quota; write for example 0660 and a group".to_owned())
            }
            Ok(mode) => Ok(Self(mode)),
            Err(_) => Err("not permissions in octal; write for example 0660".to_owned()),
        })
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Group(pub(super) u32);

impl<'de> Deserialize<'de> for Group {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, |text| {
            let found = group(text).map(Self);
            found.ok_or_else(|| "no such group; create it, or give its number".to_owned())
        })
    }
}

pub(super) fn group(text: &str) -> Option<u32> {
    let named = || nix::unistd::Group::from_name(text).ok().flatten();
    text.parse().ok().or_else(|| Some(named()?.gid.as_raw()))
}
