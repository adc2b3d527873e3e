//! Virtual time (`simulator/clock`) with unmodified programs, in a world that is run step by step.

use std::process::{Command, Stdio};
use std::time::Duration;

use vcuda_clock::{Costs, World};
use vcuda_tests::{Door, Running, app, eventually, release_dir};

const US: u64 = 1_000;
const SECOND: u64 = 1_000_000_000;

/// A world, with the time of its beginning (ns).
struct Stage {
    world: World,
    start_ns: u64,
    dir: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let library = release_dir().join("libvcuda_virtual_clock.so");
        let world = World::create(&dir.path().join("world"), &library, Costs::default()).unwrap();
        let start_ns = world.now_ns();
        Stage { world, start_ns, dir }
    }

    fn program(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(app("virtual_time", Door::Dlsym));
        let (what, rest) = arguments.split_first().unwrap();
        command.arg(what).arg(self.start_ns.to_string()).args(rest);
        command.stdin(Stdio::null());
        command
    }

    /// Starts the program, and waits until it waits for its turn.
    fn start(&self, arguments: &[&str]) -> Running {
        let mut command = self.program(arguments);
        self.world.take_part(&mut command);
        let running = Running::start(&mut command);
        assert!(self.world.await_part(running.0.id(), Duration::from_secs(20)));
        running
    }

    /// Runs the program to its end, in real time, while virtual time stands still.
    fn look_on(&self, arguments: &[&str]) {
        let mut command = self.program(arguments);
        self.world.look_on(&mut command);
        assert!(command.status().unwrap().success());
    }

    fn run_for(&self, ns: u64) {
        self.world.run_until(self.world.now_ns() + ns).unwrap();
    }
}

/// Numbers printed by a program that has ended in virtual time.
fn numbers(mut running: Running) -> Vec<u64> {
    let timeout = Duration::from_secs(20);
    eventually("it ends", timeout, || running.0.try_wait().unwrap().is_some());
    let lines = std::iter::from_fn(|| running.next_line().ok());
    let numbers = lines.map(|line| line.parse().unwrap()).collect();
    assert!(running.finish().success());
    numbers
}

#[test]
fn hours_of_sleep_take_no_time_and_end_when_they_should() {
    let stage = Stage::new();
    let hour_us = (3600 * SECOND / US).to_string();
    let slow = stage.start(&["sleep", &hour_us, "2"]);
    let quick = stage.start(&["sleep", "1000", "3"]);
    stage.run_for(3 * 3600 * SECOND);
    let late_ns = Costs::default().late_ns;
    for (got, step_ns) in [(numbers(slow), 3600 * SECOND), (numbers(quick), 1000 * US)] {
        for (count, at_ns) in (1..).zip(&got) {
            // Only readings of the clock and the delay of each sleep.
            let due_ns = count * (step_ns + late_ns);
            assert!((due_ns..due_ns + 10 * US).contains(at_ns), "{got:?}");
        }
    }
    assert_eq!(stage.world.now_ns(), stage.start_ns + 3 * 3600 * SECOND);
}

#[test]
fn the_world_stands_still_where_it_was_told_to() {
    let stage = Stage::new();
    let mut program = stage.start(&["sleep", "1000", "2"]);
    stage.run_for(900 * US);
    assert!(!program.prints_within(Duration::from_millis(50)));
    stage.run_for(300 * US);
    assert!(program.prints_within(Duration::from_secs(20)));
    assert!(program.next_line().is_ok());
    stage.run_for(SECOND);
    assert!(program.finish().success());
}

#[test]
fn who_looks_at_the_clock_until_it_is_late_comes_on() {
    let stage = Stage::new();
    let (one, two) = (stage.start(&["spin", "5000"]), stage.start(&["spin", "3000"]));
    stage.run_for(SECOND);
    for (got, until_us) in [(numbers(one), 5000), (numbers(two), 3000)] {
        assert!((until_us * US..until_us * US + 10 * US).contains(&got[0]), "{got:?}");
    }
}

#[test]
fn processes_wake_each_other_and_it_comes_out_the_same_each_time() {
    let once = || {
        let stage = Stage::new();
        let file = stage.dir.path().join("word");
        let file = file.to_str().unwrap();
        let programs = [stage.start(&["ping", file, "0"]), stage.start(&["ping", file, "1"])];
        stage.run_for(SECOND);
        programs.map(numbers)
    };
    let first = once();
    // Side 0 sleeps, then side 1 is woken, then side 0: each of the three is delayed.
    let round_ns = 100 * US + 3 * Costs::default().late_ns;
    let last_ns = first[1][0];
    assert!((99 * round_ns..100 * round_ns + 500 * US).contains(&last_ns), "{first:?}");
    assert_eq!(once(), first);
}

