//! Random memory operations: several processes of four threads each make, free, pass on, import and keep all kinds of
//! memory (`tests/apps/fuzz_memory.c`), also in signal handlers that interrupt or leave a launch, are killed, stopped and
//! replaced, and their quota is changed. The simulator's record is the judge. The GPU's used memory never exceeds the
//! quota, to the byte (I7). At rest `vcuda smi` shows at least the used memory (I18), after all frees exactly that, and
//! nothing of dead processes (I8).
//!
//! `VCUDA_FUZZ_SECONDS` is the total time of all runs (default 20); `VCUDA_FUZZ_SEED` sets the first seed (default: the day), and
//! `VCUDA_FUZZ_FAMILIES` is a sum of the families in `tests/apps/fuzz/base.h` (default: all, handlers if a time is given). A failure names both. Each
//! run prints operations, refusals, the peak and the quota (bytes).

mod crowd;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use vcuda_tests::{Fixture, GIB};

use crowd::{Crowd, MACHINE, SIGNALS};

const QUOTA: u64 = 2 * GIB;
/// Quotas that are set while processes run.
const QUOTAS: [u64; 4] = [GIB / 2, GIB, 3 * GIB / 2, QUOTA];
/// Duration of one run, before everything is freed.
const RUN: Duration = Duration::from_secs(8);

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var_os(variable)?;
    Some(value.to_str().unwrap().parse().unwrap())
}

/// Days since 1970: each day tries other seeds.
fn day() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 86_400
}

/// All families (`tests/apps/fuzz/base.h`).
const FAMILIES: u32 = 8191;

#[test]
#[expect(clippy::disallowed_methods, reason = "a time budget, by the wall clock")]
fn random_operations_stay_within_the_quota() {
    let time = Duration::from_secs(number("VCUDA_FUZZ_SECONDS").unwrap_or(20));
    let families = number("VCUDA_FUZZ_FAMILIES").map(|sum| u32::try_from(sum).unwrap());
    let start = Instant::now();
    // No two days have seeds in common.
    let mut seed = number("VCUDA_FUZZ_SEED").unwrap_or_else(|| day() << 20);
    while start.elapsed() < time {
        // Signals come while launches wait for their share, and so less is done. They take long on a busy machine.
        let has_time = number("VCUDA_FUZZ_SECONDS").is_some();
        let usual = if has_time && seed.is_multiple_of(2) { FAMILIES } else { FAMILIES & !SIGNALS };
        run(seed, families.unwrap_or(usual), RUN);
        seed += 1;
    }
}

/// Runs one tenant from its first process to its last.
#[expect(clippy::disallowed_methods, reason = "as above")]
fn run(seed: u64, families: u32, time: Duration) {
    let fixture = Fixture::with_config(MACHINE);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut quota = QUOTA / 2;
    let mut crowd = Crowd::new(&fixture, quota, families, seed);
    // The size of a context is known once the first one exists.
    crowd.add(true);
    crowd.at_rest(|_, _| ());
    for _ in 0..2 {
        crowd.add(true);
    }
    crowd.add(false);
    let start = Instant::now();
    // First with half of the quota, up to which the peak is exact.
    while start.elapsed() < time / 4 {
        disturb(&mut crowd, &mut random);
        let peak = crowd.peak_bytes();
        assert!(peak <= quota, "{}: {peak} of {quota}", crowd.name());
    }
    quota = QUOTA;
    crowd.set_quota(quota);
    let mut allowed = quota;
    while start.elapsed() < time {
        disturb(&mut crowd, &mut random);
        let (taken, peak) = (crowd.taken_bytes(), crowd.peak_bytes());
        assert!(peak <= QUOTA, "{}: {peak} of {QUOTA}", crowd.name());
        assert!(taken <= allowed, "{}: {taken} after {allowed}", crowd.name());
        if random.u8(..4) == 0 {
            quota = QUOTAS[random.usize(..QUOTAS.len())];
            allowed = crowd.at_rest(|crowd, figures| {
                assert!(figures.taken <= allowed, "{}: {figures:?}", crowd.name());
                crowd.set_quota(quota);
                // Existing memory stays, and must not grow.
                figures.told.max(quota)
            });
        }
    }
    crowd.set_quota(QUOTA);
    crowd.end();
    let peak = crowd.peak_bytes();
    assert!(peak <= QUOTA, "{}: {peak} of {QUOTA}", crowd.name());
    let (done, refused) = crowd.done_and_refused();
    let name = crowd.name();
    let signals = crowd.signals();
    println!(
        "{name}: {done} operations, {refused} refused, {signals} handlers in calls, peak {peak} of {QUOTA}"
    );
    // Launches wait long enough only beside work on streams.
    assert!(families != FAMILIES || signals > 0, "{name}: no handler came");
    assert!(done > 300 && refused > 0, "{name}: hardly anything happened");
}

/// Disturbs the processes at random, or waits a while.
fn disturb(crowd: &mut Crowd<'_>, random: &mut fastrand::Rng) {
    crowd.fail_if_one_ended();
    match random.u8(..8) {
        0 | 1 => crowd.kill_one(),
        2 => crowd.stop_one(Duration::from_millis(random.u64(1..50))),
        3 if crowd.count() < 6 => crowd.add(random.u8(..4) != 0),
        _ => std::thread::sleep(Duration::from_millis(random.u64(1..150))),
    }
}
