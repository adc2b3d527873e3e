//! Documents agree with the project: links are valid, named files and tests exist, and cited texts are there.

use std::collections::BTreeMap;
use std::path::PathBuf;

use vcuda_tests::sources::{files, in_backticks, in_one_line, pages, read};
use vcuda_tests::{threats, workspace};

/// Folders with code and documents.
const FOLDERS: [&str; 12] = [
    "benches",
    "cli",
    "cluster",
    "crates",
    "deploy",
    "docs",
    "fuzz",
    "manager",
    "plugin",
    "scripts",
    "shim",
    "simulator",
];

/// Parts of a text between two marks.
fn between<'a>(text: &'a str, open: &str, close: &str) -> Vec<&'a str> {
    let parts = text.split(open).skip(1);
    parts.filter_map(|part| part.split_once(close)).map(|(inside, _)| inside).collect()
}

/// GitHub's anchor of a heading: small letters, digits and hyphens.
fn anchor(heading: &str) -> String {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
        _ => None,
    };
    heading.trim_start_matches(['#', ' ']).chars().filter_map(kept).collect()
}

#[test]
fn each_link_leads_somewhere() {
    let mut count = 0;
    for page in pages() {
        for link in between(&read(&page), "](", ")") {
            if link.starts_with("http") {
                continue;
            }
            let (file, section) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            assert!(target.exists(), "{}: no file for ({link})", page.display());
            let is_there = |text: &str| {
                let mut headings = text.lines().filter(|line| line.starts_with('#'));
                headings.any(|heading| anchor(heading) == section)
            };
            assert!(
                section.is_empty() || is_there(&read(&target)),
                "{}: no section for ({link})",
                page.display()
            );
            count += 1;
        }
    }
    assert!(count > 50, "only {count} links were found");
}

/// Citations of pages in a text, such as `limits.md, "words"` or `limits.md: "words"`, as name and words.
fn citations(text: &str) -> Vec<(String, String)> {
    let text = in_one_line(text);
    let parts: Vec<&str> = text.split(".md").collect();
    let quoted = |after: &str| -> Option<String> {
        let after = after.trim_start_matches(['`', ')']);
        let words = after.strip_prefix(", \"").or_else(|| after.strip_prefix(": \""))?;
        Some(words.split_once('"')?.0.to_owned())
    };
    let mut found = Vec::new();
    for pair in parts.windows(2) {
        let name = pair[0].rsplit(['/', '(', '[', ' ', '`', '"']).next().unwrap();
        if let Some(words) = quoted(pair[1]) {
            found.push((format!("{name}.md"), words));
        }
    }
    found
}

#[test]
fn what_the_code_cites_is_on_the_page() {
    let texts: BTreeMap<String, String> = pages()
        .iter()
        .map(|page| (page.file_name().unwrap().to_str().unwrap().to_owned(), in_one_line(&read(page))))
        .collect();
    let mut count = 0;
    let mut sources = files(&FOLDERS, &["rs", "md", "sh", "yaml", "toml", "py", "proto"]);
    sources.extend(files(&["tests"], &["rs", "c", "h"]));
    sources.extend(pages());
    for path in sources {
        if path.ends_with("tests/tests/documents/documents.rs") {
            continue;
        }
        for (page, words) in citations(&read(&path)) {
            // `beliefs.rs` checks the rows of this page.
            let Some(text) = texts.get(&page).filter(|_| page != "hardware.md") else {
                continue;
            };
            assert!(text.contains(&words), "{}: {page} has no {words:?}", path.display());
            count += 1;
        }
    }
    assert!(count > 4, "only {count} citations were found");
}

/// Expands braces: `a/{b,c}.rs` to `a/b.rs` and `a/c.rs`.
fn expanded(path: &str) -> Vec<String> {
    match path.split_once('{').and_then(|(head, rest)| Some((head, rest.split_once('}')?))) {
        None => vec![path.to_owned()],
        Some((head, (inside, tail))) => inside.split(',').map(|one| format!("{head}{one}{tail}")).collect(),
    }
}

#[test]
fn each_named_file_exists() {
    let mut count = 0;
    for page in pages() {
        for name in in_backticks(&read(&page)) {
            let folder = name.split('/').next().unwrap_or_default();
            let is_ours = name.contains('/') && (FOLDERS.contains(&folder) || folder == "tests");
            if !is_ours || name.contains([' ', '<', '*', ':']) {
                continue;
            }
            for path in expanded(name) {
                assert!(workspace().join(&path).exists(), "{}: no file {path}", page.display());
                count += 1;
            }
        }
    }
    assert!(count > 100, "only {count} files were found");
}

#[test]
fn the_page_of_threats_is_up_to_date() {
    let path = workspace().join("docs/generated/threats.md");
    if std::env::var_os("VCUDA_UPDATE").is_some() {
        std::fs::write(&path, threats::page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == threats::page(),
        "docs/generated/threats.md is stale: its first line has the command that writes it"
    );
}

#[test]
fn each_threat_names_real_tests() {
    let sources = files(&["cli", "cluster", "crates", "fuzz", "manager", "shim", "tests"], &["rs"]);
    let sources: Vec<(PathBuf, String)> =
        sources.into_iter().map(|path| (path.clone(), read(&path))).collect();
    let is_in = |file: &str, test: &str| {
        let mut named = sources.iter().filter(|(path, _)| file.is_empty() || path.ends_with(file));
        named.any(|(_, code)| {
            [format!("fn {test}("), format!("    {test}: ")].iter().any(|name| code.contains(name))
        })
    };
    let page = read(&workspace().join("docs/generated/threats.md"));
    let mut count = 0;
    for line in page.lines() {
        let mut file = "";
        for cited in in_backticks(line) {
            let test = cited.rsplit(' ').next().unwrap();
            if let Some((named, _)) = cited.split_once(": ") {
                file = named;
            }
            if test.matches('_').count() >= 3 && test.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') {
                assert!(is_in(file, test), "no test {test} in {file:?}");
                count += 1;
            }
        }
    }
    assert!(count > 25, "only {count} tests were found");
}
