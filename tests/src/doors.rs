//! Input for `apps/doors.c`: all ways of looking up each row of the hook table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use vcuda_driver_api::lookup::{Answer, base_names, symbol_for};

use crate::table::row_names;

/// The versions at which the driver's interface changed, and one beyond.
const VERSIONS: std::ops::RangeInclusive<i32> = 20..=140;

/// A line for each row: `SYMBOL BASE VERSION FLAGS TWIN`. `twins` are rows that share their function with another row.
pub fn questions(twins: &BTreeMap<String, String>) -> String {
    let answered = answered();
    let mut table = String::new();
    for name in row_names() {
        let (base, version, flags) = answered.get(name.as_str()).copied().unwrap_or(("-", 0, 0));
        assert!(
            base != "-" || name.starts_with("nvml"),
            "no version and flags of cuGetProcAddress answer {name}"
        );
        let twin = twins.get(&name).unwrap_or(&name);
        writeln!(table, "{name} {base} {version} {flags} {twin}").unwrap();
    }
    table
}

/// Arguments of `cuGetProcAddress` for each symbol: base name, version, flags.
fn answered() -> BTreeMap<&'static str, (&'static str, i32, u64)> {
    let mut answered = BTreeMap::new();
    for base in base_names() {
        for version in VERSIONS.map(|tenths| tenths / 10 * 1000 + tenths % 10 * 10) {
            for flags in 0..=2 {
                if let Answer::Symbol(symbol) = symbol_for(base, version, flags) {
                    answered.entry(symbol).or_insert((base, version, flags));
                }
            }
        }
    }
    answered
}
