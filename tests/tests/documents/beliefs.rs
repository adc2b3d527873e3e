//! `docs/hardware.md` contains all assumptions about NVIDIA's driver: references to its rows are valid, each program of
//! `apps/hardware` names one, and no other file says "assumed".

use std::collections::BTreeSet;
use std::fs;

use vcuda_tests::sources::{files, in_one_line};
use vcuda_tests::workspace;

const PAGE: &str = "docs/hardware.md";

/// Names of rows: third-level headings, and first columns of tables.
fn rows() -> BTreeSet<String> {
    let page = fs::read_to_string(workspace().join(PAGE)).unwrap();
    let headings = page.lines().filter_map(|line| line.strip_prefix("### "));
    let columns = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    headings.chain(columns).map(str::to_owned).collect()
}

/// Names that follow `docs/hardware.md, `: one in quotation marks, or several joined by commas or "and".
fn references(text: &str) -> Vec<String> {
    let text = in_one_line(text);
    let mut names = Vec::new();
    for after in text.split(PAGE).skip(1) {
        let mut rest = after.trim_start_matches('`');
        while let Some(quoted) = [", \"", " and \"", ", and \""].iter().find_map(|p| rest.strip_prefix(p)) {
            let Some((name, behind)) = quoted.split_once('"') else {
                break;
            };
            names.push(name.to_owned());
            rest = behind;
        }
    }
    names
}

#[test]
fn each_reference_finds_its_row() {
    let rows = rows();
    let sources = files(
        &["cli", "crates", "docs", "manager", "plugin", "scripts", "shim", "simulator", "tests"],
        &["rs", "c", "h", "md", "sh", "toml", "py"],
    );
    let mut count = 0;
    for path in sources {
        if path.ends_with("tests/tests/documents/beliefs.rs") {
            continue;
        }
        for name in references(&fs::read_to_string(&path).unwrap()) {
            assert!(rows.contains(&name), "{}: no row {name:?} in {PAGE}", path.display());
            count += 1;
        }
    }
    assert!(count > 80, "only {count} references were found");
}

#[test]
fn nothing_else_is_marked() {
    for path in files(&["simulator", "shim", "manager", "docs"], &["rs", "md", "toml"]) {
        if path.ends_with(PAGE) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap().to_lowercase();
        let marked = text.lines().position(|line| line.contains("assumed"));
        assert_eq!(
            marked.map(|line| line + 1),
            None,
            "{}: this line says \"assumed\"; name a row of {PAGE} instead",
            path.display()
        );
    }
}

#[test]
fn each_program_names_its_rows_and_each_profile_is_on_the_page() {
    let page = fs::read_to_string(workspace().join(PAGE)).unwrap();
    for path in files(&["tests/apps/hardware"], &["c"]) {
        let rows = references(&fs::read_to_string(&path).unwrap());
        assert!(!rows.is_empty(), "{}: no row of {PAGE}", path.display());
    }
    for path in files(&["simulator/profiles"], &["toml"]) {
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(page.contains(&format!("`{name}`")), "{name} is not in {PAGE}");
    }
}
