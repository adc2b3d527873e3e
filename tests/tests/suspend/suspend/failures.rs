//! Suspensions in which something fails: the manager, `vcuda-checkpoint`, the driver or a process of the tenant.

use std::process::Stdio;
use std::time::Duration;

use vcuda_machine::{CheckpointFault, Faults};
use vcuda_tests::{Door, Fixture, eventually, soon, text};

use super::{Program, SLOW, SMALL, done, refused, state, suspendable};

/// The manager is killed in each phase; the next one finishes or undoes what it finds.
#[test]
fn a_killed_manager_loses_no_process() {
    let fixture = Fixture::with_config(SLOW);
    let mut manager = fixture.manager();
    suspendable(&fixture, "a");
    let mut program = Program::in_grant(&fixture, "a", Door::Link);
    let used = fixture.used_bytes();
    // Each suspension and each resume takes about two seconds here: a kill at any time between begins of steps.
    for round in 0..8 {
        let mut suspend =
            fixture.vcuda(["suspend", "a"]).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(150 + 400 * round));
        manager.kill_and_restart();
        suspend.wait().unwrap();
        assert_eq!(program.ask("stream-query"), "0 intact", "round {round}");
        assert_eq!((state(&fixture, "a-1"), fixture.used_bytes()), ("running".into(), used));
    }
    for round in 0..4 {
        done(&fixture, "suspend", "a", "a-1", "suspended");
        manager.kill_and_restart();
        assert_eq!(state(&fixture, "a-1"), "suspended", "round {round}");
        program.tell("event-elapsed");
        std::thread::sleep(Duration::from_millis(100 + 500 * round));
        manager.kill_and_restart();
        assert_eq!(program.answer("event-elapsed"), "0 intact", "round {round}");
        assert_eq!((state(&fixture, "a-1"), fixture.used_bytes()), ("running".into(), used));
    }
}

fn set_faults(fixture: &Fixture, set: impl FnOnce(&mut Faults)) {
    let mut faults = Faults::default();
    set(&mut faults);
    faults.write(&fixture.machine()).unwrap();
}

#[test]
fn a_step_that_the_driver_refuses_is_undone_or_tried_again() {
    let fixture = Fixture::with_config(SMALL);
    let _manager = fixture.manager();
    suspendable(&fixture, "a");
    let mut program = Program::in_grant(&fixture, "a", Door::Link);
    let used = fixture.used_bytes();
    set_faults(&fixture, |faults| faults.checkpoints.lock = Some(CheckpointFault::Refused));
    assert!(refused(&fixture, "suspend", "a").contains("not suspended"));
    set_faults(&fixture, |faults| faults.checkpoints.checkpoint = Some(CheckpointFault::Refused));
    assert!(refused(&fixture, "suspend", "a").contains("not suspended"));
    assert_eq!((state(&fixture, "a-1"), fixture.used_bytes()), ("running".into(), used));
    assert_eq!(program.ask("stream-query"), "0 intact");
    set_faults(&fixture, |_| ());
    done(&fixture, "suspend", "a", "a-1", "suspended");
    set_faults(&fixture, |faults| faults.checkpoints.restore = Some(CheckpointFault::Refused));
    program.tell("stream-query");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(state(&fixture, "a-1"), "resuming");
    set_faults(&fixture, |_| ());
    assert_eq!(program.answer("stream-query"), "0 intact");
}

/// The driver ends the program that asks, or the target.
#[test]
fn a_process_that_is_lost_is_told_and_its_tenant_starts_anew() {
    let fixture = Fixture::with_config(SMALL);
    let manager = fixture.manager();
    suspendable(&fixture, "a");
    let mut program = Program::in_grant(&fixture, "a", Door::Link);
    done(&fixture, "suspend", "a", "a-1", "suspended");
    set_faults(&fixture, |faults| faults.checkpoints.restore = Some(CheckpointFault::Fails));
    let said = refused(&fixture, "resume", "a");
    assert!(said.contains("cannot be brought back") && said.contains("end it"), "{said}");
    assert_eq!(state(&fixture, "a-1"), "failed");
    let events = fixture.events();
    assert!(events.contains("VcudaSuspensionFailed"), "{events}");
    assert!(refused(&fixture, "suspend", "a").contains("lost its GPU state"));
    set_faults(&fixture, |_| ());
    program.0.kill();
    soon("the tenant runs again", || state(&fixture, "a-1") == "running");
    let mut program = Program::in_grant(&fixture, "a", Door::Link);
    assert_eq!(program.ask("all"), "0 intact");
    drop(manager);
}

