//! Documents agree with the programs: each documented message is in the sources, and each event of the manager is
//! documented.

use std::collections::BTreeSet;

use vcuda_tests::sources::{files, in_backticks, pages, read};
use vcuda_tests::workspace;

/// First cells of all tables whose first column is "message": texts that our programs print, with `...` for variable parts.
fn messages(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_inside = false;
    for line in page.lines() {
        let cell = line.strip_prefix("| ").and_then(|rest| rest.split(" | ").next());
        is_inside = match cell {
            Some("message") => true,
            Some(cell) if is_inside => {
                found.extend(in_backticks(cell).into_iter().map(str::to_owned));
                true
            }
            _ => is_inside && line.starts_with('|'),
        };
    }
    found
}

/// Sources of the programs, with multi-line strings joined.
fn printed() -> String {
    let folders = ["cli", "crates", "manager", "plugin", "shim"];
    let sources = files(&folders, &["rs"]);
    let mut text = String::new();
    for path in sources {
        let mut lines = read(&path);
        while let Some(at) = lines.find("\\\n") {
            let rest = lines[at + 2..].trim_start().to_owned();
            lines.truncate(at);
            lines += &rest;
        }
        text += &lines;
    }
    text.replace("\\\"", "\"")
}

#[test]
fn each_explained_message_is_printed() {
    let printed = printed();
    let mut explained = BTreeSet::new();
    for page in pages() {
        explained.extend(messages(&read(&page)));
    }
    assert!(explained.len() > 7, "only {} messages were found", explained.len());
    for message in explained {
        for piece in message.split("...").map(str::trim).filter(|piece| !piece.is_empty()) {
            assert!(printed.contains(piece), "no program prints {piece:?} of {message:?}");
        }
    }
}

/// Reasons of events in a text: words in quotation marks or backticks that begin with "Vcuda".
fn reasons<'a>(text: &'a str, mark: &str) -> BTreeSet<&'a str> {
    let words = text.split(mark).filter(|word| word.starts_with("Vcuda"));
    words.filter(|word| word.bytes().all(|b| b.is_ascii_alphabetic())).collect()
}

#[test]
fn each_reason_of_an_event_is_explained() {
    let code: String = files(&["manager/src"], &["rs"]).iter().map(|path| read(path)).collect();
    let page = read(&workspace().join("docs/generated/events.md"));
    let told = reasons(&code, "\"");
    assert!(told.len() > 20, "only {} reasons were found", told.len());
    assert_eq!(told, reasons(&page, "`"));
}
