//! A pod as JSON, as the API server sends it. It is edited in this form: fields that this release does not know stay as they
//! are.

use serde_json::{Map, Value, json};

/// Lists of containers that can have shares.
pub(crate) const LISTS: [&str; 2] = ["containers", "initContainers"];

/// Containers of a pod that can have shares, init containers last.
pub(crate) fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    LISTS.into_iter().filter_map(|list| pod.get("spec")?.get(list)?.as_array()).flatten()
}

/// Calls `edit` for each container of [`containers`], in the same order.
///
/// # Errors
/// The first error of `edit`.
pub(crate) fn edit_containers<E>(
    pod: &mut Value,
    mut edit: impl FnMut(&mut Map<String, Value>) -> Result<(), E>,
) -> Result<(), E> {
    for list in LISTS {
        let containers = pod.get_mut("spec").and_then(|spec| spec.get_mut(list));
        let containers = containers.and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            edit(container)?;
        }
    }
    Ok(())
}

pub(crate) fn name(container: &Map<String, Value>) -> String {
    let name = container.get("name").and_then(Value::as_str);
    name.unwrap_or_default().to_owned()
}

/// Amount of a resource that a container asks for, as a text: its limit, else its request.
pub(crate) fn amount(container: &Map<String, Value>, resource: &str) -> Option<String> {
    let resources = container.get("resources")?;
    let found = ["limits", "requests"].into_iter().find_map(|list| resources.get(list)?.get(resource))?;
    Some(match found {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    })
}

pub(crate) fn set_amount(container: &mut Map<String, Value>, resource: &str, amount: Option<u32>) {
    let Some(amount) = amount else {
        for list in ["limits", "requests"] {
            let resources = container.get_mut("resources").and_then(|all| all.get_mut(list));
            if let Some(resources) = resources.and_then(Value::as_object_mut) {
                resources.remove(resource);
            }
        }
        return;
    };
    let resources = entry(container, "resources");
    for list in ["limits", "requests"] {
        // Kubernetes takes the request from the limit, if it is not given.
        if list == "limits" || resources.contains_key(list) {
            entry(resources, list).insert(resource.to_owned(), json!(amount.to_string()));
        }
    }
}

/// The object under `key`, made if it is not there.
pub(crate) fn entry<'a>(object: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let found = object.entry(key).or_insert_with(|| json!({}));
    if !found.is_object() {
        *found = json!({});
    }
    found.as_object_mut().unwrap_or_else(|| unreachable!("it was made an object"))
}

/// Appends to the list under `key`, made if it is not there.
pub(crate) fn push(object: &mut Map<String, Value>, key: &str, value: Value) {
    match object.get_mut(key).and_then(Value::as_array_mut) {
        Some(list) => list.push(value),
        None => {
            object.insert(key.to_owned(), json!([value]));
        }
    }
}

pub(crate) fn annotations(pod: &Value) -> std::collections::BTreeMap<String, String> {
    let all = pod.pointer("/metadata/annotations").and_then(Value::as_object);
    let texts =
        all.into_iter().flatten().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    texts.collect()
}

/// Adds an annotation, unless the pod has it already.
pub(crate) fn annotate(pod: &mut Value, key: &str, value: &str) {
    if let Some(pod) = pod.as_object_mut() {
        let annotations = entry(entry(pod, "metadata"), "annotations");
        annotations.entry(key).or_insert_with(|| json!(value));
    }
}
