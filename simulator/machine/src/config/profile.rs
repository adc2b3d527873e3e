//! Profiles of real drivers and GPUs. Their files are part of the program.

use crate::MachineError;
use toml::{Table, Value};

/// Name and text of each profile; the first is the default.
pub(crate) const PROFILES: [(&str, &str); 8] = [
    (DEFAULT, include_str!("../../../profiles/h200-580.toml")),
    ("a100-535-container", include_str!("../../../profiles/a100-535-container.toml")),
    ("t4-470", include_str!("../../../profiles/t4-470.toml")),
    ("gb10", include_str!("../../../profiles/gb10.toml")),
    ("wsl2", include_str!("../../../profiles/wsl2.toml")),
    ("mps", include_str!("../../../profiles/mps.toml")),
    ("r615-dmem", include_str!("../../../profiles/r615-dmem.toml")),
    ("r615-misc", include_str!("../../../profiles/r615-misc.toml")),
];

pub(crate) const DEFAULT: &str = "h200-580";

/// A machine's file completed from its profile: keys of the machine, of `driver`, and of each GPU. A file without GPUs
/// gets the profile's one. Error: `MachineError::Value` for an unknown profile.
pub(super) fn complete(mut file: Table) -> Result<Table, MachineError> {
    let name = match file.get("profile") {
        None => DEFAULT.to_owned(),
        Some(Value::String(name)) => name.clone(),
        Some(other) => return Err(unknown(&other.to_string())),
    };
    let mut profile = find(&name)?;
    let mut part = |name: &str| match profile.remove(name) {
        Some(Value::Table(part)) => part,
        _ => Table::new(),
    };
    let (mut machine, gpu, driver) = (part("machine"), part("gpu"), part("driver"));
    let gpus = file.entry("gpus").or_insert_with(|| vec![Table::new()].into());
    for one in gpus.as_array_mut().into_iter().flatten() {
        fill(one, &gpu);
    }
    fill(file.entry("driver").or_insert_with(|| Table::new().into()), &driver);
    file.insert("profile".to_owned(), name.into());
    machine.extend(file);
    Ok(machine)
}

/// The profile's text as a table.
fn find(name: &str) -> Result<Table, MachineError> {
    let found = PROFILES.iter().find(|(known, _)| *known == name);
    let (_, text) = found.ok_or_else(|| unknown(name))?;
    toml::from_str(text).map_err(|error| MachineError::Value {
        field: "profile".into(),
        value: name.into(),
        remedy: super::one_line(&error),
    })
}

/// Adds missing keys to a table. Other values stay, and the parser refuses them.
fn fill(value: &mut Value, with: &Table) {
    let Some(table) = value.as_table_mut() else { return };
    for (key, value) in with {
        table.entry(key).or_insert_with(|| value.clone());
    }
}

fn unknown(name: &str) -> MachineError {
    let known: Vec<&str> = PROFILES.iter().map(|(name, _)| *name).collect();
    MachineError::Value {
        field: "profile".into(),
        value: name.into(),
        remedy: format!("use one of {}", known.join(", ")),
    }
}
