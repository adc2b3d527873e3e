//! Values that only the manager's configuration has, as serde's `deserialize_with` reads them.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use vcuda_daemon::value::parsed;
use vcuda_quota::{MemorySize, parse_time};

/// A size in bytes; zero is allowed.
pub(crate) fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    parsed(deserializer, |text| match text {
        "0" => Ok(0),
        text => MemorySize::with_unit(text).map(|size| size.0).map_err(|error| error.to_string()),
    })
}

/// A factor (thousandths).
pub(crate) fn factor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let factor = f64::deserialize(deserializer)?;
    if !(1.0..=10.0).contains(&factor) {
        return Err(D::Error::custom(format!(
            "{factor}: outside 1 to 10; 1 promises what there is, 1.5 half as much again"
        )));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1000 to 10000")]
    let permille = (factor * 1000.0).round() as u32;
    Ok(permille)
}

/// A time of 100 ms to 24 h.
pub(crate) fn residence<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    parsed(deserializer, |text| {
        let time = parse_time(text).filter(|time| (100..=86_400_000).contains(&time.as_millis()));
        time.ok_or_else(|| "outside 100ms to 24h; write for example 30s or 5m".to_owned())
    })
}

/// Maximum number of tenants on one GPU.
pub(crate) fn sharers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        sharers @ 1..=512 => Ok(sharers),
        sharers => Err(D::Error::custom(format!("{sharers}: outside 1 to 512"))),
    }
}

/// File permissions in octal.
pub(crate) fn mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    parsed(deserializer, |text| match u32::from_str_radix(text, 8) {
        Ok(mode) if mode > 0o777 => Err("not permissions; write for example 0660".to_owned()),
        Ok(mode) if mode & 0o002 != 0 => {
            Err("everybody could change every quota; write for example 0660 and a group".to_owned())
        }
        Ok(mode) => Ok(mode),
        Err(_) => Err("not permissions in octal; write for example 0660".to_owned()),
    })
}

/// A group by name or number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group(pub u32);

impl<'de> Deserialize<'de> for Group {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, |text| {
            let found = group(text).map(Self);
            found.ok_or_else(|| "no such group; create it, or give its number".to_owned())
        })
    }
}

/// Number of a group, given by name or number.
pub(crate) fn group(text: &str) -> Option<u32> {
    let named = || nix::unistd::Group::from_name(text).ok().flatten();
    text.parse().ok().or_else(|| Some(named()?.gid.as_raw()))
}
