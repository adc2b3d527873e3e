//! Requests for room that are wrong or in vain, on a GPU whose quotas exceed its memory: they cost the asking tenant, no other.
#![expect(clippy::disallowed_methods, reason = "limits of time, by the wall clock")]

use std::time::{Duration, Instant};

use vcuda_region::slots::Usage;
use vcuda_tests::{Door, Fixture, Running, app, soon};

use super::room::{MACHINE, made_room, overcommitted, started};
use super::{Program, done, state};

/// Longest time that one copy of each program takes, during which all copy without a pause.
fn longest_copies(programs: &mut [Program], during: Duration) -> Vec<Duration> {
    let copy = |program: &mut Program| {
        let (end, mut longest) = (Instant::now() + during, Duration::ZERO);
        while Instant::now() < end {
            let began = Instant::now();
            assert_eq!(program.ask("copy"), "0 intact");
            longest = longest.max(began.elapsed());
        }
        longest
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = programs.iter_mut().map(|program| scope.spawn(move || copy(program))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Writes into the tenant's `usage`, again and again, that it wants room, for at least as long as `work` is meant to take.
fn while_it_asks<T>(fixture: &Fixture, id: &str, during: Duration, work: impl FnOnce(Duration) -> T) -> T {
    let directory = fixture.runtime().join("vcuda/containers").join(id);
    let usage = Usage::open(&directory).unwrap();
    let until = Instant::now() + during;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while Instant::now() < until {
                usage.ask_for_room(1);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        work(during)
    })
}

#[test]
fn a_demand_that_cannot_be_true_suspends_no_tenant() {
    let fixture = Fixture::with_config(MACHINE);
    let manager = overcommitted(&fixture, "1h");
    let mut busy = [started(&fixture, "a", "256MiB", &["--suspendable"])];
    assert_eq!(busy[0].ask("hold 200"), "0");
    // There is room for all of its quota.
    let _liar = started(&fixture, "liar", "128MiB", &[]);
    let longest =
        while_it_asks(&fixture, "liar-2", Duration::from_secs(4), |during| longest_copies(&mut busy, during));
    assert_eq!(made_room(&manager), 0, "{longest:?}");
    // It has all that it may have.
    let mut full = started(&fixture, "full", "128MiB", &[]);
    assert_eq!(full.ask("hold 90"), "0");
    while_it_asks(&fixture, "full-3", Duration::from_secs(2), std::thread::sleep);
    assert_eq!(made_room(&manager), 0);
}

#[test]
fn a_tenant_that_does_not_use_the_room_made_for_it_rests() {
    let fixture = Fixture::with_config(MACHINE);
    let manager = overcommitted(&fixture, "1s");
    let mut busy = ["a", "b"].map(|name| started(&fixture, name, "256MiB", &["--suspendable"]));
    for program in &mut busy {
        assert_eq!(program.ask("hold 226"), "0");
    }
    let _liar = started(&fixture, "liar", "128MiB", &[]);
    let lies = Duration::from_secs(14);
    let longest = while_it_asks(&fixture, "liar-3", lies, |during| longest_copies(&mut busy, during));
    println!("{longest:?}, {} suspensions", made_room(&manager));
    // Each came back while the liar still asked, however long a busy machine takes to move memory.
    assert!(longest.iter().all(|time| *time < lies), "{longest:?}");
}

/// The memory of its quota is held by a process outside of vcuda, so no suspension lets its allocation succeed.
#[test]
fn an_allocation_that_can_never_fit_does_not_keep_a_busy_tenant_away() {
    for more in [&[][..], &["--suspendable"]] {
        let fixture = Fixture::with_config(MACHINE);
        let manager = overcommitted(&fixture, "5s");
        let mut busy = [started(&fixture, "a", "128MiB", &["--suspendable"])];
        assert_eq!(busy[0].ask("hold 60"), "0");
        let mut outside = Running::start(fixture.bare(app("hold", Door::Dlsym)).arg("377487360"));
        outside.wait_for("holding 377487360");
        let waits = [more, &["--wait-for-memory", "20s"]].concat();
        let mut asks = started(&fixture, "asks", "256MiB", &waits);
        asks.tell("hold 200");
        let longest = std::thread::scope(|scope| {
            let copying = scope.spawn(|| longest_copies(&mut busy, Duration::from_secs(20)));
            assert_eq!(asks.answer("hold 200"), "2", "out of memory");
            // Whatever keeps the busy one away ends here.
            drop((asks, outside));
            copying.join().unwrap()
        });
        // Half of the time for which the other asks; a busy machine takes seconds to move memory.
        assert!(longest[0] < Duration::from_secs(10), "{more:?} {longest:?}");
        println!("{more:?}: {longest:?}, {} suspensions", made_room(&manager));
    }
}

/// Its quota is free again in the ledger, and the other tenant is on the GPU and busy: it comes back in its turn.
#[test]
fn a_tenant_suspended_by_hand_comes_back_in_its_turn() {
    let fixture = Fixture::with_config(MACHINE);
    let _manager = overcommitted(&fixture, "1s");
    let mut one = started(&fixture, "one", "384MiB", &["--suspendable"]);
    assert_eq!(one.ask("hold 310"), "0");
    assert_eq!(one.ask("fill"), "0 intact");
    done(&fixture, "suspend", "one", "one-1", "suspended");
    let mut two = [started(&fixture, "two", "384MiB", &["--suspendable"])];
    assert_eq!(two[0].ask("hold 310"), "0");
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| longest_copies(&mut two, Duration::from_secs(15)));
        std::thread::sleep(Duration::from_secs(2));
        let began = Instant::now();
        assert_eq!(one.ask("all"), "0 intact");
        println!("it was back after {:?}", began.elapsed());
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
        let longest = copying.join().unwrap();
        println!("the other one waited for up to {longest:?}");
    });
    soon("the other one runs", || two[0].ask("copy") == "0 intact" && state(&fixture, "two-2") == "running");
}
