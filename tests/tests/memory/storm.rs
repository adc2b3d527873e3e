//! Stress: many processes and threads of one tenant allocate and free all kinds of memory at random, with refusals,
//! injected faults and kills. The sum never exceeds the quota, no process hangs, and all memory is freed (I7, I8). The
//! judge of the maximum is the simulator's peak.
//!
//! `VCUDA_SOAK=N` makes every part N times as long.

use std::process::Command;
use std::time::Duration;

use vcuda_tests::{Door, Fixture, GIB, MIB, Running, app, eventually};

/// Factor of the duration, 1 in CI.
fn soak() -> u64 {
    std::env::var_os("VCUDA_SOAK").map_or(1, |times| times.to_str().unwrap().parse().unwrap())
}

/// A machine with cheap contexts and modules, so that dozens of processes fit a small quota.
const SMALL_CONTEXTS: &str =
    "context_bytes = \"4MiB\"\ngranularity_bytes = 1\n[[gpus]]\nmemory_bytes = \"80GiB\"\n";
const CONTEXT: u64 = 4 * MIB;
/// Memory of the variable of a program's module (bytes).
const MODULE: u64 = 8;

/// Injected faults: intervals of failing calls, without a common divisor.
const FAULTS: [(&str, u32); 14] = [
    ("cuMemAlloc_v2", 97),
    ("cuMemAllocManaged", 89),
    ("cuMemAllocPitch_v2", 83),
    ("cuMemAllocAsync", 79),
    ("cuMemAllocFromPoolAsync", 73),
    ("cuMemCreate", 71),
    ("cuMemMap", 67),
    ("cuArrayCreate_v2", 61),
    ("cuMipmappedArrayCreate", 59),
    ("cuMemFree_v2", 101),
    ("cuMemFreeAsync", 103),
    ("cuMemUnmap", 107),
    ("cuMemRelease", 109),
    ("cuArrayDestroy", 113),
];

/// A process that waits for a line on its stdin.
fn waiting(command: &mut Command) -> Running {
    Running::ready(command, "started")
}

/// Numbers of a line such as "done 40000 refused 7 failed 0".
fn numbers(line: &str) -> Vec<u64> {
    line.split(' ').filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn a_million_operations_stay_within_the_quota_and_end_at_zero() {
    let fault = |(name, every)| format!("{name} = {{ every = {every}, code = 999 }}\n");
    let faults: String = FAULTS.into_iter().map(fault).collect();
    let fixture = Fixture::with_config(&format!("{SMALL_CONTEXTS}[faults.functions]\n{faults}"));
    let tenant = fixture.keep("storm", &["--memory", "1GiB"]);
    let (processes, threads) = (4, 2);
    let operations = 1_000_000 * soak() / (processes * threads);
    let mut running: Vec<Running> = (0..processes)
        .map(|seed| {
            let mut storm = tenant.command(app("storm", Door::Dlsym));
            storm
                .args([operations, threads, seed + 1, 64 * MIB].map(|n| n.to_string()))
                .env("STORM_WAIT", "1");
            waiting(&mut storm)
        })
        .collect();
    let alone = fixture.used_bytes();
    assert_eq!(alone, processes * CONTEXT);
    running.iter_mut().for_each(|one| one.tell(""));
    let (mut refused, mut failed) = (0, 0);
    for one in &mut running {
        let counts = numbers(&one.wait_for("done"));
        assert_eq!(counts[0], operations * threads);
        refused += counts[1];
        failed += counts[2];
    }
    assert!(refused > 1000, "the quota was hardly touched: {refused} refused");
    assert!(failed > 1000, "the driver hardly failed: {failed} times");
    let peak = fixture.peak_bytes(0);
    assert!((GIB - 64 * MIB..=GIB).contains(&peak), "the GPU gave out {peak} at once under a quota of {GIB}");
    assert_eq!(fixture.used_bytes(), alone);
    assert_eq!(tenant.used_bytes(), alone, "{}", tenant.smi(0));
    for one in &mut running {
        one.tell("");
        assert!(one.finish().success());
    }
    eventually("all contexts are given back", Duration::from_secs(1), || tenant.used_bytes() == 0);
}

#[test]
fn sixty_four_processes_fill_the_quota_exactly() {
    let fixture = Fixture::with_config(SMALL_CONTEXTS);
    let tenant = fixture.keep("filled", &["--memory", "2GiB"]);
    for (round, bytes) in [MIB, 7 * MIB + 3, 333_333].into_iter().enumerate() {
        let mut running: Vec<Running> = (0..64)
            .map(|_| waiting(tenant.command(app("fill", Door::Dlsym)).arg(bytes.to_string())))
            .collect();
        running.iter_mut().for_each(|one| one.tell(""));
        let granted: u64 = running.iter_mut().map(|one| numbers(&one.wait_for("filled"))[0]).sum();
        let room = 2 * GIB - 64 * (CONTEXT + MODULE);
        assert!(granted <= room, "round {round}: {granted} of {room}");
        assert!(
            granted + bytes > room,
            "round {round}: refused although {} would have fitted",
            room - granted
        );
        assert_eq!(tenant.used_bytes(), granted + 64 * (CONTEXT + MODULE));
        assert!(fixture.peak_bytes(0) <= 2 * GIB);
        for one in &mut running {
            one.tell("");
            assert!(one.finish().success());
        }
    }
}

#[test]
fn a_thousand_kills_lose_nothing() {
    let fixture = Fixture::with_config(SMALL_CONTEXTS);
    let tenant = fixture.keep("killed", &["--memory", "1GiB"]);
    let limit = GIB;
    let (width, kills) = (32, 1000 * soak());
    let mut seed = 1;
    let mut start = || {
        seed += 1;
        let mut storm = tenant.command(app("storm", Door::Dlsym));
        // Running processes are stopped while others start.
        storm.args(["0", "1", &seed.to_string(), "33554432"]).env("STORM_PAUSE_US", "2000");
        Running::start(&mut storm)
    };
    // The size of a context is known once the first one exists, and later ones are charged before they are made.
    start().wait_for("started");
    let mut running: Vec<Running> = (0..width).map(|_| start()).collect();
    running.iter_mut().for_each(|one| drop(one.wait_for("started")));
    for n in 0..kills {
        // The scheduler and random numbers determine which process dies when.
        let at = usize::try_from(n * 7919 % width).unwrap();
        std::thread::sleep(Duration::from_micros(n * 104_729 % 2000));
        running[at].signal(libc::SIGKILL);
        running[at].finish();
        // The next one starts with a region that its predecessor left in any state, and must be able to use it.
        running[at] = start();
        if n % 100 == 99 {
            let used = tenant.used_bytes();
            assert!(used <= limit, "{used} after {n} kills");
        }
    }
    running.iter_mut().for_each(|one| drop(one.wait_for("started")));
    for one in &running {
        one.signal(libc::SIGKILL);
    }
    for one in &mut running {
        one.finish();
    }
    eventually("the dead have nothing", Duration::from_secs(1), || {
        fixture.used_bytes() == 0 && tenant.used_bytes() == 0
    });
    let peak = fixture.peak_bytes(0);
    assert!(peak <= limit, "{peak} after {kills} kills");
    let mut last = waiting(tenant.command(app("fill", Door::Dlsym)).arg(MIB.to_string()));
    last.tell("");
    assert_eq!(
        numbers(&last.wait_for("filled"))[0],
        (limit - CONTEXT - MODULE) / MIB * MIB,
        "the next process has the whole quota"
    );
}
