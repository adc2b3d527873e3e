//! What a container was given: the words of the ledger, of the API, and of the container's directory.

use std::fmt;

use serde::{Deserialize, Serialize};
use vcuda_region::limits::{self, DeviceConfig, Quota};
use vcuda_region::{GpuUuid, MAX_DEVICES};

/// Name of a grant, and of its container's directory: `<key>-<number>`. No two grants of a node ever have the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GrantId(String);

impl GrantId {
    /// That of the grant with this key and number.
    #[must_use]
    pub fn new(key: &str, number: u64) -> Self {
        Self(format!("{key}-{number}"))
    }

    /// That of the grant whose directory has this name.
    #[must_use]
    pub fn of_directory(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whom a grant is for, as its caller proved it. Shown in events, metrics and tables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Kubernetes namespace.
    pub namespace: String,
    /// Pod.
    pub pod: String,
    /// Container of the pod.
    pub container: String,
    /// The pod's UID.
    pub pod_uid: String,
}

/// How a container competes for GPU time (docs/policies.md).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Its cap, always.
    #[default]
    Fixed,
    /// Its guarantee, and what is idle.
    Burst,
    /// Only what is idle.
    BestEffort,
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fixed => "fixed",
            Self::Burst => "burst",
            Self::BestEffort => "best-effort",
        })
    }
}

/// Who comes first where there is not enough for all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// After the others.
    Low,
    /// Neither.
    #[default]
    Normal,
    /// Before the others.
    High,
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        })
    }
}

/// What a container may use of each of its GPUs. Validated: no value is out of its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amounts {
    /// Memory limit (bytes). None: all of the GPU.
    pub memory_bytes: Option<u64>,
    /// Share of GPU time (thousandths, 1 to 1000): cap, guarantee or most, by the policy.
    pub cores_permille: u32,
    /// The most of it (thousandths): `cores_permille` unless the policy is `burst`.
    pub cores_max_permille: u32,
    /// How it competes.
    pub policy: Policy,
    /// Who comes first.
    pub priority: Priority,
    /// Its part of what nobody was promised (1 to 10000). None: as its `cores_permille`.
    pub weight: Option<u32>,
}

impl Amounts {
    /// What of the GPU's time it holds for admission (thousandths): what it was promised, nothing where it has all that
    /// others were not promised (docs/policies.md).
    #[must_use]
    pub fn promised_permille(&self) -> u32 {
        self.quota().reserved_permille()
    }

    /// As the container's `limits` has it.
    #[must_use]
    pub fn config(&self) -> DeviceConfig {
        self.quota().config()
    }

    fn quota(&self) -> Quota {
        Quota {
            memory_bytes: self.memory_bytes,
            cores_permille: self.cores_permille,
            cores_max_permille: self.cores_max_permille,
            policy: match self.policy {
                Policy::Fixed => limits::Policy::Fixed,
                Policy::Burst => limits::Policy::Burst,
                Policy::BestEffort => limits::Policy::BestEffort,
            },
            weight: self.weight,
            priority: match self.priority {
                Priority::Low => limits::Priority::Low,
                Priority::Normal => limits::Priority::Normal,
                Priority::High => limits::Priority::High,
            },
        }
    }

    /// What the `limits` of a container say.
    #[must_use]
    pub fn of_config(config: &DeviceConfig) -> Self {
        let quota = Quota::of(config);
        Self {
            memory_bytes: quota.memory_bytes,
            cores_permille: quota.cores_permille,
            cores_max_permille: quota.cores_max_permille,
            policy: match quota.policy {
                limits::Policy::Fixed => Policy::Fixed,
                limits::Policy::Burst => Policy::Burst,
                limits::Policy::BestEffort => Policy::BestEffort,
            },
            priority: match quota.priority {
                limits::Priority::Low => Priority::Low,
                limits::Priority::Normal => Priority::Normal,
                limits::Priority::High => Priority::High,
            },
            weight: quota.weight,
        }
    }

    /// Whether every value is in its range.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        // The region's word for "no limit" is no amount.
        self.memory_bytes
            .is_none_or(|bytes| (1..u64::MAX).contains(&bytes))
            && (1..=1000).contains(&self.cores_permille)
            && (self.cores_permille..=1000).contains(&self.cores_max_permille)
            && (self.policy == Policy::Burst || self.cores_max_permille == self.cores_permille)
            && self.weight.is_none_or(|weight| (1..=10_000).contains(&weight))
    }
}

/// One container's part of the node: a line of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// `<key>-<number>`.
    pub id: GrantId,
    /// What the caller calls the container; unique among living grants.
    pub key: String,
    /// Never given twice.
    pub number: u64,
    /// For whom.
    pub holder: Holder,
    /// Of each GPU.
    pub amounts: Amounts,
    /// The GPUs, in the order in which the container sees them.
    #[serde(with = "uuids")]
    pub gpus: Vec<GpuUuid>,
    /// Milliseconds since 1970-01-01 UTC.
    pub created_unix_ms: i64,
    /// Counts its changes, from 1.
    pub generation: u64,
    /// The request that made it.
    pub created_by: String,
    /// The last request that changed it, if any did.
    pub changed_by: Option<String>,
}

impl Grant {
    /// Whether this can be a grant: for one that was read from a file.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let mut gpus = self.gpus.clone();
        gpus.sort_unstable();
        gpus.dedup();
        is_key(&self.key)
            && self.number > 0
            && self.id == GrantId::new(&self.key, self.number)
            && self.amounts.is_sound()
            && gpus.len() == self.gpus.len()
            && (1..=MAX_DEVICES).contains(&gpus.len())
    }
}

/// The longest key (characters).
pub const KEY_MAX: usize = 40;
/// The longest request id (characters).
pub const REQUEST_MAX: usize = 64;

/// Whether this may be a container's key: it begins the name of its directory.
#[must_use]
pub fn is_key(text: &str) -> bool {
    is_name(text, KEY_MAX) && !text.starts_with('.')
}

/// Whether this is 1 to `most` letters, digits, `.`, `_` or `-`.
#[must_use]
pub fn is_name(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// UUIDs as text: what a person who reads the ledger looks for.
mod uuids {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};
    use vcuda_region::GpuUuid;

    pub(super) fn serialize<S: Serializer>(uuids: &[GpuUuid], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(uuids.iter().map(ToString::to_string))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<GpuUuid>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        texts
            .iter()
            .map(|text| text.parse().map_err(D::Error::custom))
            .collect()
    }
}
