//! A reader that closes the output (`vcuda smi --watch | head -1`) ends a command with status 0 and no message.

use std::cell::Cell;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use vcuda_tests::{Fixture, Running, release_dir, soon, succeeded, text};

/// Commands that need no manager.
const ALONE: [&str; 17] = [
    "smi",
    "smi --json",
    "smi -L",
    "smi -q",
    "smi --query-gpu=name,memory.total --format=csv",
    "smi --query-tenants=name,memory.used --format=csv",
    "smi dmon -c 1",
    "smi pmon -c 1",
    "ps",
    "ps --json",
    "doctor --json",
    "sim report",
    "sim report --json",
    "completions bash",
    "man",
    "--help",
    "--version",
];
/// Commands that ask the manager.
const MANAGED: [&str; 12] = [
    "smi",
    "smi --json",
    "ps",
    "grant list",
    "grant list --json",
    "gpu list",
    "gpu list --json",
    "usage",
    "usage --json",
    "usage --csv",
    "events",
    "events --json",
];

/// `vcuda` with these words.
fn vcuda(fixture: &Fixture, words: &str) -> Command {
    fixture.vcuda(words.split(' '))
}

/// Asserts that a command prints something, and that it ends with status 0 and no message if its reader has closed the output.
fn ends_quietly(mut command: Command) {
    let printed = command.output().unwrap();
    assert!(!printed.stdout.is_empty(), "{command:?}: {}", text(&printed));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = command.stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{command:?}: {}", text(&ended));
    assert!(ended.stderr.is_empty(), "{command:?}: {}", text(&ended));
}

/// Reads the first line of a command that goes on, closes its output and returns the line.
fn head(running: &mut Child) -> String {
    let mut line = String::new();
    let mut output = BufReader::new(running.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    line
}

/// Asserts that a command that goes on for ever ends with status 0 and no message after its reader took one line. `meanwhile` is
/// called until then.
fn ends_after_a_line(fixture: &Fixture, words: &str, meanwhile: impl Fn()) {
    let mut command = vcuda(fixture, words);
    let mut running = Running::start(command.stderr(Stdio::piped()));
    assert!(!head(&mut running.0).is_empty(), "{words}");
    soon(words, || {
        meanwhile();
        !running.is_alive()
    });
    let status = running.finish();
    let said = std::io::read_to_string(running.0.stderr.take().unwrap()).unwrap();
    assert_eq!((status.code(), said.as_str()), (Some(0), ""), "{words}");
}

#[test]
fn a_closed_output_is_no_failure_of_a_command() {
    let fixture = Fixture::new();
    for words in ALONE {
        ends_quietly(vcuda(&fixture, words));
    }
    for program in ["vcuda-manager", "vcuda-kubernetes", "kubectl-vcuda"] {
        let mut command = Command::new(release_dir().join(program));
        command.arg("--help");
        ends_quietly(command);
    }
}

#[test]
fn a_closed_output_is_no_failure_of_what_the_manager_tells() {
    let fixture = Fixture::new();
    let _manager = fixture.manager();
    fixture.grant("web", &["--memory", "2GiB"]);
    for words in MANAGED {
        ends_quietly(vcuda(&fixture, words));
    }
}

#[test]
fn what_is_watched_ends_when_its_reader_has_enough() {
    let fixture = Fixture::new();
    for words in [
        "smi --watch",
        "smi --watch --json",
        "smi -l 1",
        "smi -q -l 1",
        "smi --query-gpu=name --format=csv -l 1",
        "smi dmon",
        "smi pmon",
    ] {
        ends_after_a_line(&fixture, words, || {});
    }
}

/// The end comes with the next event.
#[test]
fn events_that_are_followed_end_when_their_reader_has_enough() {
    let fixture = Fixture::new();
    let _manager = fixture.manager();
    // The first line.
    fixture.grant("web", &["--memory", "2GiB"]);
    let told = |words: &str| succeeded(&vcuda(&fixture, words).output().unwrap());
    let made = Cell::new(0);
    for words in ["events --follow", "events --follow --json"] {
        ends_after_a_line(&fixture, words, || {
            // An event of a tenant that has had none, a second later.
            made.set(made.get() + 1);
            told(&format!("grant create web{} --memory 2GiB", made.get()));
            told(&format!("set web{} --memory 3GiB --for 1s", made.get()));
            thread::sleep(Duration::from_millis(1500));
        });
    }
}
