//! The manager's record of a tenant's quota, as the ledger and the tenant's directory hold it.

use std::fmt;

use serde::{Deserialize, Serialize};
pub use vcuda_manager_api::{KEY_MAX, REQUEST_MAX, RUN_MAX, is_key, is_name, is_run_name};
use vcuda_quota::Quota;
use vcuda_region::{GpuUuid, MAX_DEVICES};

/// Name of a grant, and of its tenant's directory: `<key>-<number>`, which no two grants of a node ever share; of a transient grant its
/// key, which no two living ones share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GrantId(String);

impl GrantId {
    /// The id of the grant with this key and number.
    pub fn new(key: &str, number: u64) -> Self {
        Self(format!("{key}-{number}"))
    }

    /// The id of a transient grant.
    pub fn of_run(key: &str) -> Self {
        Self(key.to_owned())
    }

    /// The id of the grant whose directory has this name.
    pub fn from_directory(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Pod and container of a grant, as verified by its caller. Shown in events, metrics and tables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Kubernetes namespace.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container within the pod.
    pub container: String,
    /// UID of the pod.
    pub pod_uid: String,
}

/// Amounts that come back when a time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lasting {
    /// Quota on each GPU from then on.
    pub amounts: Quota,
    /// The end of the time (milliseconds since 1970-01-01 UTC).
    pub until_unix_ms: i64,
}

/// A tenant's grant, one entry of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Id, `<key>-<number>`.
    pub id: GrantId,
    /// The caller's name of the tenant; unique among living grants.
    pub key: String,
    /// Number, never reused on this node.
    pub number: u64,
    /// Pod and container that the grant is for.
    pub holder: Holder,
    /// The user whom the grant counts for, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
    /// Quota on each GPU.
    pub amounts: Quota,
    /// The amounts that come back, while `amounts` hold for a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasting: Option<Lasting>,
    /// GPUs in the order in which the tenant sees them.
    #[serde(with = "uuids")]
    pub gpus: Vec<GpuUuid>,
    /// Time of creation (milliseconds since 1970-01-01 UTC).
    pub created_unix_ms: i64,
    /// Number of the grant's current version, from 1.
    pub generation: u64,
    /// Id of the request that created it.
    pub created_by: String,
    /// Id of the last request that changed it, if any.
    pub changed_by: Option<String>,
    /// Whether the tenant may be suspended.
    #[serde(default, rename = "suspendable", skip_serializing_if = "core::ops::Not::not")]
    pub is_suspendable: bool,
    /// Longest wait of an allocation for room (ms); `None`: as long as is usual.
    #[serde(default, rename = "memory_wait_ms", skip_serializing_if = "Option::is_none")]
    pub memory_wait_ms: Option<u32>,
    /// Whether it ends when no process uses it any more, as the grant of a command does.
    #[serde(default, rename = "transient", skip_serializing_if = "core::ops::Not::not")]
    pub is_transient: bool,
}

impl Grant {
    /// A grant of whole GPUs, for tests.
    #[cfg(test)]
    pub(crate) fn example(key: &str, number: u64, gpus: Vec<GpuUuid>) -> Self {
        Self {
            id: GrantId::new(key, number),
            key: key.to_owned(),
            number,
            holder: Holder::default(),
            owner: None,
            amounts: Quota::UNLIMITED,
            lasting: None,
            gpus,
            created_unix_ms: 1,
            generation: 1,
            created_by: format!("r{number}"),
            changed_by: None,
            is_suspendable: false,
            memory_wait_ms: None,
            is_transient: false,
        }
    }

    /// The quota without the end of a time.
    pub fn lasting_amounts(&self) -> Quota {
        self.lasting.map_or(self.amounts, |lasting| lasting.amounts)
    }

    /// A quota with the memory and the promised time for which room is kept: the larger of now and of later.
    pub fn kept(&self) -> Quota {
        let (now, later) = (self.amounts, self.lasting_amounts());
        let both = now.memory_bytes.zip(later.memory_bytes);
        let larger_time = if later.reserved_permille() > now.reserved_permille() { later } else { now };
        Quota { memory_bytes: both.map(|(now, later)| now.max(later)), ..larger_time }
    }

    /// The memory for which room is kept on each of its GPUs (bytes); `u64::MAX` for all.
    pub fn kept_bytes(&self) -> u64 {
        self.kept().memory_bytes.unwrap_or(u64::MAX)
    }

    /// Whether a grant that was read from a file is possible.
    pub fn is_sound(&self) -> bool {
        let mut gpus = self.gpus.clone();
        gpus.sort_unstable();
        gpus.dedup();
        let (is_named, id) = match self.is_transient {
            true => (is_run_name(&self.key), GrantId::of_run(&self.key)),
            false => (is_key(&self.key), GrantId::new(&self.key, self.number)),
        };
        is_named
            && self.number > 0
            && self.id == id
            && self.amounts.is_valid()
            && self.lasting.is_none_or(|lasting| lasting.amounts.is_valid())
            && gpus.len() == self.gpus.len()
            && (1..=MAX_DEVICES).contains(&gpus.len())
    }
}

/// UUIDs as text, for a person who reads the ledger.
pub(crate) mod uuids {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};
    use vcuda_region::GpuUuid;

    pub(crate) fn serialize<'u, S: Serializer>(
        uuids: impl IntoIterator<Item = &'u GpuUuid>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(uuids.into_iter().map(ToString::to_string))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, C: FromIterator<GpuUuid>>(
        deserializer: D,
    ) -> Result<C, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads and rewrites a grant of version 0.1.0.
    #[test]
    fn the_ledger_of_an_earlier_release_is_read_and_written_alike() {
        let text = concat!(
            r#"{"id":"web-7","key":"web","number":7,"holder":{"namespace":"","pod":"","container":"","pod_uid":""},"#,
            r#""amounts":{"memory_bytes":4294967296,"cores_permille":300,"cores_max_permille":500,"policy":"best-effort","#,
            r#""priority":"high","weight":null},"gpus":["GPU-01010101-0101-0101-0101-010101010101"],"#,
            r#""created_unix_ms":1,"generation":1,"created_by":"r","changed_by":null}"#,
        );
        let grant: Grant = serde_json::from_str(text).unwrap();
        assert_eq!((grant.amounts.policy.name(), grant.amounts.priority.name()), ("best-effort", "high"));
        assert_eq!(serde_json::to_string(&grant).unwrap(), text);
        // What a later release added is ignored.
        let later = text.replace("\"generation\"", "\"color\":{\"red\":1},\"generation\"");
        assert_eq!(serde_json::from_str::<Grant>(&later).unwrap(), grant);
    }

    #[test]
    fn room_is_kept_for_the_larger_of_now_and_of_later() {
        let amounts = Quota::fixed(Some(1 << 30), 300);
        let mut grant = Grant { amounts, ..Grant::example("a", 1, Vec::new()) };
        assert_eq!(grant.kept(), grant.amounts);
        grant.lasting = Some(Lasting { amounts: Quota::fixed(Some(4 << 30), 100), until_unix_ms: 9 });
        let kept = grant.kept();
        assert_eq!((kept.memory_bytes, kept.reserved_permille()), (Some(4 << 30), 300));
        grant.lasting = Some(Lasting { amounts: Quota::fixed(None, 400), until_unix_ms: 9 });
        let kept = grant.kept();
        assert_eq!((kept.memory_bytes, kept.reserved_permille()), (None, 400));
        let written = serde_json::to_string(&grant).unwrap();
        assert_eq!(serde_json::from_str::<Grant>(&written).unwrap(), grant);
    }
}
