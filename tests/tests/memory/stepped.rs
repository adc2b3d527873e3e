//! A process stopped or killed between any two instructions of a hook blocks no other process, causes no refusal of memory
//! that fits, and loses no memory (I7, I8).
//!
//! One process is stepped through the shim's instructions while it makes and frees memory of some kind. At each stop, a
//! second process of the tenant must get all free memory, to the byte, and no more. Then the first process continues and
//! must succeed, or is killed and must disappear from the accounts. It is stopped once per round. If it were stopped at
//! every instruction, it could never read a stable sum of all records, and its announcements would be cancelled repeatedly,
//! which does not happen at normal speed. The driver is not stepped; `simulator/machine` has tests of its own.
//!
//! CI visits some of the instructions. With `VCUDA_SOAK` each one on the path is visited, in loops the first few times.

use std::time::Duration;

use vcuda_tests::tracer::{self, Traced};
use vcuda_tests::{Fixture, MIB, eventually, skip};

mod peer;
mod scenario;
mod steps;

use scenario::{From, Kind, Scenario, start};
use steps::{Steps, begin, end};

/// Size of the memory that is made and freed (bytes).
const BYTES: u64 = 32 * MIB;
const LIMIT: u64 = 128 * MIB;
/// Memory of a context, with the variable of the programs' module (bytes).
const CONTEXT: u64 = 4 * MIB + 8;
const A_SECOND: Duration = Duration::from_secs(1);

const MACHINE: &str = "context_bytes = \"4MiB\"\ngranularity_bytes = 1\n[[gpus]]\nmemory_bytes = \"8GiB\"\n";

macro_rules! tests {
    ($($test:ident $name:literal $from:ident,)*) => {
        mod stopped {
            $(#[test] fn $test() { super::if_permitted(super::stopped, $name, super::From::$from) })*
        }
        mod killed {
            $(#[test] fn $test() { super::if_permitted(super::killed, $name, super::From::$from) })*
        }
    };
}

tests! {
    linear "linear" Nothing,
    managed "managed" Nothing,
    pitch "pitch" Nothing,
    stream_ordered "async" Nothing,
    pool "pool" Nothing,
    physical "create" Nothing,
    array "array" Nothing,
    mipmap "mipmap" Nothing,
    context "context" Nothing,
    exported "export" Nothing,
    opened "open" Peer,
    opened_and_dropped_by_its_exporter "open" LeavingPeer,
    opened_from_outside "open" Outside,
    passed_as_descriptor "descriptor" Nothing,
    first_use "first" Nothing,
}

fn if_permitted(test: fn(Kind), name: &'static str, from: From) {
    if tracer::is_permitted() {
        test(Kind { name, from });
    } else {
        skip("stepping through the shim: this machine permits no ptrace");
    }
}

/// Stops the first process at places of its rounds while the second one works, then continues it.
fn stopped(kind: Kind) {
    let fixture = Fixture::with_config(MACHINE);
    let mut scenario = Scenario::new(&fixture, kind);
    // A process uses the GPU for the first time only once.
    let is_first = kind.name == "first";
    let everything = scenario.peer.free_bytes();
    let mut traced = scenario.start();
    let handle = scenario.handle();
    let steps = Steps::of(&mut traced, &handle, &mut scenario.peer);
    scenario.drop_export();
    let alone = if is_first {
        everything
    } else {
        // Memory exported as a descriptor is free shortly after that is closed, or when more is requested.
        scenario.peer.free_to_the_byte(|| format!("{kind:?} alone"))
    };
    let (mut visited, mut missed) = (0, 0);
    // One process per place.
    let times = if is_first { 1 } else { 3 };
    for place in steps.places(40, times) {
        let at = || format!("{kind:?} at {place:?}");
        if is_first {
            traced = scenario.start();
        }
        let handle = scenario.handle();
        begin(&mut traced, &handle);
        let is_there = steps.run_to(&traced, place);
        if kind.from == From::LeavingPeer {
            scenario.drop_export();
        }
        let free = scenario.peer.free_to_the_byte(at);
        assert!((steps.least..=alone).contains(&free), "{free} are free: {}", at());
        end(&traced, place, is_there);
        if kind.from == From::Peer {
            scenario.drop_export();
        }
        if is_first {
            scenario.peer.has_everything(everything, at);
        } else {
            assert_eq!(scenario.peer.free_to_the_byte(at), alone, "after {}", at());
        }
        *(if is_there { &mut visited } else { &mut missed }) += 1;
    }
    assert_mostly_visited(visited, missed);
    if !is_first {
        assert!(traced.finish().success());
    }
    scenario.judge();
}

/// Checks that most places were reached. The path was recorded step by step, slowly enough for periodic checks of dead
/// processes and of the driver, whose many instructions a round at full speed does not execute.
fn assert_mostly_visited(visited: u32, missed: u32) {
    let enough = if steps::is_soak() { visited > missed } else { visited > 2 * missed };
    assert!(enough, "{visited} visited, {missed} not on its way");
}

/// Kills the first process at places of its round.
fn killed(kind: Kind) {
    let fixture = Fixture::with_config(MACHINE);
    let mut scenario = Scenario::new(&fixture, kind);
    let everything = scenario.peer.free_bytes();
    let alone = fixture.used_bytes();
    let mut traced = scenario.start();
    let handle = scenario.handle();
    let steps = Steps::of(&mut traced, &handle, &mut scenario.peer);
    scenario.drop_export();
    drop(traced);
    let (mut visited, mut missed) = (0, 0);
    for (n, place) in steps.places(10, 1).into_iter().enumerate() {
        let at = || format!("{kind:?} at {place:?}");
        let mut traced = scenario.start();
        let handle = scenario.handle();
        begin(&mut traced, &handle);
        let is_there = steps.run_to(&traced, place);
        // It is still a zombie while the others check.
        traced.kill();
        scenario.drop_export();
        // A process that needs the memory checks for dead processes at once; one that only queries sees it freed after a
        // second.
        if n % 12 == 5 {
            eventually("the dead have nothing", A_SECOND, || scenario.peer.free_bytes() == everything);
        }
        scenario.peer.has_everything(everything, at);
        *(if is_there { &mut visited } else { &mut missed }) += 1;
    }
    assert_mostly_visited(visited, missed);
    eventually("the driver has everything back", A_SECOND, || fixture.used_bytes() == alone);
    assert_eq!(scenario.tenant.used_bytes(), alone - scenario.outside_bytes());
    scenario.judge();
}

/// Stops and kills a process that frees memory opened by the second one: it counts once, until that is closed.
#[test]
fn an_exporter_that_lets_go_may_stop_and_die() {
    if_permitted(|kind| letting_go(kind, "open", "close"), "lend", From::Nothing);
}

#[test]
fn an_exporter_of_a_descriptor_that_lets_go_may_stop_and_die() {
    if_permitted(|kind| letting_go(kind, "import", "release"), "pass", From::Nothing);
}

fn letting_go(kind: Kind, open: &str, close: &str) {
    let fixture = Fixture::with_config(MACHINE);
    let mut scenario = Scenario::new(&fixture, kind);
    let everything = scenario.peer.free_bytes();
    // A process that is about to free memory which the second one has open.
    let lend = |scenario: &mut Scenario<'_>, traced: &mut Traced| {
        begin(traced, "");
        traced.run_to_mark();
        scenario.peer.does(&format!("{open} {}", traced.next_line()));
    };
    let start = |scenario: &mut Scenario<'_>| {
        let mut traced = scenario.start();
        // Output from before the first round.
        traced.next_line();
        traced
    };
    let mut traced = start(&mut scenario);
    lend(&mut scenario, &mut traced);
    let steps = Steps { halves: [Vec::new(), traced.path_to_mark()], least: 0 };
    scenario.peer.does(close);
    let (mut visited, mut missed) = (0, 0);
    for (n, place) in steps.places(60, 3).into_iter().enumerate() {
        let at = || format!("letting go at {place:?}");
        lend(&mut scenario, &mut traced);
        let is_there = traced.run_along(&steps.halves[1], place.1);
        let rest = everything - CONTEXT - BYTES;
        assert_eq!(scenario.peer.free_to_the_byte(at), rest, "{}", at());
        if n % 4 == 3 {
            traced.kill();
            scenario.peer.has_everything(everything - BYTES, at);
            scenario.peer.does(close);
            scenario.peer.has_everything(everything, at);
            traced = start(&mut scenario);
        } else {
            end(&traced, place, is_there);
            assert_eq!(scenario.peer.free_to_the_byte(at), rest, "after {}", at());
            scenario.peer.does(close);
            assert_eq!(scenario.peer.free_to_the_byte(at), everything - CONTEXT, "closed after {}", at());
        }
        *(if is_there { &mut visited } else { &mut missed }) += 1;
    }
    assert_mostly_visited(visited, missed);
    scenario.judge();
}

