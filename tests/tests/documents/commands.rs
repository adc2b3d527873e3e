//! What pages give to paste is accepted: each command line of our programs by its program, each value of the chart by its defaults.

use std::path::Path;
use std::process::Command;

use vcuda_tests::sources::{in_backticks, pages, read};
use vcuda_tests::{release_dir, text, workspace};

/// Our programs; `kubectl vcuda` is the plugin.
const PROGRAMS: [&str; 5] = ["vcuda", "vcuda-manager", "vcuda-bench", "vcuda-kubernetes", "kubectl-vcuda"];

/// The lines of a page's blocks, which are to be pasted. A backslash continues a line.
fn pasted(page: &str) -> Vec<String> {
    let text = page.replace("\\\n", " ");
    let mut is_fenced = false;
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        is_fenced ^= line.starts_with("```");
        if is_fenced || line.starts_with("    ") {
            lines.push(line.trim().to_owned());
        }
    }
    lines
}

/// Commands in a page's sentences, without those that are forms: `NAME` stands for a name, `[--follow]` may be left out.
fn in_sentences(page: &str) -> Vec<String> {
    let is_form = |word: &str| {
        word.contains(['[', '.', '…']) && !word.contains('/')
            || (word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase()))
    };
    let spans = in_backticks(page).into_iter().filter(|span| !span.split(' ').any(is_form));
    spans.map(str::to_owned).collect()
}

/// The commands of a line, each as its words. Comments are left out, and what the shell puts in by `$(...)` is a command too.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut words = vec![Vec::new()];
    let mut word = String::new();
    let mut quote = None;
    for c in format!("{line} ").chars() {
        let last = words.last_mut().unwrap();
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (Some(_), c) => word.push(c),
            (None, '#') if word.is_empty() => break,
            (None, ' ') if !word.is_empty() => last.push(std::mem::take(&mut word)),
            (None, ' ') => {}
            (None, '|' | '&' | ';' | '(' | ')' | '<' | '>') => {
                let ended = std::mem::take(&mut word);
                last.extend((!ended.is_empty() && ended != "$").then_some(ended));
                words.push(Vec::new());
            }
            (None, c) => word.push(c),
        }
    }
    words
}

/// A command of one of our programs, without what comes before it: its name, and its words up to the program that it runs.
fn own(command: &[String]) -> Option<(String, Vec<String>)> {
    let is_before = |word: &&String| *word == "sudo" || *word == "exec" || word.contains('=');
    let mut words = command.iter().skip_while(is_before).cloned().peekable();
    let first = words.next()?;
    let mut name = Path::new(&first).file_name()?.to_str()?.to_owned();
    if name == "kubectl" && words.next_if_eq("vcuda").is_some() {
        name = "kubectl-vcuda".to_owned();
    }
    let words = words.take_while(|word| word != "--").collect();
    PROGRAMS.contains(&name.as_str()).then_some((name, words))
}

/// Why a program does not take these words. It reads those before `--help` and does nothing.
fn refusal(name: &str, words: &[String]) -> Option<String> {
    let output = Command::new(release_dir().join(name)).args(words).arg("--help").output().unwrap();
    (!output.status.success()).then(|| text(&output))
}

#[test]
fn each_command_is_one_of_its_program() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for page in pages() {
        let text = read(&page);
        for line in pasted(&text).into_iter().chain(in_sentences(&text)) {
            for (name, words) in commands(&line).iter().filter_map(|command| own(command)) {
                count += 1;
                // An option without its value is named, not used.
                let why = refusal(&name, &words).filter(|why| !why.contains("but none was supplied"));
                wrong.extend(why.map(|why| format!("{}: {line}: {why}", page.display())));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 100, "only {count} commands were found");
    // The test itself: a misspelt option is seen.
    assert!(refusal("vcuda", &["run".to_owned(), "--memoy".to_owned()]).is_some());
}

/// Whether the chart's defaults have this key, or one above it is a table that they leave empty.
fn has_value(values: &str, key: &str) -> bool {
    let mut lines = values.lines().filter(|line| !line.trim_start().starts_with('#'));
    key.split('.').enumerate().all(|(depth, part)| {
        let (indent, name) = ("  ".repeat(depth), format!("{part}:"));
        // What follows less indented is another table.
        let mut below = lines
            .by_ref()
            .take_while(|line| depth == 0 || line.trim().is_empty() || line.starts_with(&indent));
        below.any(|line| line.strip_prefix(&indent).is_some_and(|line| line.starts_with(&name)))
    })
}

#[test]
fn each_value_is_one_of_the_chart() {
    let values = read(&workspace().join("deploy/helm/vcuda/values.yaml"));
    let mut count = 0;
    for page in pages() {
        let text = read(&page);
        for line in pasted(&text).into_iter().chain(in_sentences(&text)) {
            for pair in line.split("--set ").skip(1).filter_map(|rest| rest.split([' ', '`']).next()) {
                for (key, _) in pair.split(',').filter_map(|set| set.split_once('=')) {
                    // The namespaces are the user's, each with the keys of one.
                    let is_known = key.starts_with("namespaces.") || has_value(&values, key);
                    assert!(is_known, "{}: the chart has no {key}", page.display());
                    count += 1;
                }
            }
        }
    }
    assert!(count > 3, "only {count} values were found");
    assert!(!has_value(&values, "image.nonsense") && !has_value(&values, "nonsense"));
}
