//! Many processes of one tenant allocate and free at random, and are killed at random instants: the sum is never above
//! the quota by the simulator's own peak, nobody hangs, and everything comes back (I7, I8).
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it should be"
)]

use std::time::Duration;

use vcuda_tests::{Bed, Door, GIB, MIB, Running, app, eventually};

#[test]
fn killed_at_random_nothing_is_lost_or_exceeded() {
    let bed = Bed::new();
    let churn = app("churn", Door::Dlsym);
    let limit = 6 * GIB;
    let quota = ["--memory", "6GiB", "--name", "storm"];
    let mut keeper = Running::start(bed.tenant(&quota, app("hold", Door::Dlsym)).arg(MIB.to_string()));
    keeper.wait_for("holding");
    let alone = bed.used_bytes();
    for round in 0..5_u64 {
        let mut running: Vec<Running> = (0..8_u64)
            .map(|n| Running::start(bed.tenant(&quota, &churn).arg((round * 8 + n + 1).to_string())))
            .collect();
        running.iter_mut().for_each(|r| drop(r.wait_for("started")));
        for (n, one) in running.iter_mut().enumerate() {
            // Instants that no test author chose: the time since the start in microseconds, scrambled.
            let instant = (round * 7919 + n as u64 * 104_729) % 20_000;
            std::thread::sleep(Duration::from_micros(instant));
            one.signal(libc::SIGKILL);
            one.finish();
        }
        eventually("all memory of the dead is back", Duration::from_secs(1), || {
            bed.used_bytes() == alone
        });
    }
    let gpu = &bed.report()["gpus"][0];
    let peak = gpu["memory_peak_bytes"].as_u64().unwrap();
    // Contexts are charged too, but may lie beyond the quota: at most nine of 480 MiB exist at once.
    assert!(peak <= limit + 9 * 480 * MIB, "{peak}");
    let tenant = &bed.smi()["gpus"][0]["tenants"][0];
    assert!(
        tenant["memory_used_bytes"].as_u64().unwrap() <= alone + 64 * MIB,
        "{tenant}"
    );
}
