//! Tenants whose quotas together exceed the GPU: suspendable ones make room for each other, and for those that are not.
#![expect(clippy::disallowed_methods, reason = "limits of time, by the wall clock")]

use std::process::Stdio;
use std::time::{Duration, Instant};

use vcuda_machine::Faults;
use vcuda_tests::{Door, Fixture, Manager, soon, text};

use super::{Program, create, done, state};

/// A GPU of 512 MiB.
pub(super) const MACHINE: &str = "context_bytes = \"8MiB\"\n[[gpus]]\nmemory_bytes = \"512MiB\"\n";
/// Longer than a test.
const LONG: &str = "1h";
const OUT_OF_MEMORY: &str = "2";

pub(super) fn overcommitted<'f>(fixture: &'f Fixture, residence: &str) -> Manager<'f> {
    let path = fixture.home().join("manager.toml");
    let config = format!(
        "[admission]\nreserve = \"0\"\nsuspendable_overcommit = 2.0\n[suspend]\nresidence = \"{residence}\"\n"
    );
    std::fs::write(&path, config).unwrap();
    fixture.manager_with(&["--config", path.to_str().unwrap()])
}

pub(super) fn started(fixture: &Fixture, name: &str, memory: &str, more: &[&str]) -> Program {
    create(fixture, name, &[&["--memory", memory], more].concat());
    Program::in_grant(fixture, name, Door::Link)
}

pub(super) fn made_room(manager: &Manager<'_>) -> u64 {
    let metrics = manager.metrics();
    let line = metrics.lines().find(|line| line.starts_with("vcuda_suspensions_for_room_total"));
    let value = line.and_then(|line| line.rsplit(' ').next()).unwrap();
    value.parse().unwrap()
}

/// Waits until the manager takes a tenant without calls for idle.
fn become_idle() {
    std::thread::sleep(Duration::from_millis(1500));
}

/// Has each program copy for some time, one call after the other, and returns how often each did.
fn copies(programs: &mut [Program], during: Duration) -> Vec<usize> {
    let copy = |program: &mut Program| {
        let (end, mut count) = (Instant::now() + during, 0);
        while Instant::now() < end {
            assert_eq!(program.ask("copy"), "0 intact");
            count += 1;
        }
        count
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = programs.iter_mut().map(|program| scope.spawn(move || copy(program))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn an_idle_tenant_makes_room_for_an_allocation_and_comes_back() {
    let fixture = Fixture::with_config(MACHINE);
    let manager = overcommitted(&fixture, LONG);
    let mut one = started(&fixture, "one", "384MiB", &["--suspendable"]);
    assert_eq!(one.ask("hold 310"), "0");
    assert_eq!(one.ask("fill"), "0 intact");
    become_idle();
    let mut two = started(&fixture, "two", "384MiB", &["--suspendable"]);
    assert_eq!(two.ask("hold 310"), "0");
    assert_eq!(state(&fixture, "one-1"), "suspended");
    become_idle();
    assert_eq!(one.ask("all"), "0 intact");
    assert_eq!(state(&fixture, "two-2"), "suspended");
    assert_eq!(made_room(&manager), 2);
    // Its quota was not given away: a third grant finds what is left of twice the GPU, and no more.
    let refused = fixture.output(["grant", "create", "three", "--memory", "384MiB", "--suspendable"]);
    assert!(!refused.status.success(), "{}", text(&refused));
}

#[test]
fn contents_are_as_before_after_ten_rounds_of_six_tenants() {
    let fixture = Fixture::with_config(MACHINE);
    let manager = overcommitted(&fixture, "100ms");
    let mut programs: Vec<Program> = ["a", "b", "c", "d", "e", "f"]
        .into_iter()
        .map(|name| started(&fixture, name, "170MiB", &["--suspendable"]))
        .collect();
    for program in &mut programs {
        assert_eq!(program.ask("hold 130"), "0");
    }
    for round in 0..10 {
        for call in ["fill", "copy"] {
            programs.iter_mut().for_each(|program| program.tell(call));
            for program in &mut programs {
                assert_eq!(program.answer(call), "0 intact", "round {round}");
            }
        }
    }
    assert!(made_room(&manager) >= 10, "{}", made_room(&manager));
}

#[test]
fn a_tenant_that_is_not_suspendable_gets_its_memory_although_others_are_busy() {
    let fixture = Fixture::with_config(MACHINE);
    let _manager = overcommitted(&fixture, LONG);
    let mut busy = [
        started(&fixture, "a", "256MiB", &["--suspendable"]),
        started(&fixture, "b", "256MiB", &["--suspendable"]),
    ];
    for program in &mut busy {
        assert_eq!(program.ask("hold 226"), "0");
    }
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| copies(&mut busy, Duration::from_secs(4)));
        std::thread::sleep(Duration::from_millis(500));
        let mut plain = started(&fixture, "plain", "128MiB", &[]);
        let began = Instant::now();
        assert_eq!(plain.ask("hold 95"), "0");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        let states = ["a-1", "b-2"].map(|id| state(&fixture, id));
        assert!(states.contains(&"suspended".to_owned()), "{states:?}");
        assert_eq!(plain.ask("copy"), "0 intact");
        drop(plain);
        // The one that was suspended comes back then.
        assert!(copying.join().unwrap().iter().all(|count| *count > 0));
    });
    let denied = ["a-1", "b-2"].map(|id| fixture.tenant_shown(id)["room_denied"].clone());
    assert_eq!(denied, [0, 0]);
}

