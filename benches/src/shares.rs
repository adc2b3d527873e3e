//! How exact shares of GPU time are, by the simulator's exact record of service time.
//!
//! ```text
//! cargo build --release --workspace && cargo run --release -p vcuda-benches --bin shares [-- SECONDS]
//! ```
//!
//! Real processes in real time: `tests/apps/saturate.c` under `vcuda run --sim --cores CAP`, one tenant alone and two
//! side by side, kernels of 10 us to 20 ms. Each figure is the service in a window of SECONDS (default 3) in the middle of
//! the run over the length of the window, in percent. Needs a machine that is otherwise quiet: a launching thread that
//! gets no processor cannot use its share.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use vcuda_region::clock::now_ns;

const KERNELS_NS: [(&str, u64); 4] = [
    ("10 us", 10_000),
    ("100 us", 100_000),
    ("1 ms", 1_000_000),
    ("20 ms", 20_000_000),
];
const ALONE: [u32; 5] = [10, 30, 50, 60, 90];
const PAIRS: [(u32, u32); 3] = [(30, 60), (30, 70), (10, 80)];

struct Bench {
    home: tempfile::TempDir,
    vcuda: PathBuf,
}

/// A tenant that is stopped when it is no longer looked at.
struct Tenant(Child);

impl Drop for Tenant {
    fn drop(&mut self) {
        // Already over is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Bench {
    fn new() -> Result<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| here.join("../target"), PathBuf::from);
        let vcuda = target.join("release/vcuda");
        ensure!(
            vcuda.exists(),
            "no {}: run `cargo build --release --workspace` first",
            vcuda.display()
        );
        let bench = Bench {
            home: tempfile::tempdir()?,
            vcuda,
        };
        let source = here.join("../tests/apps/saturate.c");
        let compiled = Command::new("cc")
            .args(["-O2", "-Wno-unused", "-DVIA_DLSYM", "-o"])
            .arg(bench.program())
            .arg(source)
            .args(["-ldl", "-lpthread"])
            .status()
            .context("no C compiler")?;
        ensure!(compiled.success(), "the C compiler failed");
        Ok(bench)
    }

    fn program(&self) -> PathBuf {
        self.home.path().join("saturate")
    }

    fn vcuda(&self) -> Command {
        let mut command = Command::new(&self.vcuda);
        command
            .env("XDG_RUNTIME_DIR", self.home.path())
            .env("VCUDA_SIM", self.home.path().join("machine"));
        command
    }

    fn start(&self, cap: u32, kernel_ns: u64, seconds: u64) -> Result<Tenant> {
        let mut command = self.vcuda();
        command
            .args(["run", "--sim", "--cores", &cap.to_string(), "--"])
            .arg(self.program());
        command.args([(seconds + 3).to_string(), kernel_ns.to_string()]);
        Ok(Tenant(command.stdout(Stdio::null()).spawn()?))
    }

    /// GPU time of each process so far (ns), and when that was read.
    fn service(&self, tenants: &[Tenant]) -> Result<(Vec<u64>, u64)> {
        let output = self.vcuda().args(["sim", "report", "--json"]).output()?;
        let now = now_ns();
        let report: Value = serde_json::from_slice(&output.stdout).context("no report")?;
        let rows = report
            .get("processes")
            .and_then(Value::as_array)
            .context("no processes")?;
        let of = |pid: u32| -> u64 {
            let row = rows
                .iter()
                .find(|row| row.get("pid").and_then(Value::as_u64) == Some(pid.into()));
            row.and_then(|row| row.get("service_ns")?.as_u64()).unwrap_or(0)
        };
        Ok((tenants.iter().map(|tenant| of(tenant.0.id())).collect(), now))
    }

    /// Shares in percent.
    #[expect(clippy::cast_precision_loss, reason = "percent")]
    fn shares(&self, caps: &[u32], kernel_ns: u64, seconds: u64) -> Result<Vec<f64>> {
        let tenants: Vec<Tenant> = caps
            .iter()
            .map(|cap| self.start(*cap, kernel_ns, seconds))
            .collect::<Result<_>>()?;
        std::thread::sleep(Duration::from_millis(1500));
        let (before, start) = self.service(&tenants)?;
        std::thread::sleep(Duration::from_secs(seconds));
        let (after, end) = self.service(&tenants)?;
        let elapsed = (end - start) as f64;
        Ok(after
            .iter()
            .zip(before)
            .map(|(a, b)| (a - b) as f64 / elapsed * 100.0)
            .collect())
    }
}

#[expect(clippy::print_stdout, reason = "the tables are what the program is for")]
fn main() -> Result<()> {
    let seconds = std::env::args()
        .nth(1)
        .map_or(Ok(3), |text| text.parse())
        .context("SECONDS is a whole number")?;
    let bench = Bench::new()?;
    let mut header = vec!["caps %"];
    header.extend(KERNELS_NS.map(|(name, _)| name));
    let mut table = comfy_table::Table::new();
    table.set_header(header);
    let alone = ALONE.iter().map(|cap| vec![*cap]);
    for caps in alone.chain(PAIRS.iter().map(|(a, b)| vec![*a, *b])) {
        let words = |numbers: Vec<String>| numbers.join(" / ");
        let mut row = vec![words(caps.iter().map(ToString::to_string).collect())];
        for (_, kernel_ns) in KERNELS_NS {
            let shares = bench.shares(&caps, kernel_ns, seconds)?;
            row.push(words(shares.iter().map(|share| format!("{share:.1}")).collect()));
        }
        table.add_row(row);
    }
    println!("{table}");
    Ok(())
}
