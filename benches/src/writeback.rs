//! Cost of an access to `usage` during writeback: a shared mapping of a file on a disk faults then, one on a tmpfs does
//! not.
//!
//! ```text
//! cargo run --release -p vcuda-benches --bin writeback -- [FOLDER]...
//! ```
//!
//! For each folder (default: /dev/shm and the temporary directory) it makes a reservation and its release every 10 us for
//! two seconds. Meanwhile another thread repeatedly writes a file of 64 MiB there and syncs. The output is percentiles of
//! one pair, and the page faults of the measuring thread.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, ensure};
use vcuda_quota::DeviceConfig;
use vcuda_region::GpuUuid;
use vcuda_region::clock::now_ns;
use vcuda_region::directory::{Directory, Tenant};
use vcuda_region::limits::Limits;
use vcuda_region::process::Identity;
use vcuda_region::slots::Usage;

const PAIRS: usize = 200_000;
const EVERY_NS: u64 = 10_000;

/// Minor and major page faults of the calling thread.
fn faults() -> Result<(u64, u64)> {
    // Fields 10 and 12 of proc(5) stat, counted from behind the command in parentheses.
    let stat = std::fs::read_to_string("/proc/thread-self/stat")?;
    let fields: Vec<&str> =
        stat.rsplit_once(')').context("no command in stat")?.1.split_whitespace().collect();
    let number =
        |at: usize| fields.get(at).and_then(|f| f.parse().ok()).context("stat is shorter than proc(5) says");
    Ok((number(7)?, number(9)?))
}

fn write_until(stop: &AtomicBool, file: &mut File) -> std::io::Result<()> {
    let block = vec![0x5a; 1 << 20];
    while !stop.load(Ordering::Relaxed) {
        file.seek(SeekFrom::Start(0))?;
        for _ in 0..64 {
            file.write_all(&block)?;
        }
        // All files, including `usage`, as the kernel's writeback does every few seconds.
        std::process::Command::new("sync").status()?;
    }
    Ok(())
}

fn measure(folder: &Path) -> Result<()> {
    let home =
        tempfile::tempdir_in(folder).with_context(|| format!("no directory in {}", folder.display()))?;
    let me = Identity::current()?;
    let uuid: GpuUuid = "GPU-11111111-1111-1111-1111-111111111111".parse().ok().context("a UUID")?;
    let tenant = Tenant::new("bench", vec![(uuid, DeviceConfig::new(1 << 30, 500))]);
    let directory = Directory::create(home.path(), &tenant, b"", None, now_ns())?;
    let limits = Limits::open(directory.path())?;
    let usage = Usage::open(directory.path())?;
    let slot = usage.claim(&me).ok().context("no slot")?;
    let device = limits.find(&uuid).context("no device")?;
    let mut times = Vec::with_capacity(PAIRS);
    let stop = AtomicBool::new(false);
    let mut other = File::create(home.path().join("other"))?;
    let (before, after) = std::thread::scope(|scope| -> Result<_> {
        let writer = scope.spawn(|| write_until(&stop, &mut other));
        // Page faults of the vector and the slot's first touch are excluded.
        times.resize(PAIRS, 0);
        slot.reserve(device, 1, 1 << 30).ok().context("denied")?.commit();
        slot.release(device, 1);
        let before = faults()?;
        let mut due = now_ns();
        for time in &mut times {
            while now_ns() < due {
                std::hint::spin_loop();
            }
            due += EVERY_NS;
            let start = now_ns();
            slot.reserve(device, 4096, 1 << 30).ok().context("denied")?.commit();
            slot.release(device, 4096);
            *time = now_ns() - start;
        }
        let after = faults()?;
        stop.store(true, Ordering::Relaxed);
        ensure!(writer.join().is_ok_and(|wrote| wrote.is_ok()), "could not write beside it");
        Ok((before, after))
    })?;
    times.sort_unstable();
    report(folder, &times, (after.0 - before.0, after.1 - before.1));
    Ok(())
}

/// Prints quantiles of `times` (ns, sorted), and the page faults (minor, major).
#[expect(clippy::print_stdout, reason = "the figures are what the program is for")]
fn report(folder: &Path, times: &[u64], faults: (u64, u64)) {
    let at = |part: f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index"
        )]
        let index = ((times.len() - 1) as f64 * part) as usize;
        times.get(index).copied().unwrap_or(0)
    };
    println!(
        "{:<16} p50 {:>6} ns  p99 {:>6} ns  p99.99 {:>8} ns  faults minor {} major {}",
        folder.display(),
        at(0.5),
        at(0.99),
        at(0.9999),
        faults.0,
        faults.1
    );
}

fn main() -> Result<()> {
    let mut folders: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if folders.is_empty() {
        folders = vec!["/dev/shm".into(), std::env::temp_dir()];
    }
    folders.iter().try_for_each(|folder| measure(folder))
}
