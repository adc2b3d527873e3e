//! The project's files as texts, for tests that compare documents with code.

use std::fs;
use std::path::{Path, PathBuf};

use crate::workspace;

/// All files below these folders with these endings, without build results.
pub fn files(folders: &[&str], endings: &[&str]) -> Vec<PathBuf> {
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

/// The text as one line without comment markers, so that a reference may span lines.
pub fn in_one_line(text: &str) -> String {
    let beginning = |line: &str| -> String {
        let line = line.trim_start();
        let rest = line.trim_start_matches(['/', '!', '*', '#']);
        rest.trim_start().to_owned()
    };
    text.lines().map(beginning).collect::<Vec<_>>().join(" ")
}

/// Documentation pages.
pub fn pages() -> Vec<PathBuf> {
    let mut pages = files(&["docs", "simulator"], &["md"]);
    pages.extend(
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
            .map(|name| workspace().join(name)),
    );
    pages
}

/// A file's text.
pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// Texts in backticks on a page, outside code blocks.
pub fn in_backticks(page: &str) -> Vec<&str> {
    page.lines()
        .filter(|line| !line.starts_with("    ") && !line.starts_with("```"))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect()
}
