//! Suspended tenants: real processes whose GPU memory goes to the host's and comes back at their next call.

mod checks;
mod demands;
mod duration;
mod failures;
mod neighbour;
mod pods;
mod returned;
mod room;

use std::process::{Command, Output};
use std::time::Duration;

use vcuda_region::process::Identity;
use vcuda_region::slots::Usage;
use vcuda_tests::{Door, Fixture, Running, app, eventually, soon, succeeded, text};

const SMALL: &str = "context_bytes = \"8MiB\"\n";
/// Steps that take a second, so that something can happen in them.
const SLOW: &str = "context_bytes = \"8MiB\"\n[driver]\ncheckpoint_fixed_ns = 1_000_000_000\n";

/// A started `suspended`.
struct Program(Running);

impl Program {
    fn start(command: &mut Command) -> Self {
        Self(Running::ready(command, "ready"))
    }

    fn in_grant(fixture: &Fixture, name: &str, door: Door) -> Self {
        Self::start(&mut fixture.in_grant(name, app("suspended", door)))
    }

    fn tell(&mut self, line: &str) {
        self.0.tell(line);
    }

    /// Tells it a line, and returns its answer without the line's first word.
    fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.answer(line)
    }

    fn answer(&mut self, line: &str) -> String {
        let answer = self.0.next_line().unwrap();
        let word = line.split(' ').next().unwrap();
        let rest = answer.strip_prefix(word);
        rest.unwrap_or_else(|| panic!("{line}: {answer}")).trim().to_owned()
    }
}

fn create(fixture: &Fixture, name: &str, more: &[&str]) {
    fixture.grant(name, &[&["--cores", "15"], more].concat());
}

fn suspendable(fixture: &Fixture, name: &str) {
    create(fixture, name, &["--memory", "1GiB", "--suspendable"]);
}

fn ask(fixture: &Fixture, command: &str, name: &str) -> Output {
    fixture.output([command, name])
}

#[track_caller]
fn done(fixture: &Fixture, command: &str, name: &str, id: &str, state: &str) {
    let said = succeeded(&ask(fixture, command, name));
    assert_eq!(said.trim(), format!("{id} {state}"));
}

