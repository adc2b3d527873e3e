//! Parameters of a claim, or of a template of claims, against the bounds of its namespace.
//!
//! A claim's device class may have parameters as well, which are not known here, so the node's driver and manager decide. What
//! the claim itself states wins over them, and is checked.

use std::collections::BTreeSet;

use serde_json::Value;
use vcuda_quota::QuotaChange;
use vcuda_quota::pods::annotations::quota_change;
use vcuda_quota::pods::parameters::{self, Parameters};
use vcuda_quota::pods::{overlaid, quantity, without_guarantee};

use super::claims::CLASS;
use super::refusal::{Refusal, RequestError};
use super::rules::Rules;
use super::{WHOLE_PERMILLE, check_bounds, pod};

/// A request of a claim that is for shares of GPUs.
struct Request {
    /// Its name; with that of a subrequest, as `gpu/large`.
    name: String,
    cores_permille: u32,
}

/// Checks a claim, or a template of claims, of `namespace` as it will be made.
pub(crate) fn validate_claim(namespace: &str, claim: &Value, rules: &Rules) -> Result<(), Refusal> {
    let of_template = claim.pointer("/spec/spec/devices");
    let annotations = match of_template {
        // Pods of such claims have the annotations.
        Some(_) => QuotaChange::default(),
        None => quota_change(&pod::annotations(claim), "", &BTreeSet::new())?,
    };
    let Some(devices) = of_template.or_else(|| claim.pointer("/spec/devices")) else {
        return Ok(());
    };
    for request in requests(devices)? {
        let stated = parameters(devices, &request.name)?;
        if stated.is_whole {
            continue;
        }
        let change = overlaid(&stated.quota_change, &annotations);
        let change = without_guarantee(request.cores_permille, change);
        let promised = match request.cores_permille {
            0 => WHOLE_PERMILLE,
            permille => permille,
        };
        let cores_permille = change.cores_permille.unwrap_or(promised);
        check_bounds(namespace, &change, cores_permille, rules)
            .map_err(|error| Refusal::Request(request.name, error))?;
    }
    Ok(())
}

/// Requests for shares: of our device class, or for memory or time of a device.
fn requests(devices: &Value) -> Result<Vec<Request>, Refusal> {
    let mut found = Vec::new();
    for request in list(devices, "requests") {
        let name = text(request, "name");
        if let Some(exactly) = request.get("exactly") {
            found.extend(share(name.to_owned(), exactly)?);
        }
        for one in list(request, "firstAvailable") {
            found.extend(share(format!("{name}/{}", text(one, "name")), one)?);
        }
    }
    Ok(found)
}

/// The request for a share, if it is one that has limits.
fn share(name: String, request: &Value) -> Result<Option<Request>, Refusal> {
    let amount = |of: &str| request.pointer(&format!("/capacity/requests/{of}"));
    let is_ours =
        text(request, "deviceClassName") == CLASS || amount("memory").is_some() || amount("cores").is_some();
    if !is_ours || request.get("adminAccess") == Some(&Value::Bool(true)) {
        return Ok(None);
    }
    let memory = amount("memory").and_then(Value::as_str);
    // Of another driver's class, it is not known what the amount counts.
    let memory =
        memory.filter(|_| text(request, "deviceClassName").starts_with(CLASS)).map(quantity::parse_memory);
    if let Some(Err(error)) = memory {
        return Err(Refusal::Request(name, RequestError::Quantity("memory".to_owned(), error)));
    }
    let percents = match amount("cores").and_then(Value::as_str).map(quantity::parse) {
        None => 0,
        Some(Ok(percents)) => percents,
        Some(Err(error)) => {
            return Err(Refusal::Request(name, RequestError::Quantity("cores".to_owned(), error)));
        }
    };
    Ok(Some(Request {
        name,
        cores_permille: u32::try_from(percents.min(100) * 10).unwrap_or(WHOLE_PERMILLE),
    }))
}

/// The claim's own parameters of a request.
fn parameters(devices: &Value, request: &str) -> Result<Parameters, Refusal> {
    let base = request.split_once('/').map_or(request, |(base, _)| base);
    let mut merged = Parameters::default();
    for config in list(devices, "config") {
        let names: Vec<&str> = list(config, "requests").filter_map(Value::as_str).collect();
        let applies = names.is_empty() || names.iter().any(|name| [request, base].contains(name));
        let Some(opaque) = config.get("opaque").filter(|_| applies) else {
            continue;
        };
        if text(opaque, "driver") == CLASS {
            parameters::apply(&opaque["parameters"], &mut merged)?;
        }
    }
    Ok(merged)
}

fn list<'a>(object: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    object.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}
