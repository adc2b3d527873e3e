//! Per-namespace tables of the configuration.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use vcuda_daemon::value::parsed;
use vcuda_quota::{CoreShare, Policy, Priority, WEIGHTS};

use crate::audit::{Action, Actions};
use crate::bounds::{ALL_OTHERS, Bound, Bounds};

/// A namespace's name, or `*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Namespace(String);

impl<'de> Deserialize<'de> for Namespace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        // A DNS label (RFC 1123), as the API server requires for namespaces.
        let is_label = (1..=63).contains(&name.len())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if name != ALL_OTHERS && !is_label {
            return Err(D::Error::custom(format!(
                "namespaces.\"{name}\": neither a namespace's name nor \"{ALL_OTHERS}\", which is for all others"
            )));
        }
        Ok(Self(name))
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct NamespaceTable {
    #[serde(deserialize_with = "policies")]
    policies: Vec<Policy>,
    priority_max: Priority,
    #[serde(deserialize_with = "share")]
    cores_max: u32,
    #[serde(deserialize_with = "weight")]
    weight_max: u32,
    audit_action: Option<Action>,
}

impl Default for NamespaceTable {
    fn default() -> Self {
        let bound = Bound::default();
        Self {
            policies: bound.policies,
            priority_max: bound.priority_max,
            cores_max: bound.cores_max_permille,
            weight_max: bound.weight_max,
            audit_action: None,
        }
    }
}

fn policies<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Policy>, D::Error> {
    let policies = Vec::<Policy>::deserialize(deserializer)?;
    if policies.is_empty() {
        return Err(D::Error::custom(
            "[]: no policy at all would refuse every pod; write for example [\"fixed\"]",
        ));
    }
    Ok(policies)
}

fn share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    parsed(deserializer, |text| match text.parse::<CoreShare>() {
        Ok(share) => Ok(share.0),
        Err(error) => Err(error.to_string()),
    })
}

fn weight<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        weight if WEIGHTS.contains(&weight) => Ok(weight),
        weight => Err(D::Error::custom(format!("{weight}: outside 1 to 10000"))),
    }
}

/// Actions for the audit; `others` applies to namespaces without a setting.
pub(super) fn actions(tables: &BTreeMap<Namespace, NamespaceTable>, others: Action) -> Actions {
    let of_table = |(name, table): (&Namespace, &NamespaceTable)| Some((name.0.clone(), table.audit_action?));
    let mut own: BTreeMap<String, Action> = tables.iter().filter_map(of_table).collect();
    let others = own.remove(ALL_OTHERS).unwrap_or(others);
    Actions::new(own, others)
}

/// Bounds for admission.
pub(super) fn bounds(tables: BTreeMap<Namespace, NamespaceTable>) -> Bounds {
    let bound = |table: NamespaceTable| Bound {
        policies: table.policies,
        priority_max: table.priority_max,
        cores_max_permille: table.cores_max,
        weight_max: table.weight_max,
    };
    Bounds::new(
        tables
            .into_iter()
            .map(|(name, table)| (name.0, bound(table)))
            .collect(),
    )
}