#[test]
fn a_tenant_that_is_killed_while_it_is_away_leaves_nothing() {
    let fixture = Fixture::with_config(SLOW);
    let _manager = fixture.manager();
    suspendable(&fixture, "a");
    for wait_ms in [100, 700, 1500, 6000] {
        let mut program = Program::in_grant(&fixture, "a", Door::Link);
        let mut suspend =
            fixture.vcuda(["suspend", "a"]).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait_ms));
        program.0.kill();
        suspend.wait().unwrap();
        soon("it is gone", || fixture.used_bytes() == 0 && state(&fixture, "a-1") == "running");
    }
    let mut program = Program::in_grant(&fixture, "a", Door::Link);
    assert_eq!(program.ask("copy"), "0 intact");
}

/// Letter of a process's state, and its parent's PID; `None` if there is no such process, or it runs another program.
fn state_and_parent(pid: i32, program: &str) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (name, rest) = stat.split_once(") ")?;
    let mut words = rest.split(' ');
    let state = words.next()?.chars().next()?;
    let parent = words.next()?.parse().ok()?;
    // The kernel keeps 15 bytes of a name.
    name.ends_with(&program[..15]).then_some((state, parent))
}

/// PIDs of the children of a process that run this program.
fn children(parent: u32, program: &str) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| state_and_parent(*pid, program).is_some_and(|(_, found)| found == parent)).collect()
}

/// Kills a process that has not ended yet. One that has ended, but is not waited for, takes a signal, too, so it is stopped
/// first: only a living process stops.
fn kill_living(pid: i32, program: &str) -> bool {
    // SAFETY: kill takes no pointers; the process is a child of this test's manager.
    if unsafe { libc::kill(pid, libc::SIGSTOP) } != 0 {
        return false;
    }
    loop {
        match state_and_parent(pid, program) {
            None | Some(('Z' | 'X', _)) => return false,
            Some(('T', _)) => break,
            Some(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    // SAFETY: as above.
    unsafe { libc::kill(pid, libc::SIGKILL) == 0 }
}

/// Kills a run of `vcuda-checkpoint`, if one begins soon.
fn kill_helper(manager: u32) {
    let program = "vcuda-checkpoint";
    eventually("a helper is met", Duration::from_secs(20), || {
        children(manager, program).into_iter().filter(|pid| kill_living(*pid, program)).count() > 0
    });
}

/// `vcuda-checkpoint` is killed in the middle of any step.
#[test]
fn a_killed_helper_loses_no_process() {
    let fixture = Fixture::with_config(SLOW);
    let manager = fixture.manager();
    suspendable(&fixture, "a");
    let mut program = Program::in_grant(&fixture, "a", Door::Link);
    let used = fixture.used_bytes();
    for round in 0..4 {
        let offset = Duration::from_millis(200 * round);
        let mut suspend = fixture.vcuda(["suspend", "a"]);
        let suspend = suspend.stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(offset);
        kill_helper(manager.pid());
        let said = text(&suspend.wait_with_output().unwrap());
        assert!(said.contains("not suspended"), "{said}");
        assert_eq!(program.ask("stream-query"), "0 intact", "round {round}");
        assert_eq!(fixture.used_bytes(), used, "round {round}");
        done(&fixture, "suspend", "a", "a-1", "suspended");
        program.tell("stream-query");
        std::thread::sleep(offset);
        kill_helper(manager.pid());
        assert_eq!(program.answer("stream-query"), "0 intact", "round {round}");
        assert_eq!(fixture.used_bytes(), used, "round {round}");
    }
}