/// What a refusal says, in one line.
#[track_caller]
fn refused(fixture: &Fixture, command: &str, name: &str) -> String {
    let output = ask(fixture, command, name);
    assert!(!output.status.success(), "{}", text(&output));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn state(fixture: &Fixture, id: &str) -> String {
    fixture.tenant_shown(id)["state"].as_str().unwrap().to_owned()
}

#[test]
fn contents_are_as_before_after_each_of_several_rounds() {
    let fixture = Fixture::with_config(SMALL);
    let _manager = fixture.manager();
    suspendable(&fixture, "a");
    let mut program = Program::in_grant(&fixture, "a", Door::Link);
    let used = fixture.used_bytes();
    for round in 0..5 {
        assert_eq!(program.ask("fill"), "0 intact", "round {round}");
        done(&fixture, "suspend", "a", "a-1", "suspended");
        assert_eq!(fixture.used_bytes(), 0, "round {round}");
        assert_eq!(fixture.smi()["gpus"][0]["memory_used_bytes"], 0, "round {round}: as the driver has it");
        let shown = fixture.tenant_shown("a-1");
        assert_eq!(shown["state"], "suspended");
        assert_eq!(shown["suspended_bytes"], shown["memory_used_bytes"]);
        assert!(shown["suspended_bytes"].as_u64().unwrap() >= 16 << 20, "{shown}");
        let marked = || fixture.stdout(["ps"]).contains(" a-1 (suspended)\n");
        assert!(marked());
        done(&fixture, "suspend", "a", "a-1", "suspended");
        done(&fixture, "resume", "a", "a-1", "running");
        assert!(!marked());
        assert_eq!(fixture.used_bytes(), used, "round {round}");
        let shown = fixture.tenant_shown("a-1");
        assert_eq!((&shown["state"], &shown["suspended_bytes"]), (&"running".into(), &0.into()));
        assert_eq!(program.ask("copy"), "0 intact", "round {round}");
    }
}

/// The simulated driver ends a process with SIGSEGV for some of these calls, if one reaches it while the state is away.
#[test]
fn the_first_call_whichever_it_is_brings_the_memory_back() {
    let fixture = Fixture::with_config(SMALL);
    let _manager = fixture.manager();
    for (name, door) in [("link", Door::Link), ("dlsym", Door::Dlsym), ("proc", Door::ProcAddress)] {
        suspendable(&fixture, name);
        let mut program = Program::in_grant(&fixture, name, door);
        program.tell("calls");
        let calls = program.0.next_line().unwrap();
        assert!(calls.split(' ').count() >= 20, "{calls}");
        let id = format!("{name}-{}", Door::ALL.iter().position(|one| *one == door).unwrap() + 1);
        for call in calls.split(' ').chain(["all", "all"]) {
            done(&fixture, "suspend", name, &id, "suspended");
            assert_eq!(program.ask(call), "0 intact", "{call} by {door:?}");
            assert_eq!(state(&fixture, &id), "running", "{call}");
        }
    }
}

/// Without a request, nothing brings it back; a waiting call waits for as long as there is no room.
#[test]
fn a_neighbour_can_have_the_memory_meanwhile() {
    let fixture = Fixture::with_config(&format!("{SMALL}[[gpus]]\nmemory_bytes = \"4GiB\"\n"));
    let _manager = fixture.manager();
    create(&fixture, "a", &["--memory", "2GiB", "--suspendable"]);
    let mut program = Program::in_grant(&fixture, "a", Door::Link);
    assert_eq!(program.ask("hold 300"), "0");
    let beside = ["grant", "create", "b", "--memory", "2GiB", "--cores", "20"];
    assert!(!fixture.output(beside).status.success());
    done(&fixture, "suspend", "a", "a-1", "suspended");
    fixture.stdout(beside);
    let mut neighbour = Program::in_grant(&fixture, "b", Door::Link);
    assert_eq!(neighbour.ask("hold 1700"), "0");
    let said = refused(&fixture, "resume", "a");
    assert!(said.contains("2 GiB") && said.contains("stays suspended"), "{said}");
    program.tell("stream-query");
    assert!(!program.0.prints_within(Duration::from_secs(2)));
    assert_eq!(state(&fixture, "a-1"), "suspended");
    assert_eq!(neighbour.ask("copy"), "0 intact");
    drop(neighbour);
    let release = || fixture.output(["grant", "release", "b"]);
    soon("the neighbour's grant ends", || release().status.success());
    assert_eq!(program.answer("stream-query"), "0 intact");
    assert_eq!(state(&fixture, "a-1"), "running");
    assert!(!fixture.output(beside).status.success());
}

#[test]
fn processes_of_a_tenant_go_and_come_together() {
    let fixture = Fixture::with_config(SMALL);
    let _manager = fixture.manager();
    suspendable(&fixture, "a");
    let mut programs: Vec<_> = (0..3).map(|_| Program::in_grant(&fixture, "a", Door::Link)).collect();
    let used = fixture.used_bytes();
    done(&fixture, "suspend", "a", "a-1", "suspended");
    assert_eq!(fixture.used_bytes(), 0);
    assert_eq!(programs[1].ask("event-query"), "0 intact");
    assert_eq!(fixture.used_bytes(), used);
    // One that ends while it is away keeps nothing from coming back.
    done(&fixture, "suspend", "a", "a-1", "suspended");
    drop(programs.pop());
    for program in &mut programs {
        assert_eq!(program.ask("all"), "0 intact");
    }
    // All at once, each with its own call.
    done(&fixture, "suspend", "a", "a-1", "suspended");
    for (program, call) in programs.iter_mut().zip(["launch", "stream-synchronize"]) {
        program.tell(call);
    }
    for (program, call) in programs.iter_mut().zip(["launch", "stream-synchronize"]) {
        assert_eq!(program.answer(call), "0 intact");
    }
}

#[test]
fn what_cannot_be_suspended_goes_on_and_the_reason_is_told() {
    let fixture = Fixture::with_config(SMALL);
    let _manager = fixture.manager();
    assert!(refused(&fixture, "suspend", "absent").contains("absent: no such tenant"));
    create(&fixture, "plain", &["--memory", "1GiB"]);
    let mut plain = Program::in_grant(&fixture, "plain", Door::Link);
    assert!(refused(&fixture, "suspend", "plain").contains("--suspendable"));
    assert_eq!(plain.ask("copy"), "0 intact");
    suspendable(&fixture, "empty");
    assert!(refused(&fixture, "suspend", "empty").contains("nothing to suspend"));
    for (name, word) in [("managed", "managed memory"), ("share", "shared with other processes")] {
        suspendable(&fixture, name);
        let mut program = Program::in_grant(&fixture, name, Door::Link);
        assert_eq!(program.ask(name), "0");
        let said = refused(&fixture, "suspend", name);
        assert!(said.contains(word), "{said}");
        assert_eq!(program.ask("all"), "0 intact", "{name}");
    }
    suspendable(&fixture, "busy");
    let mut busy = Program::in_grant(&fixture, "busy", Door::Link);
    assert_eq!(busy.ask("busy"), "0");
    let said = refused(&fixture, "suspend", "busy");
    assert!(said.contains("wait until its work is done"), "{said}");
    assert_eq!(busy.ask("hold 1"), "0");
    let smi = fixture.smi();
    for one in smi["gpus"][0]["tenants"].as_array().unwrap() {
        assert_eq!(one["state"], "running", "{one}");
    }
}

/// Another thread sits in a call of the driver: the tenant is in use.
#[test]
fn a_call_under_way_is_not_interrupted() {
    let fixture = Fixture::with_config(SMALL);
    let _manager = fixture.manager();
    suspendable(&fixture, "a");
    let mut program = Program::in_grant(&fixture, "a", Door::Link);
    assert_eq!(program.ask("busy"), "0");
    program.tell("context-synchronize");
    std::thread::sleep(Duration::from_millis(300));
    let said = refused(&fixture, "suspend", "a");
    assert!(said.contains("it began to use the GPU again"), "{said}");
    assert_eq!(state(&fixture, "a-1"), "running");
    assert!(program.0.is_alive());
}

/// A tenant that writes another tenant's process into its own files cannot have it suspended.
#[test]
fn a_process_of_another_tenant_is_never_locked() {
    let fixture = Fixture::with_config(SMALL);
    let _manager = fixture.manager();
    create(&fixture, "victim", &["--memory", "1GiB"]);
    let mut victim = Program::in_grant(&fixture, "victim", Door::Link);
    suspendable(&fixture, "a");
    let directory = fixture.runtime().join("vcuda/containers/a-2");
    let usage = Usage::open(&directory).unwrap();
    let slot = usage.claim(&Identity::of(victim.0.0.id()).unwrap()).unwrap();
    slot.declare_gate();
    let said = refused(&fixture, "suspend", "a");
    assert!(said.contains("has not registered"), "{said}");
    assert_eq!(victim.ask("all"), "0 intact");
    assert!(fixture.used_bytes() >= 16 << 20);
}

/// A run of `vcuda run` under the manager's root is suspended as a grant is.
#[test]
fn a_run_without_a_grant_is_suspended_too() {
    let fixture = Fixture::with_config(SMALL);
    let _manager = fixture.manager();
    let quota = ["--name", "job", "--memory", "1GiB", "--cores", "20", "--suspendable"];
    let mut program = Program::start(&mut fixture.tenant(&quota, app("suspended", Door::Link)));
    done(&fixture, "suspend", "job", "job", "suspended");
    assert_eq!(fixture.used_bytes(), 0);
    assert_eq!(program.ask("event-synchronize"), "0 intact");
    done(&fixture, "suspend", "job", "job", "suspended");
    program.0.kill();
    // The name is free again, for a tenant that runs.
    let mut again = Program::start(&mut fixture.tenant(&quota, app("suspended", Door::Link)));
    assert_eq!(again.ask("all"), "0 intact");
    // The manager has to see that the processes of the one before are gone.
    eventually("the new tenant runs", Duration::from_secs(10), || state(&fixture, "job") == "running");
    // Its own calls bring it back, not those of the one before.
    done(&fixture, "suspend", "job", "job", "suspended");
    assert_eq!(again.ask("all"), "0 intact");
}
