//! `vcuda-checkpoint` moves the GPU state of real processes on the simulated GPU, and says what came of it.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use vcuda_machine::{CheckpointFault, Faults};
use vcuda_manager::checkpoint::Outcome;
use vcuda_region::process::Identity;
use vcuda_tests::{Door, Fixture, Running, app, release_dir, soon, text};

const SMALL: &str = "context_bytes = \"8MiB\"\n";
/// Steps that take a second, so that something can happen in them.
const SLOW: &str = "context_bytes = \"8MiB\"\n[driver]\ncheckpoint_fixed_ns = 1_000_000_000\n";

/// A started `moved`.
struct Target<'a> {
    fixture: &'a Fixture,
    program: Running,
    start_ticks: String,
}

fn checkpoint(fixture: &Fixture, step: &str, pid: u32, start_ticks: &str) -> Command {
    let mut command = fixture.bare(release_dir().join("vcuda-checkpoint"));
    command.args([step, "--pid", &pid.to_string(), "--start-ticks", start_ticks]);
    command
}

/// Start time of a process.
fn ticks(pid: u32) -> String {
    Identity::of(pid).unwrap().start_ticks.to_string()
}

impl<'a> Target<'a> {
    fn start(fixture: &'a Fixture, how: &str) -> Self {
        let mut command = fixture.bare(app("moved", Door::Dlsym));
        let program = Running::ready(command.arg(how), "ready");
        let start_ticks = ticks(program.0.id());
        Self { fixture, program, start_ticks }
    }

    /// The program for a step.
    fn command(&self, step: &str) -> Command {
        checkpoint(self.fixture, step, self.program.0.id(), &self.start_ticks)
    }

    /// Does a step.
    #[track_caller]
    fn expect(&self, step: &str, expected: Outcome) {
        let output = self.command(step).output().unwrap();
        let status = output.status.code().unwrap();
        let outcome = Outcome::of_status(status);
        assert_eq!(outcome, Some(expected), "{step}: {}", text(&output));
    }

    #[track_caller]
    fn expect_state(&self, expected: &str) {
        assert_eq!(self.state(), expected);
    }

    fn state(&self) -> String {
        let output = self.command("state").output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn call(&mut self) {
        self.program.tell("");
    }

    fn works(&mut self) {
        self.call();
        assert_eq!(self.program.next_line().unwrap(), "works");
    }

    fn kill(&mut self) {
        self.program.kill();
    }
}

fn set_fault(fixture: &Fixture, step: &str, fault: Option<CheckpointFault>) {
    let mut faults = Faults::default();
    *match step {
        "lock" => &mut faults.checkpoints.lock,
        "checkpoint" => &mut faults.checkpoints.checkpoint,
        "restore" => &mut faults.checkpoints.restore,
        _ => &mut faults.checkpoints.unlock,
    } = fault;
    faults.write(&fixture.machine()).unwrap();
}

/// A run of the program that does what it is asked.
struct Server(Running);

impl Server {
    fn start(fixture: &Fixture) -> Self {
        let mut command = fixture.bare(release_dir().join("vcuda-checkpoint"));
        Self(Running::start(command.arg("--serve").stdin(Stdio::piped())))
    }

    fn tell(&mut self, line: &str) {
        self.0.tell(line);
    }

