//! Values of the configuration that check themselves, so that the parser can say in which line a bad one stands.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use vcuda_manager_api::quantity::MemorySize;

use crate::register::Ways;

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

/// Size of a chunk (bytes).
#[derive(Debug, Clone, Copy)]
pub struct Chunk(pub(super) u64);

impl FromStr for Chunk {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const MIB: u64 = 1 << 20;
        let bytes = MemorySize::from_str(text).map_err(|error| error.to_string())?.0;
        if !(16 * MIB..=(64 << 10) * MIB).contains(&bytes) {
            return Err("outside 16 MiB to 64 GiB; write for example 256Mi".to_owned());
        }
        if bytes % MIB != 0 {
            return Err("not whole MiB; write for example 256Mi".to_owned());
        }
        Ok(Self(bytes))
    }
}

impl<'de> Deserialize<'de> for Chunk {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, Self::from_str)
    }
}

/// A resource as Kubernetes writes it: a domain that is not Kubernetes' own, a slash, a name.
#[derive(Debug, Clone)]
pub(super) struct ResourceName(pub(super) String);

impl<'de> Deserialize<'de> for ResourceName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, |text| {
            let wrong = || Err("not a resource's name; write for example vcuda.io/gpu".to_owned());
            let Some((domain, name)) = text.split_once('/') else {
                return wrong();
            };
            let is_word = |word: &str, most: usize, marks: &str| {
                let is_edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
                (1..=most).contains(&word.len())
                    && is_edge(word.bytes().next())
                    && is_edge(word.bytes().next_back())
                    && word
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || marks.contains(char::from(byte)))
            };
            let is_lower = !domain.bytes().any(|byte| byte.is_ascii_uppercase());
            if !is_word(domain, 253, "-.") || !is_lower || !is_word(name, 63, "-._") {
                return wrong();
            }
            if domain == "kubernetes.io" || domain.ends_with(".kubernetes.io") {
                return Err("that domain is Kubernetes' own; write for example vcuda.io/gpu".to_owned());
            }
            Ok(Self(text.to_owned()))
        })
    }
}

impl<'de> Deserialize<'de> for Ways {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, |text| match text {
            "auto" => Ok(Self::Both),
            "watched" => Ok(Self::Watched),
            "classic" => Ok(Self::Classic),
            _ => Err("write auto, watched or classic".to_owned()),
        })
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
                "neither an address with port, such as 0.0.0.0:9437 or [::]:9437, nor off".to_owned()
            }),
        }
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, Self::from_str)
    }
}

/// A time between looks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interval(pub(super) Duration);

impl<'de> Deserialize<'de> for Interval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, |text| {
            let wrong = || "outside 200ms to 3600s; write for example 30s".to_owned();
            let (number, unit_ms) = match text.strip_suffix("ms") {
                Some(number) => (number, 1),
                None => (text.strip_suffix('s').ok_or_else(wrong)?, 1000),
            };
            let ms = number
                .parse::<u64>()
                .map_err(|_| wrong())?
                .saturating_mul(unit_ms);
            if !(200..=3_600_000).contains(&ms) {
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
                .map_err(|error| format!("{error}; write for example info,vcuda_plugin=debug"))
        })
    }
}