#[test]
fn two_busy_tenants_take_turns() {
    let fixture = Fixture::with_config(MACHINE);
    let manager = overcommitted(&fixture, "1s");
    let mut programs = [
        started(&fixture, "a", "384MiB", &["--suspendable"]),
        started(&fixture, "b", "384MiB", &["--suspendable"]),
    ];
    for program in &mut programs {
        assert_eq!(program.ask("hold 310"), "0");
    }
    let before = made_room(&manager);
    let during = Duration::from_secs(12);
    let counts = copies(&mut programs, during);
    let turns = made_room(&manager) - before;
    assert!(counts.iter().all(|count| *count > 10), "{counts:?}");
    assert!((3..=13).contains(&turns), "{turns} turns in {during:?}");
}

#[test]
fn without_a_wait_an_allocation_is_refused_at_once_and_that_is_shown() {
    let fixture = Fixture::with_config(MACHINE);
    let manager = overcommitted(&fixture, LONG);
    let mut one = started(&fixture, "one", "384MiB", &["--suspendable"]);
    assert_eq!(one.ask("hold 310"), "0");
    let at_once = ["--suspendable", "--wait-for-memory", "0s"];
    let mut two = started(&fixture, "two", "384MiB", &at_once);
    assert_eq!(two.ask("hold 310"), OUT_OF_MEMORY);
    assert_eq!(state(&fixture, "one-1"), "running");
    assert_eq!(fixture.tenant_shown("two-2")["room_denied"], 1);
    assert_eq!(fixture.tenant_shown("two-2")["memory_denied"], 0);
    soon("an event tells it", || {
        let events = fixture.events();
        events.contains("VcudaGpuMemoryFull") && events.contains("two-2")
    });
    // A short wait ends, too, while the other one is busy.
    let short = ["--suspendable", "--wait-for-memory", "2s"];
    let mut three = started(&fixture, "three", "190MiB", &short);
    std::thread::scope(|scope| {
        let busy = std::slice::from_mut(&mut one);
        scope.spawn(|| copies(busy, Duration::from_secs(4)));
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(three.ask("hold 160"), OUT_OF_MEMORY);
    });
    assert_eq!(fixture.tenant_shown("three-3")["room_denied"], 1);
    // Without a manager nothing waits.
    drop(manager);
    std::thread::sleep(Duration::from_secs(4));
    let began = Instant::now();
    assert_eq!(three.ask("hold 160"), OUT_OF_MEMORY);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

/// The manager is killed at any time while tenants move in turn.
#[test]
fn a_manager_killed_while_it_makes_room_loses_nothing() {
    let slow = format!("{MACHINE}[driver]\ncheckpoint_fixed_ns = 300_000_000\n");
    let fixture = Fixture::with_config(&slow);
    let mut manager = overcommitted(&fixture, "500ms");
    let mut programs = [
        started(&fixture, "a", "384MiB", &["--suspendable"]),
        started(&fixture, "b", "384MiB", &["--suspendable"]),
    ];
    let [first, second] = &mut programs;
    assert_eq!(first.ask("hold 310"), "0");
    second.tell("hold 310");
    std::thread::sleep(Duration::from_millis(200));
    manager.kill_and_restart();
    assert_eq!(second.answer("hold 310"), "0", "it waited for the next manager");
    for round in 0..5 {
        programs.iter_mut().for_each(|program| program.tell("copy"));
        std::thread::sleep(Duration::from_millis(100 + 250 * round));
        manager.kill_and_restart();
        for program in &mut programs {
            assert_eq!(program.answer("copy"), "0 intact", "round {round}");
        }
    }
}

/// NVML of a real driver takes seconds to start, and before nothing is known of the room on a GPU.
#[test]
fn nothing_comes_back_before_its_room_is_known() {
    let slow = format!("{MACHINE}[driver]\nnvml_init_ns = 3_000_000_000\n");
    let fixture = Fixture::with_config(&slow);
    let mut manager = overcommitted(&fixture, LONG);
    let mut one = started(&fixture, "one", "384MiB", &["--suspendable"]);
    assert_eq!(one.ask("hold 310"), "0");
    assert_eq!(one.ask("fill"), "0 intact");
    become_idle();
    let mut two = started(&fixture, "two", "384MiB", &["--suspendable"]);
    assert_eq!(two.ask("hold 310"), "0");
    assert_eq!(state(&fixture, "one-1"), "suspended");
    manager.kill();
    one.tell("copy");
    manager.start_again();
    assert_eq!(one.answer("copy"), "0 intact");
    assert_eq!(two.ask("copy"), "0 intact");
}

/// Nothing is known of a GPU that does not answer: room there would be made in vain.
#[test]
fn no_tenant_makes_room_on_a_gpu_that_does_not_answer() {
    let fixture = Fixture::with_config(MACHINE);
    let manager = overcommitted(&fixture, LONG);
    let mut one = started(&fixture, "one", "384MiB", &["--suspendable"]);
    assert_eq!(one.ask("hold 310"), "0");
    become_idle();
    let mut two = started(&fixture, "two", "384MiB", &["--suspendable"]);
    assert_eq!(two.ask("hold 310"), "0");
    become_idle();
    let faults = Faults { lost: vec![fixture.uuid(0)], ..Faults::default() };
    faults.write(&fixture.machine()).unwrap();
    one.tell("copy");
    soon("it is told why", || manager.log().contains("the room on GPU-"));
    std::thread::sleep(Duration::from_secs(2));
    assert!(!manager.log().contains("to make room for one-1"), "{}", manager.log());
}

/// The second process cannot be copied, and another tenant takes the room of the first before that is known.
#[test]
fn a_suspension_that_fails_in_its_middle_loses_no_process() {
    let slow = format!("{MACHINE}[driver]\ncheckpoint_fixed_ns = 0\ncheckpoint_bytes_per_us = 100\n");
    let fixture = Fixture::with_config(&slow);
    let mut manager = overcommitted(&fixture, LONG);
    let mut small = started(&fixture, "a", "384MiB", &["--suspendable"]);
    assert_eq!(small.ask("hold 100"), "0");
    assert_eq!(small.ask("fill"), "0 intact");
    let mut large = Program::in_grant(&fixture, "a", Door::Link);
    assert_eq!(large.ask("hold 170"), "0");
    assert_eq!(large.ask("managed"), "0");
    become_idle();
    let mut other = started(&fixture, "b", "384MiB", &["--suspendable"]);
    let used = fixture.used_bytes();
    assert_eq!(other.ask("hold 230"), "0");
    assert!(fixture.used_bytes() < used + (230 << 20), "the small one is away");
    soon("the suspension has failed", || state(&fixture, "a-1") == "suspended");
    // While the failed suspension ends, a second request gets its reason.
    soon("it waits for room", || {
        super::refused(&fixture, "suspend", "a").contains("comes back as soon as its GPU has room")
    });
    // The next manager knows that, too.
    manager.kill_and_restart();
    // Nothing is asked of it: it comes back by itself, and the other one makes room.
    soon("it runs again", || state(&fixture, "a-1") == "running");
    assert_eq!(state(&fixture, "b-2"), "suspended");
    for program in [&mut small, &mut large] {
        assert_eq!(program.ask("all"), "0 intact");
    }
    drop((small, large));
    // Beside the quota of the first one there is no room, used or not.
    soon("the grant of the first one ends", || {
        let release = fixture.output(["grant", "release", "a"]);
        release.status.success()
    });
    assert_eq!(other.ask("all"), "0 intact");
}

/// What is granted while a tenant comes back could take its room: both requests wait for the end of its return.
#[test]
fn nothing_is_granted_on_a_gpu_while_a_tenant_comes_back() {
    let slow = format!("{MACHINE}[driver]\ncheckpoint_fixed_ns = 1_500_000_000\n");
    let fixture = Fixture::with_config(&slow);
    let _manager = overcommitted(&fixture, LONG);
    let mut one = started(&fixture, "one", "256MiB", &["--suspendable"]);
    assert_eq!(one.ask("hold 200"), "0");
    assert_eq!(one.ask("fill"), "0 intact");
    become_idle();
    let mut two = started(&fixture, "two", "380MiB", &["--suspendable"]);
    assert_eq!(two.ask("hold 300"), "0");
    become_idle();
    one.tell("copy");
    soon("one comes back", || state(&fixture, "one-1") == "resuming");
    let requests = [
        vec!["grant", "create", "plain", "--memory", "128MiB", "--cores", "20"],
        vec!["set", "two-2", "--memory", "384MiB"],
    ];
    std::thread::scope(|scope| {
        for request in requests {
            let fixture = &fixture;
            scope.spawn(move || {
                fixture.stdout(&request);
                assert_eq!(state(fixture, "one-1"), "running", "{request:?}");
            });
        }
    });
    assert_eq!(one.answer("copy"), "0 intact");
    let mut plain = Program::in_grant(&fixture, "plain", Door::Link);
    assert_eq!(plain.ask("hold 95"), "0");
    assert_eq!(one.ask("all"), "0 intact");
}

#[test]
fn quotas_exceed_the_gpu_by_the_factor_if_they_are_suspendable() {
    let fixture = Fixture::with_config(MACHINE);
    let _manager = overcommitted(&fixture, LONG);
    create(&fixture, "a", &["--memory", "256MiB"]);
    let refusal = |more: &[&str]| {
        let args = [&["grant", "create", "x", "--cores", "1", "--memory"], more].concat();
        let output = fixture.vcuda(args).stdout(Stdio::null()).output().unwrap();
        assert!(!output.status.success(), "{more:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refusal(&["384MiB"]).contains("not free"));
    assert!(refusal(&["384MiB", "--suspendable"]).contains("not free"), "it never fits beside a");
    create(&fixture, "b", &["--memory", "128MiB", "--suspendable"]);
    create(&fixture, "c", &["--memory", "225MiB", "--suspendable"]);
    create(&fixture, "d", &["--memory", "225MiB", "--suspendable"]);
    assert!(refusal(&["128MiB"]).contains("not free"), "the largest suspendable one must fit beside");
    assert!(refusal(&["256MiB", "--suspendable"]).contains("not free"));
    done(&fixture, "resume", "b", "b-2", "running");
}