    /// Outcome of a step, and the state of the process then.
    fn ask(&mut self, step: &str, target: &Target<'_>, limit_ms: u32) -> (Value, Value) {
        let (pid, start_ticks) = (target.program.0.id(), &target.start_ticks);
        self.tell(&format!(
            r#"{{"step":"{step}","pid":{pid},"start_ticks":{start_ticks},"limit_ms":{limit_ms}}}"#
        ));
        let report: Value = serde_json::from_str(&self.0.next_line().unwrap()).unwrap();
        assert_eq!((&report["step"], &report["pid"]), (&step.into(), &pid.into()));
        (report["outcome"].clone(), report["state"].clone())
    }
}

#[test]
fn a_run_does_one_step_after_the_other_for_several_processes() {
    let fixture = Fixture::with_config(SMALL);
    let mut targets = [Target::start(&fixture, "plain"), Target::start(&fixture, "plain")];
    let mut server = Server::start(&fixture);
    for (step, state) in [
        ("lock", "locked"),
        ("checkpoint", "checkpointed"),
        ("state", "checkpointed"),
        ("restore", "locked"),
        ("unlock", "running"),
    ] {
        for target in &targets {
            assert_eq!(server.ask(step, target, 5000), ("done".into(), state.into()), "{step}");
        }
    }
    targets.iter_mut().for_each(Target::works);
    // A step that fails is told, and the next one is done all the same.
    let [target, other] = &targets;
    assert_eq!(server.ask("restore", target, 5000).0, "wrong-state");
    assert_eq!(server.ask("lock", other, 5000).0, "done");
    drop(server.0.0.stdin.take());
    assert_eq!(server.0.finish().code(), Some(0));
}

#[test]
fn a_run_ends_after_a_step_without_an_answer_and_after_nonsense() {
    let fixture = Fixture::with_config(SMALL);
    let target = Target::start(&fixture, "plain");
    set_fault(&fixture, "lock", Some(CheckpointFault::Hangs));
    let mut server = Server::start(&fixture);
    assert_eq!(server.ask("lock", &target, 300), ("no-answer".into(), Value::Null));
    let status = server.0.finish().code();
    assert_eq!(status, Some(i32::from(Outcome::NoAnswer.status())));
    let wrong = [
        r#"{"step":"freeze","pid":1,"start_ticks":1,"limit_ms":1}"#,
        r#"{"step":"lock","pid":1,"start_ticks":0,"limit_ms":1}"#,
        "lock",
    ];
    for line in wrong {
        let mut server = Server::start(&fixture);
        server.tell(line);
        assert_eq!(server.0.finish().code(), Some(64), "{line}");
    }
}

/// The steps, with those that come before each.
const STEPS: [(&str, &[&str]); 4] =
    [("lock", &[]), ("checkpoint", &["lock"]), ("restore", &["lock", "checkpoint"]), ("unlock", &["lock"])];

#[test]
fn a_process_waits_while_it_is_away_and_goes_on_as_before() {
    let fixture = Fixture::with_config(SMALL);
    let mut target = Target::start(&fixture, "plain");
    target.works();
    let before = fixture.used_bytes();
    target.expect_state("running");
    target.expect("lock", Outcome::Done);
    target.call();
    assert!(!target.program.prints_within(Duration::from_millis(300)));
    let output = target.command("checkpoint").arg("--json").output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["step"], &report["outcome"], &report["state"], &report["error"]),
        (&"checkpoint".into(), &"done".into(), &"checkpointed".into(), &Value::Null)
    );
    assert_eq!(fixture.used_bytes(), 0);
    assert!(!target.program.prints_within(Duration::from_millis(300)));
    target.expect("restore", Outcome::Done);
    assert_eq!(fixture.used_bytes(), before);
    target.expect_state("locked");
    target.expect("unlock", Outcome::Done);
    assert_eq!(target.program.next_line().unwrap(), "works");
    target.works();
}

#[test]
fn each_outcome_has_its_exit_status() {
    let fixture = Fixture::with_config(SMALL);
    let plain = Target::start(&fixture, "plain");
    plain.expect("restore", Outcome::WrongState);
    let mut busy = Target::start(&fixture, "busy");
    let late = busy.command("lock").args(["--limit-ms", "100"]).status().unwrap();
    assert_eq!(late.code(), Some(i32::from(Outcome::NotReady.status())));
    busy.expect_state("running");
    busy.expect("lock", Outcome::Done);
    busy.expect("unlock", Outcome::Done);
    busy.works();
    let mut managed = Target::start(&fixture, "managed");
    managed.expect("lock", Outcome::Done);
    managed.expect("checkpoint", Outcome::NotSupported);
    managed.expect_state("locked");
    managed.expect("unlock", Outcome::Done);
    managed.works();
    plain.expect("lock", Outcome::Done);
    plain.expect("checkpoint", Outcome::Done);
    let mut filler = Running::start(fixture.bare(app("hold", Door::Dlsym)).arg((78_u64 << 30).to_string()));
    filler.wait_for("holding");
    let mut more = Running::start(fixture.bare(app("hold", Door::Dlsym)).args(vec!["4194304"; 600]));
    more.wait_for("holding");
    plain.expect("restore", Outcome::NoRoom);
    drop((filler, more));
    plain.expect("restore", Outcome::Refused);
    plain.expect("unlock", Outcome::WrongState);
}

/// A process that ends, or begins with a PID that another had, is not touched.
#[test]
fn only_the_process_that_began_then_is_asked() {
    let fixture = Fixture::with_config(SMALL);
    let mut target = Target::start(&fixture, "plain");
    let pid = target.program.0.id();
    let later: u64 = target.start_ticks.parse::<u64>().unwrap() + 1;
    let refused = checkpoint(&fixture, "lock", pid, &later.to_string()).status().unwrap();
    assert_eq!(refused.code(), Some(i32::from(Outcome::Gone.status())));
    target.expect_state("running");
    let own = std::process::id();
    let no_cuda = checkpoint(&fixture, "lock", own, &ticks(own)).status().unwrap();
    assert_eq!(no_cuda.code(), Some(i32::from(Outcome::NoCuda.status())));
    target.program.0.kill().unwrap();
    // Before its parent asks, its PID stays.
    soon("it has ended", || {
        let output = target.command("state").output().unwrap();
        output.status.code() == Some(i32::from(Outcome::Gone.status()))
    });
    target.kill();
    target.expect("state", Outcome::Gone);
}

