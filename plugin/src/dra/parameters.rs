//! How a claim's tenant competes: the opaque parameters of its claim and of its device class.

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;
use vcuda_quota::{CoreShare, ParseError, QuotaChange, parse_weight};

/// Version of the parameters.
const API_VERSION: &str = "vcuda.io/v1alpha1";
/// Their kind.
const KIND: &str = "VcudaConfig";

/// Parameters that cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParametersError {
    /// A key that there is not, a value of another type, or no object.
    #[error(
        "parameters of driver vcuda.io: {0}; a VcudaConfig has policy, priority, weight, coresMax and whole"
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

/// Strict: a misspelt key would be a limit that is not there.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct VcudaConfig {
    api_version: String,
    kind: String,
    policy: Option<String>,
    priority: Option<String>,
    weight: Option<Number>,
    cores_max: Option<Number>,
    whole: Option<bool>,
}

/// What parameters choose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Parameters {
    /// How the tenant competes.
    pub competition: QuotaChange,
    /// Whether it has its GPUs alone, without limits.
    pub is_whole: bool,
}

/// `80` and `"80"` are the same.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Number(serde_json::Number),
    Text(String),
}

impl Number {
    fn text(self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }
}

/// What `parameters` choose beyond what `chosen` says already: later ones win.
///
/// # Errors
/// The first that cannot be followed.
pub fn apply(parameters: &Value, chosen: &mut Parameters) -> Result<(), ParametersError> {
    let config: VcudaConfig = serde_json::from_value(parameters.clone())
        .map_err(|error| ParametersError::Form(error.to_string()))?;
    if config.api_version != API_VERSION || config.kind != KIND {
        return Err(ParametersError::Kind(config.api_version, config.kind));
    }
    chosen.is_whole = config.whole.unwrap_or(chosen.is_whole);
    let change = &mut chosen.competition;
    if let Some(text) = config.policy {
        change.policy = Some(parsed("policy", &text, text.parse())?);
    }
    if let Some(text) = config.priority {
        change.priority = Some(parsed("priority", &text, text.parse())?);
    }
    if let Some(text) = config.weight.map(Number::text) {
        change.weight = Some(parsed("weight", &text, parse_weight(&text))?);
    }
    if let Some(text) = config.cores_max.map(Number::text) {
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
    use vcuda_quota::{Policy, Priority};

    use super::*;

    fn with(mut more: Value) -> Value {
        more["apiVersion"] = json!(API_VERSION);
        more["kind"] = json!(KIND);
        more
    }

    #[test]
    fn later_parameters_win_field_by_field() {
        let mut chosen = Parameters::default();
        apply(
            &with(json!({"policy": "burst", "weight": 70, "coresMax": "80", "whole": true})),
            &mut chosen,
        )
        .unwrap();
        apply(&with(json!({"priority": "low", "weight": "9"})), &mut chosen).unwrap();
        assert!(chosen.is_whole);
        let change = chosen.competition;
        assert_eq!(change.policy, Some(Policy::Burst));
        assert_eq!(change.priority, Some(Priority::Low));
        assert_eq!((change.weight, change.cores_max_permille), (Some(9), Some(800)));
        assert_eq!((change.memory_bytes, change.cores_permille), (None, None));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (parameters, said) in [
            (with(json!({"polcy": "burst"})), "unknown field `polcy`"),
            (
                with(json!({"policy": "Burst"})),
                "policy \"Burst\": write fixed, burst",
            ),
            (with(json!({"priority": 1})), "invalid type"),
            (with(json!({"weight": 0})), "1 to 10000"),
            (with(json!({"coresMax": 101})), "outside 0.1 to 100"),
            (
                json!({"apiVersion": "v1", "kind": KIND}),
                "write vcuda.io/v1alpha1",
            ),
            (json!({"kind": KIND}), "missing field `apiVersion`"),
            (json!("text"), "invalid type"),
            (Value::Null, "invalid type"),
        ] {
            let error = apply(&parameters, &mut Parameters::default()).unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}
