//! Reuse of PIDs: a dead process's memory is free, and an unrelated process with its PID is neither mistaken for it, nor
//! waited for, nor ended.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use vcuda_tests::{
    Commanded, Door, Fixture, GIB, MIB, Manager, Running, app, holding, release_dir, skip, soon, succeeded,
};

const HELD: u64 = 300 * MIB;

/// A process with the PID of one that has ended. `None` if this user cannot choose a PID.
struct Newcomer {
    pid: u32,
    /// Process that waits for it, and ends it with the test.
    keeper: Running,
}

impl Newcomer {
    /// Ends `old`, and starts a process with its PID.
    fn in_place_of(mut old: Running) -> Option<Self> {
        let pid = old.0.id();
        old.kill();
        // Processes are identified by PID and start time, which the kernel counts in ticks of 10 ms. A PID is never reused
        // within one tick by itself.
        std::thread::sleep(Duration::from_millis(20));
        let keeper = app("as_pid", Door::Dlsym);
        let begin = || {
            let mut command = Command::new(&keeper);
            command.args([pid.to_string().as_str(), "sh", "-c", "echo here; exec sleep 600"]);
            Running::start(&mut command)
        };
        let mut keeper = begin();
        match keeper.next_line() {
            Ok(line) => assert_eq!(line, "here"),
            // Neither root nor allowed to restore processes.
            Err(_) if keeper.finish().code() == Some(77) => {
                skip("reuse of process numbers: this user may not choose one here (clone3's set_tid)");
                return None;
            }
            Err(_) => panic!("{pid} was given to another meanwhile"),
        }
        Some(Self { pid, keeper })
    }

    fn lives(&mut self) {
        assert!(self.keeper.0.try_wait().unwrap().is_none(), "{} has ended", self.pid);
        let command = std::fs::read_to_string(format!("/proc/{}/cmdline", self.pid)).unwrap();
        assert!(command.starts_with("sleep"), "{command}");
    }
}

fn in_grant(fixture: &Fixture, program: &str) -> Command {
    fixture.in_grant("a", app(program, Door::Dlsym))
}

fn used(manager: &Manager<'_>) -> f64 {
    manager.metric("vcuda_container_memory_used_bytes", "container=\"a-1\"")
}