#[test]
fn wrong_words_are_refused_and_an_old_driver_is_named() {
    let fixture = Fixture::with_config("profile = \"t4-470\"\n");
    let own = std::process::id();
    for (pid, ticks) in [("0", "1"), ("-1", "1"), ("x", "1"), ("1", "0"), ("1", ""), ("4294967297", "1")] {
        let mut command = fixture.bare(release_dir().join("vcuda-checkpoint"));
        let output = command
            .args(["lock", &format!("--pid={pid}"), &format!("--start-ticks={ticks}")])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(64), "{pid} {ticks}: {}", text(&output));
    }
    let mut unknown = checkpoint(&fixture, "freeze", own, "1");
    assert_eq!(unknown.status().unwrap().code(), Some(64));
    let mut limit = checkpoint(&fixture, "lock", own, "1");
    assert_eq!(limit.args(["--limit-ms", "0"]).status().unwrap().code(), Some(64));
    let unavailable = Some(i32::from(Outcome::NoDriver.status()));
    let old = checkpoint(&fixture, "lock", own, &ticks(own)).output().unwrap();
    assert_eq!(old.status.code(), unavailable, "{}", text(&old));
    let mut none = checkpoint(&fixture, "lock", own, &ticks(own));
    let none = none.args(["--cuda-library", "/no/driver.so"]).output().unwrap();
    assert_eq!(none.status.code(), unavailable, "{}", text(&none));
}

#[test]
fn a_step_that_fails_hangs_or_ends_its_target_is_told_apart() {
    for (step, before) in STEPS {
        let fixture = Fixture::with_config(SMALL);
        let mut target = Target::start(&fixture, "plain");
        for earlier in before {
            target.expect(earlier, Outcome::Done);
        }
        set_fault(&fixture, step, Some(CheckpointFault::Refused));
        target.expect(step, Outcome::Refused);
        set_fault(&fixture, step, Some(CheckpointFault::Hangs));
        let hung = target.command(step).args(["--limit-ms", "300"]).status().unwrap();
        assert_eq!(hung.code(), Some(i32::from(Outcome::NoAnswer.status())), "{step}");
        // What the driver has begun is done, whoever waits for it.
        set_fault(&fixture, step, None);
        let reached = ["running", "locked", "checkpointed", "locked", "running"];
        let index = before.len() + 1 + usize::from(step == "unlock") * 2;
        soon("the step is done", || target.state() == reached[index]);
        set_fault(&fixture, step, Some(CheckpointFault::Crashes));
        target.expect(step, Outcome::Gone);
        assert!(!target.program.finish().success());
        assert_eq!(fixture.used_bytes(), 0);
    }
}

#[test]
fn a_failed_process_is_lost() {
    for (step, before) in STEPS {
        let fixture = Fixture::with_config(SMALL);
        let target = Target::start(&fixture, "plain");
        for earlier in before {
            target.expect(earlier, Outcome::Done);
        }
        set_fault(&fixture, step, Some(CheckpointFault::Fails));
        target.expect(step, Outcome::Lost);
        target.expect_state("failed");
    }
}

/// Starts a step, and gives it the time to reach the driver.
fn begin(target: &Target<'_>, step: &str) -> Running {
    let running = Running::start(&mut target.command(step));
    std::thread::sleep(Duration::from_millis(300));
    running
}

#[test]
fn a_target_that_is_killed_in_a_step_leaves_nothing() {
    for (step, before) in &STEPS[..3] {
        let fixture = Fixture::with_config(SLOW);
        let mut target = Target::start(&fixture, if before.is_empty() { "busy" } else { "plain" });
        for earlier in *before {
            target.expect(earlier, Outcome::Done);
        }
        let mut running = begin(&target, step);
        target.kill();
        let status = running.finish().code();
        assert_eq!(status, Some(i32::from(Outcome::Gone.status())), "{step}");
        soon("its memory is free", || fixture.used_bytes() == 0);
    }
}

#[test]
fn a_step_whose_program_is_killed_is_finished_by_the_driver() {
    let fixture = Fixture::with_config(SLOW);
    let mut target = Target::start(&fixture, "busy");
    for (step, state) in [("lock", "locked"), ("checkpoint", "checkpointed"), ("restore", "locked")] {
        soon(state, || {
            // Again if it was killed too early.
            drop(begin(&target, step));
            target.state() == state
        });
    }
    target.expect("unlock", Outcome::Done);
    target.works();
}
