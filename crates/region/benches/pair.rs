//! Cost of each call of this crate: nanoseconds per operation, the least of several rounds.
//! `cargo bench -p vcuda-region --bench pair`
#![expect(clippy::print_stdout, reason = "the figures are the program's output")]

use std::hint::black_box;

use vcuda_quota::DeviceConfig;
use vcuda_region::clock::now_ns;
use vcuda_region::limits::Limits;
use vcuda_region::process::Identity;
use vcuda_region::slots::Usage;
use vcuda_region::{DeviceIndex, GpuUuid};

const GIB: u64 = 1 << 30;
const CALLS: u32 = 200_000;

fn measure(name: &str, mut call: impl FnMut()) {
    let best = (0..9).map(|_| {
        let start = now_ns();
        for _ in 0..CALLS {
            call();
        }
        now_ns() - start
    });
    let best = best.min().unwrap_or(0);
    println!("{name:<44} {:>8.1} ns", best as f64 / f64::from(CALLS));
}

/// Measures several threads of one process at once: elapsed time per pair (ns), the median of several rounds.
fn contended(me: &Identity, device: DeviceIndex, threads: u32) -> Result<f64, Box<dyn std::error::Error>> {
    const ROUNDS: u32 = 2_000_000;
    let usage = Usage::in_memory()?;
    let slot = usage.claim(me)?;
    let round = || {
        let start = now_ns();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..ROUNDS / threads {
                        if let Ok(reservation) = slot.reserve(device, black_box(4096), 4 * GIB) {
                            reservation.commit();
                            slot.release(device, black_box(4096));
                        }
                    }
                });
            }
        });
        now_ns() - start
    };
    let mut rounds: Vec<u64> = (0..9).map(|_| round()).collect();
    rounds.sort_unstable();
    let median = rounds.get(4).copied().unwrap_or(0);
    Ok(median as f64 / f64::from(ROUNDS))
}

/// Measures calls of one process while others hold slots and memory.
fn with_neighbours(
    neighbours: u32,
    me: &Identity,
    limits: &Limits,
    device: DeviceIndex,
) -> Result<(), Box<dyn std::error::Error>> {
    let usage = Usage::in_memory()?;
    for pid in 1..=neighbours {
        let other = usage.claim(&Identity { pid, start_ticks: 1, ..*me })?;
        other.reserve(device, 4096, 4 * GIB)?.commit();
    }
    let slot = usage.claim(me)?;
    measure(&format!("reserve + commit + release, {neighbours} neighbours"), || {
        if let Ok(limit) = limits.memory_limit_bytes(device)
            && let Ok(reservation) = slot.reserve(device, black_box(2 << 20), limit)
        {
            reservation.commit();
            slot.release(device, black_box(2 << 20));
        }
    });
    measure(&format!("refused, {neighbours} neighbours"), || {
        let _ = black_box(slot.reserve(device, black_box(8 * GIB), 4 * GIB));
    });
    measure(&format!("used_bytes, {neighbours} neighbours"), || {
        black_box(usage.used_bytes(device));
    });
    Ok(())
}

/// Measures the calls that a launch makes.
fn launch_calls(
    me: &Identity,
    limits: &Limits,
    device: DeviceIndex,
) -> Result<(), Box<dyn std::error::Error>> {
    let usage = Usage::in_memory()?;
    let slot = usage.claim(me)?;
    let meter = slot.meter(device);
    measure("memory_limit_bytes", || {
        let _ = black_box(limits.memory_limit_bytes(black_box(device)));
    });
    measure("is_metered", || {
        black_box(limits.is_metered(black_box(device)));
    });
    measure("pace", || {
        let _ = black_box(limits.pace(black_box(device)));
    });
    measure("spend (a launch within its lease)", || {
        if !meter.spend(black_box(10)) {
            meter.take(usage.bucket(device), 10);
        }
    });
    measure("now_ns (vDSO)", || {
        black_box(now_ns());
    });
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = DeviceIndex::new(0).ok_or("device 0")?;
    let uuid = GpuUuid::from_bytes([7; 16]);
    let limits = Limits::in_memory("bench", &[(uuid, DeviceConfig::new(4 * GIB, 300))], now_ns())?;
    let limits = limits.limits();
    let me = Identity::current()?;
    for neighbours in [0, 1, 7, 63] {
        with_neighbours(neighbours, &me, limits, device)?;
    }
    for threads in [1, 2, 8] {
        println!(
            "{:<44} {:>8.1} ns",
            format!("reserve + commit + release, {threads} threads at once"),
            contended(&me, device, threads)?
        );
    }
    launch_calls(&me, limits, device)
}
