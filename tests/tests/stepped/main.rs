//! A process stopped or killed between any two instructions of a hook holds up no other, refuses none that fits, and
//! takes nothing with it (I7, I8).
//!
//! One process is led through the shim's instructions while it makes memory of a kind and gives it back. Wherever it
//! stands, a second process of the same tenant must get what is free, to the byte, and no more. Then the first one goes
//! on and must succeed, or is killed and must be gone from the books. In each round it is stopped once: stopped for others
//! at every instruction it would never get a sum of all records to hold still, and what it announced would be cancelled
//! again and again, which no real process meets that is not slowed down a million times. What the driver does in between
//! is not stepped through; `simulator/machine` has tests of its own.
//!
//! In CI some of the instructions are visited, with `VCUDA_SOAK` each one that is on the way, in loops the first few times.
#![cfg(target_arch = "x86_64")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it should be"
)]

use std::time::Duration;

use vcuda_tests::tracer::{self, Traced};
use vcuda_tests::{Fixture, MIB, eventually, skip};

mod peer;
mod scenario;
mod steps;

use scenario::{From, Kind, Scenario, start};
use steps::{Steps, begin, end};

/// Size of what is made and given back.
const BYTES: u64 = 32 * MIB;
const LIMIT: u64 = 128 * MIB;
/// A context, with the one variable of the programs' module.
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

/// Stops the first process at places of its rounds, with the second one at work, and lets it go on.
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
        // What was given away as a descriptor is free a moment after that is closed, or when more is asked for.
        scenario.peer.free_to_the_byte(|| format!("{kind:?} alone"))
    };
    let (mut visited, mut missed) = (0, 0);
    // A process each.
    let times = if is_first { 1 } else { 3 };
    for place in steps.places(40, times) {
        let at = || format!("{kind:?} at {place:?}");
        if is_first {
            traced = scenario.start();
        }
        let handle = scenario.handle();
        begin(&mut traced, &handle);
        let is_there = steps.lead(&traced, place);
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

/// The way was written down step by step, so slowly that looks at the dead and at the driver were due in it: a round at
/// full speed does not come by there, and by far the most instructions are theirs where each one counts.
fn assert_mostly_visited(visited: u32, missed: u32) {
    let enough = if steps::is_soak() {
        visited > missed
    } else {
        visited > 2 * missed
    };
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
        let is_there = steps.lead(&traced, place);
        // Still a zombie while the others look.
        traced.kill();
        scenario.drop_export();
        // Who needs it looks for the dead at once, who only asks finds nothing of them after a second.
        if n % 12 == 5 {
            eventually("the dead have nothing", A_SECOND, || {
                scenario.peer.free_bytes() == everything
            });
        }
        scenario.peer.has_everything(everything, at);
        *(if is_there { &mut visited } else { &mut missed }) += 1;
    }
    assert_mostly_visited(visited, missed);
    eventually("the driver has everything back", A_SECOND, || {
        fixture.used_bytes() == alone
    });
    assert_eq!(scenario.tenant.used_bytes(), alone - scenario.outside_bytes());
    scenario.judge();
}

/// Stops and kills a process that frees what the second one has opened: it stays counted, once, until that is closed.
#[test]
fn an_exporter_that_lets_go_may_stop_and_die() {
    if_permitted(|kind| letting_go(kind, "open", "close"), "lend", From::Nothing);
}

#[test]
fn an_exporter_of_a_descriptor_that_lets_go_may_stop_and_die() {
    if_permitted(
        |kind| letting_go(kind, "import", "release"),
        "pass",
        From::Nothing,
    );
}

fn letting_go(kind: Kind, open: &str, close: &str) {
    let fixture = Fixture::with_config(MACHINE);
    let mut scenario = Scenario::new(&fixture, kind);
    let everything = scenario.peer.free_bytes();
    // One that is about to free what the second process has open.
    let lend = |scenario: &mut Scenario<'_>, traced: &mut Traced| {
        begin(traced, "");
        traced.run_to_mark();
        scenario.peer.does(&format!("{open} {}", traced.hear()));
    };
    let start = |scenario: &mut Scenario<'_>| {
        let mut traced = scenario.start();
        // Of what was done before the first round.
        traced.hear();
        traced
    };
    let mut traced = start(&mut scenario);
    lend(&mut scenario, &mut traced);
    let steps = Steps {
        halves: [Vec::new(), traced.path_to_mark()],
        least: 0,
    };
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
            assert_eq!(
                scenario.peer.free_to_the_byte(at),
                everything - CONTEXT,
                "closed after {}",
                at()
            );
        }
        *(if is_there { &mut visited } else { &mut missed }) += 1;
    }
    assert_mostly_visited(visited, missed);
    scenario.judge();
}

/// Stops and kills a process that clears away a dead one, whose memory it needs.
#[test]
fn whoever_clears_the_dead_away_may_stop_and_die() {
    if_permitted(clearing, "linear", From::Nothing);
}

fn clearing(kind: Kind) {
    let fixture = Fixture::with_config(MACHINE);
    let mut scenario = Scenario::new(&fixture, kind);
    let everything = scenario.peer.free_bytes();
    // One that is about to allocate, and one that has died with all that there was.
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
    let steps = Steps {
        halves: [heir.path_to_mark(), Vec::new()],
        least: 0,
    };
    drop((heir, dead));
    let (mut visited, mut missed) = (0, 0);
    for (n, place) in steps.places(40, 1).into_iter().enumerate() {
        let at = || format!("clearing at {place:?}");
        let (mut heir, dead) = pair(&mut scenario);
        let is_there = steps.lead(&heir, place);
        let rest = everything - CONTEXT - BYTES;
        eventually("the dead one's memory can be had", A_SECOND, || {
            scenario.peer.can_have(rest)
        });
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
