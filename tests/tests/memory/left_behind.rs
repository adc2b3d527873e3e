//! Memory of a dead process counts until the driver has released it: while a forked child has the driver's descriptors, and
//! shortly after (I18). Then the next process gets all of it without a refusal (I8).

use std::process::Command;

use vcuda_tests::{Door, Fixture, MIB, Running, app};

/// Contexts fit beside the pieces, without room for one more piece.
const MACHINE: &str = "context_bytes = \"4MiB\"\ngranularity_bytes = 1\n[[gpus]]\nmemory_bytes = \"8GiB\"\n";
const PIECE: u64 = 64 * MIB;
const FITTING: u64 = 4;
const QUOTA: u64 = FITTING * PIECE + 48 * MIB;

fn quota() -> [String; 2] {
    ["--memory".to_owned(), format!("{QUOTA}B")]
}

/// Starts the program under test in a tenant.
fn start(command: &mut Command, how: &str) -> Running {
    Running::start(command.args([how, &PIECE.to_string()]))
}

fn number_after(word: &str, running: &mut Running) -> u64 {
    let line = running.wait_for(word);
    line.trim_start_matches(word).trim().parse().unwrap()
}

fn kill(pid: u64) {
    let pid = i32::try_from(pid).unwrap();
    // SAFETY: a process that a program of this test has forked.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
}

#[test]
fn a_child_without_exec_keeps_what_its_dead_parent_had() {
    let fixture = Fixture::with_config(MACHINE);
    let tenant = fixture.keep("one", &quota().each_ref().map(String::as_str));
    let program = || tenant.command(app("leave_behind", Door::Dlsym));
    let mut parent = start(&mut program(), "child");
    assert_eq!(number_after("filled", &mut parent), FITTING);
    let child = number_after("child", &mut parent);
    parent.kill();
    assert_eq!(fixture.used_bytes() / PIECE, FITTING, "the simulated driver keeps it");
    assert_eq!(tenant.used_bytes(), fixture.used_bytes());
    let mut next = start(&mut program(), "alone");
    assert_eq!(number_after("filled", &mut next), 0, "nothing is released");
    next.kill();
    kill(child);
    let mut last = start(&mut program(), "alone");
    assert_eq!(number_after("filled", &mut last), FITTING, "everything is");
    let peak = fixture.peak_bytes(0);
    assert!(peak <= QUOTA, "{peak} of {QUOTA} bytes");
}

#[test]
fn an_exec_does_not_free_what_a_child_keeps() {
    let fixture = Fixture::with_config(MACHINE);
    let tenant = fixture.keep("one", &quota().each_ref().map(String::as_str));
    let mut running = start(&mut tenant.command(app("leave_behind", Door::Dlsym)), "exec");
    assert_eq!(number_after("filled", &mut running), FITTING);
    let child = number_after("child", &mut running);
    assert_eq!(number_after("filled", &mut running), 0, "the program after the exec");
    let peak = fixture.peak_bytes(0);
    assert!(peak <= QUOTA, "{peak} of {QUOTA} bytes");
    kill(child);
}

/// A driver that releases at once, and one with a delay.
#[test]
fn what_the_dead_had_is_there_for_the_next_at_once() {
    for profile in ["", "profile = \"a100-535-container\"\n"] {
        let fixture = Fixture::with_config(&format!("{profile}{MACHINE}"));
        let tenant = fixture.keep("one", &quota().each_ref().map(String::as_str));
        for round in 0..10 {
            let mut running = start(&mut tenant.command(app("leave_behind", Door::Dlsym)), "alone");
            assert_eq!(number_after("filled", &mut running), FITTING, "round {round}, {profile}");
            running.kill();
        }
        let peak = fixture.peak_bytes(0);
        assert!(peak <= QUOTA, "{peak} of {QUOTA} bytes, {profile}");
    }
}
