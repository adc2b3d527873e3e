//! Values of the plugin's configuration that the other daemons do not have.

use std::str::FromStr;

use serde::{Deserialize, Deserializer};
use vcuda_daemon::value::parsed;
use vcuda_quota::MemorySize;

use crate::register::RegistrationMethod;

/// Size of a memory chunk (bytes).
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

/// Name of an extended resource: a domain that is not Kubernetes' own, a slash, a name.
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

impl<'de> Deserialize<'de> for RegistrationMethod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, |text| match text {
            "auto" => Ok(Self::Auto),
            "watched" => Ok(Self::Watched),
            "classic" => Ok(Self::Classic),
            _ => Err("write auto, watched or classic".to_owned()),
        })
    }
}
