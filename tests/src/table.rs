//! Rows of the hook table: those with a handler in `shim/src/hooks.rs`, those that only pass the gate in
//! `shim/src/hooks/gated.rs`.

use crate::workspace;

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Function of the driver.
    pub name: String,
    /// Module of the handler in `shim/src/hooks/`.
    pub module: String,
    /// Handler in that module, with the text behind it.
    pub handler: String,
}

/// All rows, in the order of the table.
pub fn rows() -> Vec<Row> {
    let path = workspace().join("shim/src/hooks.rs");
    let mut rows = parse(&std::fs::read_to_string(&path).unwrap());
    assert!(rows.len() > 50, "{}: {rows:?}", path.display());
    let path = workspace().join("shim/src/hooks/gated.rs");
    let gated = parse_gated(&std::fs::read_to_string(&path).unwrap());
    assert!(gated.len() > 50, "{}: {gated:?}", path.display());
    rows.extend(gated);
    rows
}

impl Row {
    /// Whether the shim only lets the call pass its gate.
    pub fn is_gated(&self) -> bool {
        self.module == GATED
    }
}

/// Module of the rows without a handler.
const GATED: &str = "gated";

/// The names of all rows.
pub fn row_names() -> Vec<String> {
    rows().into_iter().map(|row| row.name).collect()
}

/// Parses rows such as `deny NAME => module::handler;`, which may also begin with `pass`.
fn parse(table: &str) -> Vec<Row> {
    table
        .lines()
        .filter_map(|line| {
            let line = line.trim();
            let row = line.strip_prefix("deny ").or(line.strip_prefix("pass "))?;
            let (name, handler) = row.split_once("=>")?;
            let (module, handler) = handler.trim().split_once("::")?;
            Some(Row {
                name: name.trim().to_owned(),
                module: module.to_owned(),
                handler: handler.trim_end_matches(';').to_owned(),
            })
        })
        .collect()
}

/// Parses the names between `gate {` and `}`.
fn parse_gated(source: &str) -> Vec<Row> {
    let (_, behind) = source.split_once("gate {\n").unwrap();
    let (names, _) = behind.split_once('}').unwrap();
    let lines = names.lines().filter(|line| !line.trim().starts_with("//"));
    lines
        .flat_map(str::split_whitespace)
        .map(|name| Row { name: name.to_owned(), module: GATED.to_owned(), handler: GATED.to_owned() })
        .collect()
}
