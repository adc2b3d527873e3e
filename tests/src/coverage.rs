//! Coverage gate: the treatment of each function that a driver exports or a toolkit declares.
//!
//! A name is *hooked* by a row with a handler, or *passed through* for a reason in `tests/coverage/passed.txt`.
//! `tests/coverage/memory.txt` lists the functions that concern device memory; they may be passed only for a reason without
//! cost. `docs/generated/coverage.md` is made of all three.

mod page;

use std::collections::{BTreeMap, BTreeSet};

use vcuda_driver_api::names;

use crate::table::{self, Row};
use crate::workspace;

/// A kind of reason for passing a function through.
#[derive(Debug)]
pub struct Kind {
    /// The word in `passed.txt`.
    pub word: &'static str,
    /// Meaning of the treatment for a function.
    pub meaning: &'static str,
    /// Whether it permits passing a function that concerns device memory.
    pub is_free: bool,
}

/// The kinds of reasons.
pub const KINDS: &[Kind] = &[
    Kind { word: "question", meaning: "answers a question: takes nothing, changes nothing", is_free: true },
    Kind { word: "setting", meaning: "changes a setting, no memory", is_free: true },
    Kind { word: "host", meaning: "host memory, addresses or files only", is_free: true },
    Kind { word: "work", meaning: "work on memory that is charged already", is_free: true },
    Kind {
        word: "elsewhere",
        meaning: "its memory is charged or given back by another function",
        is_free: true,
    },
    Kind {
        word: "measured",
        meaning: "small memory of the driver's own, part of the measured overhead",
        is_free: true,
    },
    Kind {
        word: "unseen",
        meaning: "memory that is out of sight of this library: see [limits](../limits.md)",
        is_free: false,
    },
    Kind { word: "open", meaning: "an open door: should be hooked, is not yet", is_free: false },
];

/// Functions passed through for the same reason.
#[derive(Debug, Clone, Default)]
pub struct Passed {
    /// Kind, a word of [`KINDS`].
    pub kind: String,
    /// Title of the group.
    pub title: String,
    /// Reason for passing them through.
    pub reason: String,
    /// Their full names.
    pub names: Vec<String>,
}

/// All data about coverage.
#[derive(Debug, Clone)]
pub struct Coverage {
    /// All names of both libraries, of all versions.
    pub known: BTreeSet<String>,
    /// Rows of the hook table.
    pub hooked: Vec<Row>,
    /// Reasons for passing all others.
    pub passed: Vec<Passed>,
    /// Effect of a function on device memory, by its name.
    pub memory: BTreeMap<String, String>,
}

impl Coverage {
    /// The data of the working tree.
    pub fn of_the_tree() -> Self {
        let read = |file: &str| {
            let path = workspace().join(file);
            std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        let mut known: BTreeSet<String> =
            names::CUDA_EXPORTS.iter().chain(names::NVML_EXPORTS).map(|name| (*name).to_owned()).collect();
        // Other sources for names that the main rule may miss: base names, and symbols of look-ups.
        for file in ["driver-api-typedefs-12.9.tsv", "driver-api-typedefs-13.5.tsv"] {
            let text = read(&format!("crates/driver-api/data/{file}"));
            known.extend(text.lines().filter_map(|line| Some(line.split('\t').next()?.to_owned())));
        }
        let lookups = read("crates/driver-api/data/libcuda-550.163.01-procaddress.tsv");
        known.extend(lookups.lines().filter_map(|line| Some(line.split('\t').nth(3)?.to_owned())));
        Coverage {
            known,
            hooked: table::rows().into_iter().filter(|row| !row.is_gated()).collect(),
            passed: sections(&read("tests/coverage/passed.txt")),
            memory: memory(&read("tests/coverage/memory.txt")),
        }
    }

    /// Problems; none if every name is covered.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
        for row in &self.hooked {
            if seen.insert(&row.name, "the hook table").is_some() {
                problems.push(format!("{} has two rows in the hook table", row.name));
            }
        }
        for section in &self.passed {
            let title = section.title.as_str();
            if kind(&section.kind).is_none() {
                problems.push(format!("\"{title}\": there is no kind \"{}\"", section.kind));
            }
            if section.reason.is_empty() {
                problems.push(format!("\"{title}\" gives no reason"));
            }
            for name in &section.names {
                if let Some(before) = seen.insert(name, title) {
                    problems.push(format!(
                        "{name} is passed in \"{title}\" and stands in {before} too: remove it from tests/coverage/passed.txt"
                    ));
                }
            }
        }
        for name in seen.keys().filter(|name| !self.known.contains(**name)) {
            problems.push(format!("{name} is no name of crates/driver-api/data"));
        }
        for name in self.known.iter().filter(|name| !seen.contains_key(name.as_str())) {
            problems.push(format!(
                "{name} is neither hooked nor passed for a reason (tests/coverage/passed.txt)"
            ));
        }
        for name in self.memory.keys().filter(|name| !self.known.contains(*name)) {
            problems.push(format!("memory.txt: {name} is no name of crates/driver-api/data"));
        }
        problems
    }

