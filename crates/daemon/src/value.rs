//! Configuration values that check themselves, so that the parser can name the line of a bad one.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use vcuda_quota::parse_time;

/// Format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Plain text.
    #[default]
    Text,
    /// JSON, one object a line.
    Json,
}

/// Parses a text value; an error names it.
pub fn parsed<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).map_err(|problem| D::Error::custom(format!("'{text}': {problem}")))
}

/// An address with port, or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen(pub Option<SocketAddr>);

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

/// An interval of 100 ms to 60 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval(pub Duration);

impl FromStr for Interval {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let time = parse_time(text).filter(|time| (100..=60_000).contains(&time.as_millis()));
        time.map(Self).ok_or_else(|| "outside 100ms to 60s; write for example 1s".to_owned())
    }
}

impl<'de> Deserialize<'de> for Interval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, Self::from_str)
    }
}

/// Filter of messages, as in `tracing-subscriber`'s `EnvFilter`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter(String);

impl Filter {
    pub(crate) fn layer(&self) -> EnvFilter {
        // Cannot fail, as it was checked when it was made.
        EnvFilter::try_new(&self.0).unwrap_or_default()
    }
}

impl Default for Filter {
    fn default() -> Self {
        Self("info".to_owned())
    }
}

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = |why: String| format!("{why}; write for example debug, or info,vcuda_manager=debug");
        // Taken for a module, which would log nothing else, not even errors.
        let is_wrong = |part: &&str| !part.contains(['=', '[']) && part.parse::<LevelFilter>().is_err();
        if let Some(word) = text.split(',').map(str::trim).find(is_wrong) {
            return Err(refused(format!("\"{word}\" is no level")));
        }
        EnvFilter::try_new(text).map(|_| Self(text.to_owned())).map_err(|error| refused(error.to_string()))
    }
}

impl<'de> Deserialize<'de> for Filter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, Self::from_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_a_unit_and_bounds() {
        let milliseconds = |text: &str| text.parse::<Interval>().map(|interval| interval.0.as_millis());
        assert_eq!(milliseconds("100ms"), Ok(100));
        assert_eq!(milliseconds("60s"), Ok(60_000));
        for wrong in ["99ms", "61s", "5", "", "s", "-1s", "2m", "18446744073709551615s"] {
            assert!(milliseconds(wrong).unwrap_err().contains("for example"), "{wrong}");
        }
    }

    #[test]
    fn an_address_has_a_port_or_is_off() {
        assert_eq!("off".parse(), Ok(Listen(None)));
        assert_eq!("[::1]:1".parse::<Listen>().unwrap().0.unwrap().port(), 1);
        assert!("localhost:1".parse::<Listen>().unwrap_err().contains("neither"));
    }

    #[test]
    fn a_filter_is_one() {
        assert!("info,vcuda_manager=debug".parse::<Filter>().is_ok());
        assert!("vcuda=loud".parse::<Filter>().unwrap_err().contains("for example"));
    }
}
