//! `docs/hardware.md` is the one place of what the code believes about NVIDIA's driver: what refers to a row of it finds the
//! row, each program of `apps/hardware` is named there, and no other file of the code or the documentation says "assumed".
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it should be"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use vcuda_tests::workspace;

const PAGE: &str = "docs/hardware.md";

/// Names of rows: headings of the third level, and first columns of tables.
fn rows() -> BTreeSet<String> {
    let page = fs::read_to_string(workspace().join(PAGE)).unwrap();
    let headings = page.lines().filter_map(|line| line.strip_prefix("### "));
    let columns = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    headings.chain(columns).map(str::to_owned).collect()
}

/// All files below these folders and with these endings, but build results.
fn files(folders: &[&str], endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = folders.iter().map(|folder| workspace().join(folder)).collect();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
            if path.is_dir() && !path.ends_with("target") {
                open.push(path);
            } else if endings.contains(&ending) {
                found.push(path);
            }
        }
    }
    found
}

/// The text as one line, without the beginnings of comment lines, so that a reference may go over a line's end.
fn in_one_line(text: &str) -> String {
    let beginning = |line: &str| -> String {
        let line = line.trim_start();
        let rest = line.trim_start_matches(['/', '!', '*', '#']);
        rest.trim_start().to_owned()
    };
    text.lines().map(beginning).collect::<Vec<_>>().join(" ")
}

/// The names that follow `docs/hardware.md, `: one in quotation marks, or several with commas or "and" between.
fn references(text: &str) -> Vec<String> {
    let text = in_one_line(text);
    let mut names = Vec::new();
    for after in text.split(PAGE).skip(1) {
        let mut rest = after.trim_start_matches('`');
        while let Some(quoted) = [", \"", " and \"", ", and \""]
            .iter()
            .find_map(|p| rest.strip_prefix(p))
        {
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
        &[
            "cli",
            "docs",
            "manager",
            "plugin",
            "region",
            "scripts",
            "shim",
            "simulator",
            "tests",
        ],
        &["rs", "c", "h", "md", "sh", "toml", "py"],
    );
    let mut count = 0;
    for path in sources {
        if path.ends_with("tests/tests/beliefs.rs") {
            continue;
        }
        for name in references(&fs::read_to_string(&path).unwrap()) {
            assert!(
                rows.contains(&name),
                "{}: no row {name:?} in {PAGE}",
                path.display()
            );
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
fn each_program_and_profile_is_on_the_page() {
    let page = fs::read_to_string(workspace().join(PAGE)).unwrap();
    let named = |path: &Path| {
        let name = path.file_stem().unwrap().to_str().unwrap();
        page.contains(&format!("`{name}`")) || page.contains(&format!("`{name}-"))
    };
    let programs = files(&["tests/apps/hardware"], &["c"]);
    let profiles = files(&["simulator/profiles"], &["toml"]);
    for path in programs.iter().chain(&profiles) {
        assert!(named(path), "{} is not in {PAGE}", path.display());
    }
}