fn is_shown(fixture: &Fixture, pid: u32) -> bool {
    let shown = fixture.stdout(["ps", "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let mut lines = shown["processes"].as_array().unwrap().iter();
    lines.any(|line| line["pid"] == pid)
}

#[test]
fn a_process_with_the_number_of_a_dead_one_belongs_to_no_tenant() {
    let fixture = Fixture::new();
    let mut manager = fixture.manager();
    fixture.grant("a", &["--memory", "2GiB", "--cores", "30"]);
    let mut stays = Commanded::start(&mut in_grant(&fixture, "obey"));
    let mut newcomers = Vec::new();
    // It ends while the manager runs, and while there is none: then the next one knows only its slot.
    for is_there in [true, false] {
        let before = stays.info().0;
        let own = (2 * GIB - before) as f64;
        let old = holding(&mut in_grant(&fixture, "hold"), HELD);
        let pid = old.0.id();
        soon("it is known, and what it has", || {
            used(&manager) >= own + HELD as f64 && is_shown(&fixture, pid)
        });
        assert!(stays.info().0 + HELD <= before);
        if !is_there {
            manager.kill();
        }
        let Some(newcomer) = Newcomer::in_place_of(old) else {
            return;
        };
        newcomers.push(newcomer);
        if !is_there {
            manager.start_again();
        }
        soon("what the dead one had is free", || !is_shown(&fixture, pid) && used(&manager) == own);
        soon("to its neighbour too", || stays.info().0 == before);
        stays.fills_to_the_byte();
    }
    // Until the audit has looked, as a finding of another process shows: no process is suspected.
    let stranger = holding(&mut fixture.bare(app("hold", Door::Dlsym)), MIB);
    soon("the audit has looked", || fixture.events().contains("VcudaUnregistered"));
    for newcomer in &mut newcomers {
        newcomer.lives();
        let named = format!("process {} ", newcomer.pid);
        assert!(!fixture.events().contains(&named), "{}", fixture.events());
    }
    drop((stays, stranger));
    // No process of the tenant is left, whatever PIDs its slots have.
    let release = || fixture.output(["grant", "release", "a"]);
    soon("it can be released", || release().status.success());
    assert!(!fixture.runtime().join("vcuda/containers/a-1").exists());
    newcomers.iter_mut().for_each(Newcomer::lives);
}

#[test]
fn without_a_manager_as_well() {
    let fixture = Fixture::new();
    let tenant = fixture.keep("a", &["--memory", "2GiB"]);
    let directory = tenant.directory();
    let mut stays = Commanded::start(&mut tenant.command(app("obey", Door::Dlsym)));
    let before = stays.info().0;
    let old = holding(&mut tenant.command(app("hold", Door::Dlsym)), GIB);
    assert!(stays.info().0 + GIB <= before);
    let Some(mut newcomer) = Newcomer::in_place_of(old) else {
        return;
    };
    soon("what the dead one had is free", || stays.info().0 == before);
    stays.fills_to_the_byte();
    newcomer.lives();
    // The directory's keeper dies, and its PID is reused: the next command removes the directory.
    let last = stays.0;
    drop(tenant);
    let Some(mut second) = Newcomer::in_place_of(last) else {
        return;
    };
    soon("no process keeps the directory", || {
        succeeded(&fixture.tenant(&["--memory", "1GiB"], "true").output().unwrap());
        !directory.exists()
    });
    newcomer.lives();
    second.lives();
}

/// A folder with a `vcuda-manager` that runs in its own PID namespace and sees none of ours, as on a node that is itself a
/// container. `None` if this user cannot make one.
fn nested() -> Option<tempfile::TempDir> {
    const UNSHARE: &str = "unshare --pid --fork --kill-child --mount-proc";
    let may = Command::new("sh").args(["-c", &format!("{UNSHARE} true")]).output().unwrap();
    if !may.status.success() {
        skip("a manager in a PID namespace of its own: this user may not make one");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = release_dir().join("vcuda-manager");
    let script = format!("#!/bin/sh\nexec {UNSHARE} {} \"$@\"\n", program.display());
    let path = folder.path().join("vcuda-manager");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    Some(folder)
}

/// Waits for the end of a manager of [`nested`], which dies just after the program that made its namespace.
fn ended(fixture: &Fixture, manager: &mut Manager<'_>) {
    manager.kill();
    let state = fixture.home().join("state/ledger.lock");
    let locks = [fixture.runtime().join("vcuda/manager.lock"), state];
    // flock(1) of util-linux, as unshare(1) is.
    let taken = |path: &PathBuf| Command::new("flock").arg("-n").arg(path).arg("true").status();
    let is_free = |path: &PathBuf| taken(path).unwrap().success();
    soon("the manager has ended", || locks.iter().all(is_free));
}

#[test]
fn the_dead_of_a_namespace_that_cannot_be_seen_are_known_by_their_lock() {
    let Some(folder) = nested() else { return };
    let fixture = Fixture::new();
    let mut manager = fixture.manager_of(folder.path(), &[]);
    fixture.grant("a", &["--memory", "2GiB", "--cores", "30"]);
    // One ends while the manager runs, one while there is none: the next one knows only its slot and its free lock.
    for is_there in [true, false] {
        let mut one = holding(&mut in_grant(&fixture, "hold"), HELD);
        let pid = one.0.id();
        soon("it is known", || is_shown(&fixture, pid) && used(&manager) >= HELD as f64);
        if !is_there {
            ended(&fixture, &mut manager);
            manager.start_again();
            soon("it is known again", || is_shown(&fixture, pid));
            ended(&fixture, &mut manager);
        }
        one.kill();
        if !is_there {
            manager.start_again();
        }
        soon("what it had is free", || !is_shown(&fixture, pid) && used(&manager) == 0.0);
    }
    fixture.stdout(["grant", "release", "a"]);
}