/// Stops and kills a process that removes a dead one, as it needs its memory.
#[test]
fn whoever_clears_the_dead_away_may_stop_and_die() {
    if_permitted(clearing, "linear", From::Nothing);
}

fn clearing(kind: Kind) {
    let fixture = Fixture::with_config(MACHINE);
    let mut scenario = Scenario::new(&fixture, kind);
    let everything = scenario.peer.free_bytes();
    // A process that is about to allocate, and one that has died with all memory.
    let pair = |scenario: &mut Scenario<'_>| {
        let mut heir = scenario.start();
        let mut dead = start(&scenario.tenant, kind.name, everything - 2 * CONTEXT, "");
        begin(&mut dead, "");
        dead.run_to_mark();
        assert_eq!(scenario.peer.free_bytes(), 0);
        dead.kill();
        begin(&mut heir, "");
        (heir, dead)
    };
    let (heir, dead) = pair(&mut scenario);
    let steps = Steps { halves: [heir.path_to_mark(), Vec::new()], least: 0 };
    drop((heir, dead));
    let (mut visited, mut missed) = (0, 0);
    for (n, place) in steps.places(40, 1).into_iter().enumerate() {
        let at = || format!("clearing at {place:?}");
        let (mut heir, dead) = pair(&mut scenario);
        let is_there = steps.run_to(&heir, place);
        let rest = everything - CONTEXT - BYTES;
        eventually("the dead one's memory can be had", A_SECOND, || scenario.peer.can_have(rest));
        if n % 2 == 0 {
            heir.kill();
        } else {
            end(&heir, place, is_there);
            assert_eq!(scenario.peer.free_to_the_byte(at), everything - CONTEXT);
            assert!(heir.finish().success());
        }
        scenario.peer.has_everything(everything, at);
        drop(dead);
        *(if is_there { &mut visited } else { &mut missed }) += 1;
    }
    assert_mostly_visited(visited, missed);
    scenario.judge();
}