#[test]
fn who_only_looks_on_wakes_who_takes_part() {
    let stage = Stage::new();
    let file = stage.dir.path().join("word");
    let file = file.to_str().unwrap();
    let waiting = stage.start(&["await", file]);
    stage.run_for(SECOND);
    stage.look_on(&["set", file]);
    stage.run_for(SECOND);
    let at_ns = numbers(waiting);
    assert!((SECOND..SECOND + 100 * US).contains(&at_ns[0]), "{at_ns:?}");
}

/// Virtual time is behind real time by more than the wait.
#[test]
fn who_only_looks_on_waits_in_real_time() {
    let stage = Stage::new();
    std::thread::sleep(Duration::from_millis(300));
    let before = std::time::SystemTime::now();
    stage.look_on(&["until", "200000"]);
    assert!(before.elapsed().unwrap() >= Duration::from_millis(200));
}

#[test]
fn threads_and_programs_that_become_others_keep_their_place() {
    let stage = Stage::new();
    let program = stage.start(&["threads", "2000"]);
    let other = stage.start(&["sleep", "100", "100"]);
    stage.run_for(SECOND);
    let got = numbers(program);
    assert_eq!(got.len(), 2, "{got:?}");
    assert!((2000 * US..3000 * US).contains(&got[0]), "{got:?}");
    assert!((got[0] + 2000 * US..got[0] + 4000 * US).contains(&got[1]), "{got:?}");
    assert_eq!(numbers(other).len(), 100);
}

#[test]
fn a_signal_ends_a_sleep() {
    let stage = Stage::new();
    let program = stage.start(&["signal", "3000"]);
    stage.run_for(SECOND);
    let got = numbers(program);
    let [handled_ns, ended_ns, left_ns] = got[..] else { panic!("{got:?}") };
    assert!((3000 * US..3200 * US).contains(&handled_ns), "{got:?}");
    assert!((handled_ns..handled_ns + 10 * US).contains(&ended_ns), "{got:?}");
    assert!((9800 * US..10_200 * US).contains(&(ended_ns + left_ns)), "{got:?}");
}

#[test]
fn who_is_killed_does_not_stop_the_world() {
    let stage = Stage::new();
    let mut killed = stage.start(&["killed"]);
    let other = stage.start(&["sleep", "1000", "5"]);
    stage.run_for(SECOND);
    assert!(!killed.finish().success());
    assert_eq!(numbers(other).len(), 5);
}

#[test]
fn a_process_that_is_stopped_goes_on_when_it_is_continued() {
    let stage = Stage::new();
    let [by_owner, by_itself] = [["sleep", "1000", "1"].as_slice(), &["stops"]].map(|what| stage.start(what));
    let pids = [by_owner.0.id(), by_itself.0.id()];
    stage.world.stop(pids[0]).unwrap();
    let other = stage.start(&["sleep", "1000", "5"]);
    stage.run_for(SECOND);
    assert_eq!(numbers(other).len(), 5);
    assert!(pids.iter().all(|pid| stage.world.is_stopped(*pid)));
    for pid in pids {
        stage.world.resume(pid).unwrap();
    }
    assert!(pids.iter().all(|pid| !stage.world.is_stopped(*pid)));
    stage.run_for(SECOND);
    for stopped in [by_owner, by_itself] {
        let at_ns = numbers(stopped);
        assert!((SECOND..SECOND + 1_100 * US).contains(&at_ns[0]), "{at_ns:?}");
    }
}

#[test]
fn no_thread_is_left_waiting_when_the_owner_is_gone() {
    let stage = Stage::new();
    let mut waiting = stage.start(&["sleep", "1000", "1"]);
    // As if another process had made the world and ended: no process has that PID.
    let table = vcuda_clock::Table::open(&stage.dir.path().join("world")).unwrap();
    table.set_owner(u32::MAX >> 1);
    let has_ended = || waiting.0.try_wait().unwrap().is_some();
    eventually("it ends", Duration::from_secs(20), has_ended);
}

#[test]
fn without_a_world_time_is_real() {
    let mut command = Command::new(app("virtual_time", Door::Dlsym));
    command.env("LD_PRELOAD", release_dir().join("libvcuda_virtual_clock.so"));
    let before = std::time::SystemTime::now();
    let status = command.args(["sleep", "0", "20000", "1"]).stdout(Stdio::null()).status();
    assert!(status.unwrap().success());
    assert!(before.elapsed().unwrap() >= Duration::from_millis(20));
}
