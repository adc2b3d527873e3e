//! Values of the configuration that check themselves, so that the parser can say in which line a bad one stands.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use vcuda_manager_api::quantity::MemorySize;

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Parses text, and names it if that fails.
fn parsed<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).map_err(|problem| D::Error::custom(format!("'{text}': {problem}")))
}

/// Bytes; zero is allowed here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size(pub(super) u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, |text| match text {
            "0" => Ok(Self(0)),
            text => MemorySize::from_str(text)
                .map(|size| Self(size.0))
                .map_err(|error| error.to_string()),
        })
    }
}

/// A factor in thousandths.
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
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "1000 to 10000"
        )]
        let permille = (factor * 1000.0).round() as u32;
        Ok(Self(permille))
    }
}

/// Containers on one GPU.
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

/// An address and a port, or `off`.
#[derive(Debug, Clone, Copy)]
pub struct Listen(pub(super) Option<SocketAddr>);

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(Self(None)),
            text => text.parse().map(|address| Self(Some(address))).map_err(|_| {
                "neither an address with port, such as 127.0.0.1:9436 or [::1]:9436, nor off".to_owned()
            }),
        }
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, Self::from_str)
    }
}

/// Permissions in octal.
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

/// A group by name or number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group(pub(super) u32);

impl<'de> Deserialize<'de> for Group {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, |text| {
            if let Ok(number) = text.parse() {
                return Ok(Self(number));
            }
            match nix::unistd::Group::from_name(text) {
                Ok(Some(group)) => Ok(Self(group.gid.as_raw())),
                _ => Err("no such group; create it, or give its number".to_owned()),
            }
        })
    }
}

/// A time between looks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interval(pub(super) Duration);

impl<'de> Deserialize<'de> for Interval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, |text| {
            let wrong = || "outside 100ms to 60s; write for example 1s".to_owned();
            let (number, unit_ms) = match text.strip_suffix("ms") {
                Some(number) => (number, 1),
                None => (text.strip_suffix('s').ok_or_else(wrong)?, 1000),
            };
            let ms = number
                .parse::<u64>()
                .map_err(|_| wrong())?
                .saturating_mul(unit_ms);
            if !(100..=60_000).contains(&ms) {
                return Err(wrong());
            }
            Ok(Self(Duration::from_millis(ms)))
        })
    }
}

/// What is logged.
#[derive(Debug, Clone)]
pub(super) struct Filter(pub(super) String);

impl<'de> Deserialize<'de> for Filter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, |text| {
            tracing_subscriber::EnvFilter::try_new(text)
                .map(|_| Self(text.to_owned()))
                .map_err(|error| format!("{error}; write for example info,vcuda_manager=debug"))
        })
    }
}
