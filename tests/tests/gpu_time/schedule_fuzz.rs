//! Schedules at random: programs of launches, streams, contexts, threads, graphs, captures, events and waits for the host
//! (`tests/apps/schedule.c`), whose processes are stopped, continued, killed and begun anew, and whose cap is changed, in virtual
//! time. The simulator's exact record is the judge of two promises (`judge`). What breaks one is made smaller and printed as text.
//!
//! Without any variable the first `SEEDS` seeds are played. `VCUDA_FUZZ_SECONDS` plays fresh ones for so long (wall clock), from
//! `VCUDA_FUZZ_SEED` on if that is given; `VCUDA_FUZZ_FAMILIES` is a sum of what cases may have (`generate::family`).
//! `VCUDA_FUZZ_CASE` names a file with a case that was printed, to play it again. To make a failure smaller `VCUDA_FUZZ_PLAYS` cases
//! are played at most (200).

mod case;
mod found;
mod generate;
mod judge;
mod play;
mod script;
mod shrink;
mod threads;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use case::Case;
use judge::{Broken, judge};

/// Cases of a run without variables.
const SEEDS: u64 = 12;
/// Cases that are played at a time.
const AT_A_TIME: usize = 2;

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var_os(variable)?;
    Some(value.to_str().unwrap().parse().unwrap())
}

/// Cases that are played at most to make one failure smaller.
fn plays() -> u64 {
    number("VCUDA_FUZZ_PLAYS").unwrap_or(200)
}

/// Plays a case, prints what came out, and how it breaks a promise if it does.
fn tried(name: &str, case: &Case) -> Option<Broken> {
    let looks = match play::play(case) {
        Ok(looks) => looks,
        Err(why) => return Some(Broken::Stuck(why)),
    };
    let verdict = judge(case, &looks);
    let neighbour = case.neighbour.map_or_else(String::new, |guarantee| {
        format!(", its neighbour {:.1} of {guarantee}", verdict.neighbour)
    });
    println!(
        "{name}: {:.1} % under a cap of {}{neighbour}; at most {} of {} ms ahead",
        verdict.tenant,
        case.cap,
        verdict.excess_ns / play::MS,
        verdict.allowed_ns / play::MS
    );
    verdict.broken
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a time budget, by the wall clock")]
fn random_schedules_keep_to_their_caps() {
    let families = number("VCUDA_FUZZ_FAMILIES").map_or(generate::USUAL, |sum| sum as u32);
    let time = number("VCUDA_FUZZ_SECONDS").map(Duration::from_secs);
    let fresh = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() << 20;
    let first = number("VCUDA_FUZZ_SEED").unwrap_or_else(|| if time.is_some() { fresh() } else { 1 });
    let start = Instant::now();
    let goes_on = |seed: u64| time.map_or(seed < first + SEEDS, |time| start.elapsed() < time);
    let (next, played) = (AtomicU64::new(first), AtomicU64::new(0));
    let failures = parking_lot::Mutex::new(Vec::new());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if !goes_on(seed) {
                return;
            }
            played.fetch_add(1, Ordering::Relaxed);
            let case = generate::case(seed, families);
            let name = format!("VCUDA_FUZZ_SEED={seed} VCUDA_FUZZ_FAMILIES={families}");
            if let Some(how) = tried(&name, &case) {
                println!("{name}: {how}\n{case}");
                let (smaller, how) = shrink::shrink(case, how, plays());
                println!("{name}, made smaller: {how}\n{smaller}");
                failures.lock().push(format!("{name}: {how}\n{smaller}"));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner();
    println!("{} cases, {} broke a promise", played.into_inner(), failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Cases that the fuzzer has found, made smaller, and that were mended.
#[test]
fn what_was_found_keeps_to_its_cap() {
    let next = AtomicUsize::new(0);
    let failures = parking_lot::Mutex::new(Vec::new());
    let work = || {
        while let Some((name, text)) = found::FOUND.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Some(how) = tried(name, &text.parse().unwrap()) {
                failures.lock().push(format!("{name}: {how}\n{text}"));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Waiting for a stream costs a program nothing of its share.
#[test]
fn who_waits_is_charged_for_work_only() {
    for (name, text, least) in found::HELD_BACK {
        let case: Case = text.parse().unwrap();
        let verdict = judge(&case, &play::play(&case).unwrap());
        println!("{name}: {:.1} % under a cap of {}", verdict.tenant, case.cap);
        assert!(verdict.tenant >= least, "{name}: {:.1} % of {least}", verdict.tenant);
        assert!(verdict.broken.is_none(), "{name}: {}", verdict.broken.unwrap());
    }
}

/// Plays the case in the file that `VCUDA_FUZZ_CASE` names.
#[test]
fn a_printed_case_can_be_played_again() {
    let Some(file) = std::env::var_os("VCUDA_FUZZ_CASE") else {
        let case = generate::case(1, generate::USUAL);
        assert_eq!(case.to_string().parse(), Ok(case));
        return;
    };
    let case: Case = std::fs::read_to_string(file).unwrap().parse().unwrap();
    if let Some(how) = tried("the case", &case) {
        let (smaller, how) = shrink::shrink(case, how, plays());
        panic!("{how}\n{smaller}");
    }
}
