//! `docs/generated/coverage.md`, made from the gate's data.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Coverage, KINDS};
use crate::table::Row;
use crate::workspace;

const WIDTH: usize = 118;

const HEAD: &str = "<!-- Made by VCUDA_UPDATE=1 cargo test -p vcuda-tests --test interposition coverage:: -->
# Coverage

Each function that NVIDIA's driver libraries export (driver 550) or that newer toolkits declare (CUDA 13.5, NVML 13),
and what becomes of a call of it. *Hooked*: it enters this library first. *Passed*: the application gets the driver's own
function, on purpose, for the reason given. The test `coverage` fails when a name is in neither list or in both, when a
function that has to do with device memory is passed for a reason that may cost some, and when this page is stale.

The page is made from the hook table (`shim/src/hooks.rs`) and from `tests/coverage/`; change those. The command above also takes out of
`tests/coverage/passed.txt` what is hooked by now.
";

/// Text of the page.
pub(super) fn page(coverage: &Coverage) -> String {
    let mut page = HEAD.to_owned();
    page += "\n## In numbers\n\n";
    page += &counts(coverage);
    page += "\n";
    page += &memory_counts(coverage);
    page += "\n## Hooked\n";
    page += &hooked(coverage);
    for kind in KINDS {
        let sections: Vec<_> = coverage.passed.iter().filter(|section| section.kind == kind.word).collect();
        if sections.is_empty() {
            continue;
        }
        let _ = write!(page, "\n## Passed: {}\n", kind.meaning);
        for section in sections {
            let (title, reason) = (capital(&section.title), &section.reason);
            let _ = write!(page, "\n### {title}\n\n{}\n", wrap(reason));
            page += &names(&section.names);
        }
    }
    page
}

fn is_nvml(name: &str) -> bool {
    name.starts_with("nvml")
}

/// Number of names of each library, by treatment.
fn counts(coverage: &Coverage) -> String {
    let mut table = "| | CUDA | NVML |\n|---|---:|---:|\n".to_owned();
    let mut row = |what: &str, names: &mut dyn Iterator<Item = &str>| {
        let (mut cuda, mut nvml) = (0, 0);
        for name in names {
            *(if is_nvml(name) { &mut nvml } else { &mut cuda }) += 1;
        }
        let _ = writeln!(table, "| {what} | {cuda} | {nvml} |");
    };
    row("hooked", &mut coverage.hooked.iter().map(|row| row.name.as_str()));
    for kind in KINDS {
        let sections = coverage.passed.iter().filter(|section| section.kind == kind.word);
        let mut names = sections.flat_map(|section| &section.names).map(String::as_str).peekable();
        if names.peek().is_some() {
            row(&format!("passed: {}", kind.meaning), &mut names);
        }
    }
    row("all names", &mut coverage.known.iter().map(String::as_str));
    table
}

/// Treatment of the functions that concern device memory.
fn memory_counts(coverage: &Coverage) -> String {
    let mut counted: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (name, what) in &coverage.memory {
        let (hooked, passed) = counted.entry(what).or_default();
        let is_hooked = coverage.hooked.iter().any(|row| row.name == *name);
        *(if is_hooked { hooked } else { passed }) += 1;
    }
    let mut table = "| of device memory | hooked | passed |\n|---|---:|---:|\n".to_owned();
    for (what, (hooked, passed)) in counted {
        let _ = writeln!(table, "| {what} | {hooked} | {passed} |");
    }
    table
}

/// The hooked functions, by the module of their handlers, in the table's order.
fn hooked(coverage: &Coverage) -> String {
    let mut modules: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in &coverage.hooked {
        match modules.iter_mut().find(|(module, _)| *module == row.module) {
            Some((_, rows)) => rows.push(row),
            None => modules.push((&row.module, vec![row])),
        }
    }
    let mut text = String::new();
    for (module, rows) in modules {
        let subject = wrap(&subject(module));
        let _ = write!(text, "\n### `hooks/{module}.rs`\n\n{subject}\n");
        let mut by_use: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for row in rows {
            let what = coverage.memory.get(&row.name).map_or("", String::as_str);
            by_use.entry(what).or_default().push(row.name.clone());
        }
        let is_plain = by_use.len() == 1 && by_use.contains_key("");
        for (what, listed) in by_use {
            if !is_plain {
                let what = if what.is_empty() { "other" } else { what };
                let _ = write!(text, "\n{}:\n", capital(what));
            }
            text += &names(&listed);
        }
    }
    text
}

/// Subject of a module of handlers: the first sentence of its documentation.
fn subject(module: &str) -> String {
    let path = workspace().join(format!("shim/src/hooks/{module}.rs"));
    let source = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let doc: Vec<&str> = source.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
    let doc = doc.join(" ");
    assert!(!doc.is_empty(), "{} does not say what it is about", path.display());
    let end = doc.find(". ").map_or(doc.len(), |end| end + 1);
    doc[..end].to_owned()
}

/// A block of names.
fn names(listed: &[String]) -> String {
    format!("\n```\n{}\n```\n", wrap(&listed.join(" ")))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Breaks a text at spaces to the page's width.
fn wrap(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}
