//! Rows of the hook table: `hooks!` in `shim/src/hooks.rs`.

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
    let rows = parse(&std::fs::read_to_string(&path).unwrap());
    assert!(rows.len() > 50, "{}: {rows:?}", path.display());
    rows
}

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
