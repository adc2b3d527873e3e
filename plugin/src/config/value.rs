//! Values of the plugin's configuration that the other daemons do not have.

use std::str::FromStr;

use serde::{Deserialize, Deserializer};
use vcuda_daemon::value::parsed;
use vcuda_quota::pods::{parse_chunk, parse_resource_name};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunk(pub(super) u64);

impl FromStr for Chunk {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_chunk(text).map(Self)
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
        parsed(deserializer, |text| parse_resource_name(text).map(|name| Self(name.to_owned())))
    }
}
