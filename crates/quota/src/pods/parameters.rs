//! Opaque parameters of a claim and of its device class: policy, priority, weight, maximum of GPU time, whether it may be
//! suspended, and whole GPUs.

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use crate::{CoreShare, ParseError, QuotaChange, parse_weight};

/// API version of the parameters.
const API_VERSION: &str = "vcuda.io/v1alpha1";
/// Kind of the parameters.
const KIND: &str = "VcudaConfig";

/// Parameters are wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParametersError {
    /// An unknown key, a value of another type, or no object.
    #[error(
        "parameters of driver vcuda.io: {0}; a VcudaConfig has policy, priority, weight, coresMax, suspendable and whole"
    )]
    Form(String),
    /// Another version or kind.
    #[error(
        "parameters of driver vcuda.io: apiVersion \"{0}\", kind \"{1}\": write {API_VERSION} and {KIND}"
    )]
    Kind(String, String),
    /// A value out of its range.
    #[error("parameters of driver vcuda.io: {0} \"{1}\": {2}")]
    Value(&'static str, String, ParseError),
}

/// The parameters' JSON form. Unknown keys are refused, as a misspelt key would mean a missing limit.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct VcudaConfig {
    api_version: String,
    kind: String,
    policy: Option<String>,
    priority: Option<String>,
    weight: Option<Number>,
    cores_max: Option<Number>,
    suspendable: Option<bool>,
    whole: Option<bool>,
}

/// Settings by the parameters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Change of the tenant's quota.
    pub quota_change: QuotaChange,
    /// Whether the tenant has whole GPUs, without limits.
    pub is_whole: bool,
}

/// A number as JSON number or text: `80` and `"80"` are the same.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Number(serde_json::Number),
    Text(String),
}

impl Number {
    fn into_text(self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }
}

/// Applies `parameters` to `merged`. Fields of `parameters` win.
pub fn apply(parameters: &Value, merged: &mut Parameters) -> Result<(), ParametersError> {
    let config: VcudaConfig = serde_json::from_value(parameters.clone())
        .map_err(|error| ParametersError::Form(error.to_string()))?;
    if config.api_version != API_VERSION || config.kind != KIND {
        return Err(ParametersError::Kind(config.api_version, config.kind));
    }
    merged.is_whole = config.whole.unwrap_or(merged.is_whole);
    let change = &mut merged.quota_change;
    if let Some(text) = config.policy {
        change.policy = Some(parsed("policy", &text, text.parse())?);
    }
    if let Some(text) = config.priority {
        change.priority = Some(parsed("priority", &text, text.parse())?);
    }
    change.suspendable = config.suspendable.or(change.suspendable);
    if let Some(text) = config.weight.map(Number::into_text) {
        change.weight = Some(parsed("weight", &text, parse_weight(&text))?);
    }
    if let Some(text) = config.cores_max.map(Number::into_text) {
        let share: CoreShare = parsed("coresMax", &text, text.parse())?;
        change.cores_max_permille = Some(share.0);
    }
    Ok(())
}

fn parsed<T>(key: &'static str, text: &str, parsed: Result<T, ParseError>) -> Result<T, ParametersError> {
    parsed.map_err(|problem| ParametersError::Value(key, text.to_owned(), problem))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Policy, Priority};

    fn with(mut more: Value) -> Value {
        more["apiVersion"] = json!(API_VERSION);
        more["kind"] = json!(KIND);
        more
    }

    #[test]
    fn later_parameters_win_field_by_field() {
        let mut merged = Parameters::default();
        apply(
            &with(json!({"policy": "burst", "weight": 70, "coresMax": "80", "suspendable": true, "whole": true})),
            &mut merged,
        )
        .unwrap();
        apply(&with(json!({"priority": "low", "weight": "9"})), &mut merged).unwrap();
        assert!(merged.is_whole);
        let change = merged.quota_change;
        assert_eq!(change.policy, Some(Policy::Burst));
        assert_eq!(change.priority, Some(Priority::Low));
        assert_eq!((change.weight, change.cores_max_permille), (Some(9), Some(800)));
        assert_eq!(change.suspendable, Some(true));
        assert_eq!((change.memory_bytes, change.cores_permille), (None, None));
    }

    #[test]
    fn an_error_names_the_wrong_parameter() {
        for (parameters, said) in [
            (with(json!({"polcy": "burst"})), "unknown field `polcy`"),
            (with(json!({"policy": "Burst"})), "policy \"Burst\": write fixed, burst"),
            (with(json!({"priority": 1})), "invalid type"),
            (with(json!({"suspendable": "true"})), "invalid type"),
            (with(json!({"weight": 0})), "1 to 10000"),
            (with(json!({"coresMax": 101})), "outside 0.1 to 100"),
            (json!({"apiVersion": "v1", "kind": KIND}), "write vcuda.io/v1alpha1"),
            (json!({"kind": KIND}), "missing field `apiVersion`"),
            (json!("text"), "invalid type"),
            (Value::Null, "invalid type"),
        ] {
            let error = apply(&parameters, &mut Parameters::default()).unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}
