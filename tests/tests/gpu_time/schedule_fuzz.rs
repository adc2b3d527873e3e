//! Schedules at random: programs of launches, streams, contexts, threads, graphs, captures, events and waits for the host
//! (`tests/apps/schedule.c`), whose processes are stopped, continued, killed and begun anew, and whose cap is changed, in virtual
//! time. The simulator's exact record is the judge of two promises (`judge`). What breaks one is made smaller and printed as text.
//!
//! Without any variable the first `SEEDS` seeds are played, the same each time: of some hundred fresh ones one misses still
//! (docs/evidence.md), and a gate that is red on some days tells nothing of a change. `VCUDA_FUZZ_SECONDS` plays fresh ones for so
//! long (wall clock), from `VCUDA_FUZZ_SEED` on if that is given; `VCUDA_FUZZ_FAMILIES` is a sum of what cases may have
//! (`generate::family`). `VCUDA_FUZZ_CASE` names a file with a case that was printed, to play it again. To make a failure smaller
//! `VCUDA_FUZZ_PLAYS` cases are played at most (200).

mod case;
mod found;
mod generate;
mod judge;
mod play;
mod ranks;
mod script;
mod shrink;
mod threads;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use case::Case;
use found::Found;
use judge::{Broken, Verdict, judge};
use parking_lot::Mutex;

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

/// Plays a case and prints what came out.
///
/// # Errors
/// It breaks a promise, or cannot be played.
fn tried(name: &str, case: &Case) -> Result<Verdict, Broken> {
    let looks = play::play(case).map_err(Broken::Stuck)?;
    let mut verdict = judge(case, &looks);
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
    verdict.broken.take().map_or(Ok(verdict), Err)
}

/// Does the work in several threads, and fails with what it notes as broken.
fn at_a_time(work: impl Fn(&Mutex<Vec<String>>) + Sync) {
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| work(&failures));
        }
    });
    let failures = failures.into_inner();
    assert!(failures.is_empty(), "{} broke a promise\n{}", failures.len(), failures.join("\n"));
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
    at_a_time(|failures| {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if !goes_on(seed) {
                return;
            }
            played.fetch_add(1, Ordering::Relaxed);
            let case = generate::case(seed, families);
            let name = format!("VCUDA_FUZZ_SEED={seed} VCUDA_FUZZ_FAMILIES={families}");
            if let Err(how) = tried(&name, &case) {
                println!("{name}: {how}\n{case}");
                let (smaller, how) = shrink::shrink(case, how, plays());
                println!("{name}, made smaller: {how}\n{smaller}");
                failures.lock().push(format!("{name}: {how}\n{smaller}"));
            }
        }
    });
    println!("{} cases", played.into_inner());
}

/// Cases that the fuzzer has found: they keep their promises, and programs that wait are charged for their work alone.
#[test]
fn what_was_found_keeps_to_its_cap_and_gets_its_share() {
    let (cases, next) = (found::cases(), AtomicUsize::new(0));
    at_a_time(|failures| {
        while let Some(Found { name, case, least }) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            match tried(name, case) {
                Ok(verdict) if verdict.tenant >= least.unwrap_or(0.0) => {}
                Ok(verdict) => failures.lock().push(format!("{name}: {:.1} % of {least:?}", verdict.tenant)),
                Err(how) => failures.lock().push(format!("{name}: {how}\n{case}")),
            }
        }
    });
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
    if let Err(how) = tried("the case", &case) {
        let (smaller, how) = shrink::shrink(case, how, plays());
        panic!("{how}\n{smaller}");
    }
}
