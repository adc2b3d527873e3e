//! Tables of namespaces in the configuration of the manager and of the webhook, which have the same form.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::{ALL_OTHERS, Bound, Bounds};
use crate::{CoreShare, Policy, Priority, WEIGHTS};

/// A namespace's name, or `*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Namespace(pub String);

impl<'de> Deserialize<'de> for Namespace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        // A DNS label (RFC 1123), as the API server requires for namespaces.
        let is_label = (1..=63).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if name != ALL_OTHERS && !is_label {
            return Err(D::Error::custom(format!(
                "namespaces.\"{name}\": neither a namespace's name nor \"{ALL_OTHERS}\", which is for all others"
            )));
        }
        Ok(Self(name))
    }
}

/// The table of a namespace. `A` is the form of `audit_action`, which is for the manager alone.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields, bound(deserialize = "A: Deserialize<'de>"))]
pub struct NamespaceTable<A> {
    #[serde(deserialize_with = "policies")]
    policies: Vec<Policy>,
    priority_max: Priority,
    #[serde(deserialize_with = "share")]
    cores_max: u32,
    #[serde(deserialize_with = "weight")]
    weight_max: u32,
    suspendable: bool,
    /// What the audit does about this namespace's containers.
    pub audit_action: Option<A>,
}

impl<A> Default for NamespaceTable<A> {
    fn default() -> Self {
        let bound = Bound::default();
        Self {
            policies: bound.policies,
            priority_max: bound.priority_max,
            cores_max: bound.cores_max_permille,
            weight_max: bound.weight_max,
            suspendable: bound.suspendable,
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
    let text = String::deserialize(deserializer)?;
    match text.parse::<CoreShare>() {
        Ok(share) => Ok(share.0),
        Err(problem) => Err(D::Error::custom(format!("'{text}': {problem}"))),
    }
}

fn weight<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        weight if WEIGHTS.contains(&weight) => Ok(weight),
        weight => Err(D::Error::custom(format!("{weight}: outside 1 to 10000"))),
    }
}

/// The bounds of tables by namespace.
pub fn bounds<A>(tables: BTreeMap<Namespace, NamespaceTable<A>>) -> Bounds {
    let bound = |table: NamespaceTable<A>| Bound {
        policies: table.policies,
        priority_max: table.priority_max,
        cores_max_permille: table.cores_max,
        weight_max: table.weight_max,
        suspendable: table.suspendable,
    };
    let own = tables.into_iter().map(|(name, table)| (name.0, bound(table)));
    Bounds::new(own.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Tables = BTreeMap<Namespace, NamespaceTable<String>>;

    fn parsed(text: &str) -> Result<Tables, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_table_bounds_its_namespace() {
        let tables = parsed(
            r#"{"web": {"policies": ["burst"], "priority_max": "low", "cores_max": "50", "weight_max": 10000,
                "suspendable": true, "audit_action": "evict"}, "*": {}}"#,
        )
        .unwrap();
        assert_eq!(tables[&Namespace("web".to_owned())].audit_action.as_deref(), Some("evict"));
        let web = Bound {
            policies: vec![Policy::Burst],
            priority_max: Priority::Low,
            cores_max_permille: 500,
            weight_max: 10_000,
            suspendable: true,
        };
        let own = [("web".to_owned(), web), (ALL_OTHERS.to_owned(), Bound::default())];
        assert_eq!(bounds(tables), Bounds::new(own.into()));
    }

    #[test]
    fn a_value_out_of_its_range_is_refused_with_what_is_wrong() {
        let long = format!(r#"{{"{}": {{}}}}"#, "n".repeat(64));
        for (text, said) in [
            (r#"{"web": {"policies": []}}"#, "no policy at all"),
            (r#"{"web": {"cores_max": "101"}}"#, "'101': "),
            (r#"{"web": {"weight_max": 0}}"#, "0: outside 1 to 10000"),
            (r#"{"web": {"weight_max": 10001}}"#, "10001: outside 1 to 10000"),
            (r#"{"web": {"cores": "10"}}"#, "unknown field `cores`"),
            (r#"{"Web": {}}"#, "neither a namespace's name"),
            (r#"{"": {}}"#, "neither a namespace's name"),
            (&long, "neither a namespace's name"),
        ] {
            let refusal = parsed(text).unwrap_err();
            assert!(refusal.contains(said), "{text}: {refusal}");
        }
        let longest = format!(r#"{{"{}-1": {{}}}}"#, "n".repeat(61));
        assert!(parsed(&longest).is_ok());
    }
}
