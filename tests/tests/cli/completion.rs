//! Completion in a real bash: names of tenants where a command takes one, and no internal command.

use std::process::Command;

use vcuda_region::clock::now_ns;
use vcuda_tests::{Fixture, release_dir, succeeded, text};

/// Words that bash offers for the last word of a line.
fn offered(fixture: &Fixture, line: &[&str]) -> Vec<String> {
    let words: Vec<String> = line.iter().map(|word| format!("'{word}'")).collect();
    let script = format!(
        "export PATH={}:$PATH; source <(vcuda completions bash); COMP_WORDS=({}); COMP_CWORD={}; COMP_TYPE=9\n\
         complete -p vcuda >/dev/null || exit 3\n\
         _clap_complete_vcuda vcuda \"${{COMP_WORDS[-1]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        release_dir().display(),
        words.join(" "),
        line.len() - 1
    );
    let mut command = Command::new("bash");
    fixture.environment(&mut command);
    let output = command.args(["-c", &script]).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", text(&output));
    let said = succeeded(&output);
    // Options are offered beside values.
    let values = said.lines().filter(|line| !line.is_empty() && !line.starts_with('-'));
    values.map(str::to_owned).collect()
}

#[test]
fn names_of_tenants_are_completed() {
    let fixture = Fixture::new();
    let kept = fixture.keep("jobs", &["--memory", "1GiB"]);
    assert_eq!(offered(&fixture, &["vcuda", "set", ""]), ["jobs"]);
    let _manager = fixture.manager();
    for name in ["web", "web-api"] {
        fixture.grant(name, &["--memory", "1GiB"]);
    }
    for line in [
        ["vcuda", "grant", "release", "w"].as_slice(),
        &["vcuda", "grant", "resize", "web"],
        &["vcuda", "grant", "show", ""],
        &["vcuda", "docker-args", ""],
        &["vcuda", "run", "--grant", "we"],
    ] {
        assert_eq!(offered(&fixture, line), ["web", "web-api"], "{line:?}");
    }
    assert_eq!(offered(&fixture, &["vcuda", "set", ""]), ["jobs", "web", "web-api"]);
    assert_eq!(offered(&fixture, &["vcuda", "set", "web", "web-"]), ["web-api"]);
    assert_eq!(offered(&fixture, &["vcuda", "run", "--name", ""]), ["jobs"]);
    assert_eq!(offered(&fixture, &["vcuda", "events", "--container", ""]), ["web-2", "web-api-3"]);
    assert!(offered(&fixture, &["vcuda", "grant", "release", "none"]).is_empty());
    drop(kept);
}

#[test]
fn words_of_a_command_are_completed_as_files() {
    let fixture = Fixture::new();
    for line in [["run", "--sim", "--"], ["sim", "--gpus=1", "--"]] {
        let line = [&["vcuda"], line.as_slice(), &["/etc/passw"]].concat();
        assert!(offered(&fixture, &line).contains(&"/etc/passwd".to_owned()), "{line:?}");
    }
}

#[test]
fn a_manager_that_hangs_has_no_names_and_does_not_keep_the_shell() {
    let fixture = Fixture::new();
    let manager = fixture.manager();
    fixture.grant("web", &["--memory", "1GiB"]);
    manager.signal(libc::SIGSTOP);
    for line in [["vcuda", "grant", "release", ""].as_slice(), &["vcuda", "set", ""]] {
        let begun_ns = now_ns();
        assert!(offered(&fixture, line).is_empty());
        let took_ns = now_ns() - begun_ns;
        assert!(took_ns < 5_000_000_000, "{took_ns}");
    }
    manager.signal(libc::SIGCONT);
}

#[test]
fn internal_commands_are_not_offered() {
    let fixture = Fixture::new();
    let all = offered(&fixture, &["vcuda", ""]);
    for shown in ["run", "smi", "usage", "grant", "doctor"] {
        assert!(all.iter().any(|word| word == shown), "{shown}: {all:?}");
    }
    for hidden in ["arbiter", "attached", "doctor-probe"] {
        assert!(all.iter().all(|word| word != hidden), "{hidden}: {all:?}");
    }
    assert_eq!(offered(&fixture, &["vcuda", "usage", "--by", ""]), ["tenant", "namespace", "user"]);
}

#[test]
fn a_shell_that_is_not_known_is_refused() {
    let fixture = Fixture::new();
    let output = fixture.output(["completions", "tcsh"]);
    assert_eq!(output.status.code(), Some(64), "{}", text(&output));
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = fixture.stdout(["completions", shell]);
        assert!(script.contains("VCUDA_COMPLETE"), "{shell}: {script}");
    }
}
