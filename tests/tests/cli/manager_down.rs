//! After the manager was killed its socket is left behind, and what it granted goes on: what the commands say then.

use std::path::PathBuf;
use std::process::{Command, Output};

use vcuda_tests::{Door, Fixture, MIB, Running, app, holding, succeeded, text};

const DOWN: &str = "is not running; its socket was left behind";

/// A node whose manager was killed after it granted `web` to a program that holds memory.
fn killed(fixture: &Fixture) -> Running {
    let mut manager = fixture.manager();
    fixture.grant("web", &["--memory", "4GiB"]);
    let program = holding(&mut fixture.in_grant("web", app("hold", Door::Dlsym)), 100 * MIB);
    manager.kill();
    program
}

/// `vcuda` as a user with another runtime directory than the manager's.
fn from_elsewhere(fixture: &Fixture, args: &[&str]) -> Command {
    let own: PathBuf = fixture.home().join("elsewhere");
    std::fs::create_dir_all(&own).unwrap();
    let mut command = fixture.vcuda(args);
    command.env("XDG_RUNTIME_DIR", own);
    command
}

/// Whether stderr has the one line.
fn tells(output: &Output) -> bool {
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines().count() == 1 && said.starts_with("vcuda: the manager of ") && said.contains(DOWN)
}

#[test]
fn what_shows_figures_says_so_and_shows_what_was_granted() {
    let fixture = Fixture::new();
    let program = killed(&fixture);
    let pid = program.0.id().to_string();
    for args in [&["smi"][..], &["smi", "-q"], &["ps"], &["smi", "--json"]] {
        for mut command in [fixture.vcuda(args), from_elsewhere(&fixture, args)] {
            let output = command.output().unwrap();
            assert!(output.status.success() && tells(&output), "{}", text(&output));
            let shown = String::from_utf8_lossy(&output.stdout);
            assert!(shown.contains("web-1") && shown.contains(&pid), "{shown}");
            // A heading of -q has the words, too.
            assert!(args == ["smi", "-q"] || !shown.contains("outside vcuda"), "{shown}");
        }
    }
}

/// One that is stopped accepts connections and does not answer.
#[test]
fn of_a_manager_that_hangs_the_files_tell() {
    let fixture = Fixture::new();
    let manager = fixture.manager();
    fixture.grant("web", &["--memory", "4GiB"]);
    let program = holding(&mut fixture.in_grant("web", app("hold", Door::Dlsym)), 100 * MIB);
    manager.signal(libc::SIGSTOP);
    let (table, archive) = (fixture.output(["smi"]), fixture.home().join("bundle.tar.gz"));
    assert!(table.status.success() && text(&table).contains("does not answer"), "{}", text(&table));
    let shown = String::from_utf8_lossy(&table.stdout);
    assert!(shown.contains("web-1") && shown.contains(&program.0.id().to_string()), "{shown}");
    let bundle = fixture.output(["support-bundle", archive.to_str().unwrap()]);
    assert!(bundle.status.success(), "{}", text(&bundle));
    // It waits once, and not for each part.
    assert_eq!(text(&bundle).matches("has not answered yet").count(), 1, "{}", text(&bundle));
    let listed = Command::new("tar").arg("-tzf").arg(&archive).output().unwrap();
    for part in ["smi.txt", "ps.txt", "doctor.txt", "versions.txt", "limits/web-1"] {
        assert!(text(&listed).contains(part), "{part}: {}", text(&listed));
    }
    manager.signal(libc::SIGCONT);
}

#[test]
fn a_table_without_tenants_does_not_propose_a_new_one() {
    let fixture = Fixture::new();
    let mut manager = fixture.manager();
    manager.kill();
    let output = fixture.output(["smi"]);
    assert!(tells(&output), "{}", text(&output));
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("no tenants are seen from here"), "{table}");
    assert!(!table.contains("start one with"), "{table}");
}

#[test]
fn set_says_so_for_a_name_of_no_own_run() {
    let fixture = Fixture::new();
    let _program = killed(&fixture);
    let set = |name: &str| fixture.output(["set", name, "--memory", "2GiB"]);
    let unknown = set("web");
    assert_eq!(unknown.status.code(), Some(69), "{}", text(&unknown));
    assert!(text(&unknown).contains(DOWN), "{}", text(&unknown));
    let _own = holding(
        &mut fixture.tenant(&["--memory", "1GiB", "--name", "own"], app("hold", Door::Dlsym)),
        100 * MIB,
    );
    succeeded(&set("own"));
}

#[test]
fn for_the_doctor_it_is_broken() {
    let fixture = Fixture::new();
    let diagnosis = || {
        let output = fixture.output(["doctor", "--sim"]);
        let findings = String::from_utf8(output.stdout).unwrap();
        let mut lines = findings.lines().map(str::to_owned);
        let line = lines.find(|line| line.contains("manager ")).unwrap();
        (output.status.code(), line)
    };
    assert!(diagnosis().1.starts_with("ok "), "{:?}", diagnosis());
    let mut manager = fixture.manager();
    // One that is stopped accepts connections and does not answer.
    manager.signal(libc::SIGSTOP);
    let (status, line) = diagnosis();
    assert!(status == Some(1) && line.starts_with("broken "), "{line}");
    manager.kill();
    let (status, line) = diagnosis();
    assert!(status == Some(1) && line.starts_with("broken "), "{line}");
    assert!(line.contains(DOWN), "{line}");
}

#[test]
fn the_manager_of_the_runtime_directory_is_found_without_its_name() {
    let fixture = Fixture::new();
    let _manager = fixture.manager();
    let mut list = fixture.vcuda(["grant", "list"]);
    succeeded(&list.env_remove("VCUDA_MANAGER").output().unwrap());
}
