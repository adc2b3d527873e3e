//! File of `vcuda apply`: parsed strictly, every value checked before anything is done.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_saphyr::{Error, MessageFormatter as _, Spanned, UserMessageFormatter};
use vcuda_manager_api::{KEY_MAX, is_key};
use vcuda_quota::{Contradiction, CoreShare, MemorySize, Policy, Priority, Quota, QuotaChange, parse_weight};

use crate::args::{memory_quota, memory_wait_ms};
use crate::failure::Failure;
use crate::grant::uid;

/// Most GPUs of a grant.
const GPUS_MAX: u32 = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Line of the file, from 1.
    pub(super) line: u64,
    pub(super) name: String,
    pub(super) quota: Quota,
    pub(super) gpus: WantedGpus,
    pub(super) user: Option<u32>,
    pub(super) is_suspendable: bool,
    /// Longest wait for GPU memory (milliseconds); `None`: the usual one.
    pub(super) memory_wait_ms: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WantedGpus {
    /// A number of GPUs; `None`: one for a new grant, and any for one that is there.
    Number(Option<u32>),
    /// These, by UUID.
    Named(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    grants: Vec<Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Entry {
    #[serde(deserialize_with = "name")]
    name: String,
    #[serde(default, deserialize_with = "memory")]
    memory: Option<MemorySize>,
    #[serde(default, deserialize_with = "cores")]
    cores: Option<CoreShare>,
    #[serde(default, deserialize_with = "cores_max")]
    cores_max: Option<CoreShare>,
    #[serde(default, deserialize_with = "policy")]
    policy: Option<Policy>,
    #[serde(default, deserialize_with = "weight")]
    weight: Option<u32>,
    #[serde(default, deserialize_with = "priority")]
    priority: Option<Priority>,
    #[serde(default, deserialize_with = "gpus")]
    gpus: Option<u32>,
    #[serde(default, deserialize_with = "gpu")]
    gpu: Vec<String>,
    #[serde(default, deserialize_with = "user")]
    user: Option<u32>,
    #[serde(default, deserialize_with = "suspendable")]
    suspendable: bool,
    #[serde(default, deserialize_with = "wait_for_memory")]
    wait_for_memory: Option<u32>,
}

/// A field's text, parsed; the error names field and value.
fn field<'de, D: Deserializer<'de>, T, E: Display>(
    deserializer: D,
    name: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).map_err(|error| D::Error::custom(format!("{name} '{text}': {error}")))
}

fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    field(deserializer, "name", |text| match is_key(text) {
        true => Ok(text.to_owned()),
        false => {
            Err(format!("give 1 to {KEY_MAX} letters, digits, '.', '_' or '-', and the first is not '.'"))
        }
    })
}

fn memory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<MemorySize>, D::Error> {
    field(deserializer, "memory", memory_quota).map(Some)
}

fn cores<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<CoreShare>, D::Error> {
    field(deserializer, "cores", CoreShare::from_str).map(Some)
}

fn cores_max<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<CoreShare>, D::Error> {
    field(deserializer, "cores-max", CoreShare::from_str).map(Some)
}

fn policy<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Policy>, D::Error> {
    field(deserializer, "policy", Policy::from_str).map(Some)
}

fn weight<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    field(deserializer, "weight", parse_weight).map(Some)
}

fn priority<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Priority>, D::Error> {
    field(deserializer, "priority", Priority::from_str).map(Some)
}

fn gpus<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    field(deserializer, "gpus", |text| match text.parse() {
        Ok(number) if (1..=GPUS_MAX).contains(&number) => Ok(Some(number)),
        _ => Err(format!("write a number of 1 to {GPUS_MAX}")),
    })
}

fn gpu<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let uuids = Vec::<String>::deserialize(deserializer)?;
    // An index may be another GPU's tomorrow.
    match uuids.iter().find(|uuid| !uuid.starts_with("GPU-")) {
        Some(wrong) => {
            Err(D::Error::custom(format!("gpu '{wrong}': write a UUID as `vcuda smi -L` shows it")))
        }
        None => Ok(uuids),
    }
}

fn user<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let name = String::deserialize(deserializer)?;
    uid("user", &name).map(Some).map_err(D::Error::custom)
}

fn suspendable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    field(deserializer, "suspendable", |text| text.parse().map_err(|_| "write true or false"))
}

fn wait_for_memory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    field(deserializer, "wait-for-memory", memory_wait_ms).map(Some)
}

/// The grants of a file's text, in its order.
pub(super) fn parse(path: &Path, text: &str) -> Result<Vec<Wanted>, Failure> {
    let options = serde_saphyr::options! { with_snippet: false };
    let file: File = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line());
        wrong(path, line, &words(&error))
    })?;
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    let mut grants = Vec::new();
    for entry in file.grants {
        let line = entry.referenced.line();
        let wanted = entry.value.wanted(line).map_err(|words| wrong(path, line, &words))?;
        if let Some(first) = lines.insert(wanted.name.clone(), line) {
            let words =
                format!("name '{}': line {first} has it already; give each grant its own", wanted.name);
            return Err(wrong(path, line, &words));
        }
        grants.push(wanted);
    }
    Ok(grants)
}

/// A failure for a line of the file.
pub(super) fn wrong(path: &Path, line: u64, words: &str) -> Failure {
    Failure::Usage(format!("{}:{line}: {words}", path.display()))
}

/// The parser's error in words of the file.
fn words(error: &Error) -> String {
    match error.without_snippet() {
        Error::SerdeUnknownField { field, expected, .. } => {
            format!("unknown field '{field}'; there are {}", expected.join(", "))
        }
        Error::SerdeMissingField { field, .. } => format!("field '{field}' is missing; add it"),
        Error::DuplicateMappingKey { key, .. } => {
            format!("field '{}' is there twice; remove one", key.as_deref().unwrap_or("?"))
        }
        other => {
            let text = UserMessageFormatter.format_message(other);
            text.lines().collect::<Vec<_>>().join("; ")
        }
    }
}

impl Entry {
    fn wanted(self, line: u64) -> Result<Wanted, String> {
        let change = QuotaChange {
            memory_bytes: self.memory.map(|size| size.0),
            cores_permille: self.cores.map(|share| share.0),
            cores_max_permille: self.cores_max.map(|share| share.0),
            policy: self.policy,
            priority: self.priority,
            weight: self.weight,
            ..QuotaChange::default()
        };
        let quota = Quota::UNLIMITED.merge(&change).map_err(contradiction)?;
        let gpus = match (self.gpus, self.gpu) {
            (Some(_), named) if !named.is_empty() => {
                return Err(format!("{}: gpu names the GPUs; leave gpus out", self.name));
            }
            (number, named) if named.is_empty() => WantedGpus::Number(number),
            (_, named) => WantedGpus::Named(named),
        };
        Ok(Wanted {
            line,
            name: self.name,
            quota,
            gpus,
            user: self.user,
            is_suspendable: self.suspendable,
            memory_wait_ms: self.wait_for_memory,
        })
    }
}

fn contradiction(contradiction: Contradiction) -> String {
    match contradiction {
        Contradiction::MaximumWithoutBurst { cores_max_permille, policy } => format!(
            "cores-max '{}': a {policy} grant has at most its cores; add policy: burst",
            CoreShare(cores_max_permille).percent()
        ),
        Contradiction::MaximumBelowShare { cores_max_permille, cores_permille } => format!(
            "cores-max '{}': less than the cores {} that are guaranteed; give it at least these",
            CoreShare(cores_max_permille).percent(),
            CoreShare(cores_permille).percent()
        ),
    }
}

#[cfg(test)]
mod tests;