    /// Functions that concern device memory and are passed for a reason that may have a cost.
    pub fn open_doors(&self) -> Vec<String> {
        let mut doors = Vec::new();
        for section in &self.passed {
            if kind(&section.kind).is_some_and(|kind| kind.is_free) {
                continue;
            }
            for name in &section.names {
                if let Some(what) = self.memory.get(name) {
                    doors.push(format!("{name} ({what}) is passed as {}: {}", section.kind, section.title));
                }
            }
        }
        doors
    }

    /// Text of `docs/generated/coverage.md`.
    pub fn page(&self) -> String {
        page::page(self)
    }
}

/// Removes names that are now hooked from `passed.txt`, and empty headings.
pub fn remove_hooked() {
    let path = workspace().join("tests/coverage/passed.txt");
    let rows = table::rows().into_iter().filter(|row| !row.is_gated());
    let hooked: BTreeSet<String> = rows.map(|row| row.name).collect();
    let text = std::fs::read_to_string(&path).unwrap();
    let mut parts = text.split("\n## ");
    let mut kept = parts.next().unwrap().to_owned();
    for part in parts {
        let lines = part.lines().filter_map(|line| {
            let Some(names) = line.strip_prefix("+ ") else {
                return Some(line.to_owned());
            };
            let passed: Vec<&str> = names.split(' ').filter(|name| !hooked.contains(*name)).collect();
            (!passed.is_empty()).then(|| format!("+ {}", passed.join(" ")))
        });
        let section: Vec<String> = lines.collect();
        if section.iter().any(|line| line.starts_with("+ ")) {
            kept += "\n## ";
            kept += &section.join("\n");
            kept += "\n";
        }
    }
    if kept != text {
        std::fs::write(&path, kept).unwrap();
    }
}

/// The kind with this word.
pub fn kind(word: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.word == word)
}

/// Parses `passed.txt`, whose first lines describe the format.
fn sections(text: &str) -> Vec<Passed> {
    let mut sections: Vec<Passed> = Vec::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            let (kind, title) =
                heading.split_once(": ").unwrap_or_else(|| panic!("passed.txt: no kind: {line}"));
            sections.push(Passed { kind: kind.to_owned(), title: title.to_owned(), ..Passed::default() });
        } else if let Some(section) = sections.last_mut() {
            if let Some(names) = line.strip_prefix("+ ") {
                section.names.extend(names.split_whitespace().map(str::to_owned));
            } else if !line.is_empty() {
                let space = if section.reason.is_empty() { "" } else { " " };
                section.reason += space;
                section.reason += line;
            }
        }
    }
    sections
}

/// Parses `memory.txt`, whose first lines describe the format.
fn memory(text: &str) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    let mut what = "";
    for line in text.lines().skip_while(|line| !line.is_empty()) {
        let listed = match line.split_once(": ") {
            Some((word, listed)) => {
                what = word;
                listed
            }
            None => line,
        };
        for name in listed.split_whitespace() {
            let before = names.insert(name.to_owned(), what.to_owned());
            assert!(before.is_none(), "memory.txt has {name} twice");
        }
    }
    names
}
