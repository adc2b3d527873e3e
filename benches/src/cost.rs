//! What a hooked call costs over calling the driver directly.
//!
//! ```text
//! cargo build --release --workspace && cargo run --release -p vcuda-benches --bin cost
//! ```
//!
//! The driver is one that does nothing (`apps/noop.c`), so that only the hook remains. Bare and hooked runs alternate,
//! and each figure is the smallest difference of paired runs' medians; instructions are counted by callgrind as the
//! difference between two numbers of calls, which is the same on every machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// One measured situation: what the program calls, under which quota, and what the project promises.
struct Case {
    title: &'static str,
    call: &'static str,
    quota: Option<&'static [&'static str]>,
    goal_ns: f64,
}

const CASES: [Case; 4] = [
    Case {
        title: "launch, no limit",
        call: "launch",
        quota: Some(&["--memory", "8GiB"]),
        goal_ns: 5.0,
    },
    Case {
        title: "launch within its share",
        call: "launch",
        quota: Some(&["--cores", "90"]),
        goal_ns: 25.0,
    },
    Case {
        title: "allocate + free",
        call: "alloc",
        quota: Some(&["--memory", "8GiB"]),
        goal_ns: 150.0,
    },
    Case {
        title: "cuMemGetInfo",
        call: "info",
        quota: Some(&["--memory", "8GiB"]),
        goal_ns: 40.0,
    },
];

/// Everything one run needs: the no-op driver, the program, the release build.
struct Bench {
    dir: tempfile::TempDir,
    release: PathBuf,
}

impl Bench {
    fn new() -> Result<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| here.join("../target"), PathBuf::from);
        let bench = Bench {
            dir: tempfile::tempdir()?,
            release: target.join("release").canonicalize()?,
        };
        ensure!(
            bench.release.join("libvcuda_shim.so").exists(),
            "no libvcuda_shim.so in {}: run `cargo build --release --workspace` first",
            bench.release.display()
        );
        let library = bench.dir.path().join("libcuda.so.1");
        let source = |name: &str| here.join("apps").join(name);
        cc(Command::new("cc")
            .args(["-O2", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"])
            .arg(&library)
            .arg(source("noop.c")))?;
        cc(Command::new("cc")
            .args(["-O2", "-o"])
            .arg(bench.program())
            .arg(source("cost.c"))
            .arg(&library))?;
        Ok(bench)
    }

    fn program(&self) -> PathBuf {
        self.dir.path().join("cost")
    }

    /// The program bare, or as a tenant whose "simulated" driver is replaced by the no-op one.
    fn command(&self, case: &Case, hooked: bool, tool: &[&str], calls: u64) -> Command {
        let mut inner: Vec<std::ffi::OsString> = tool.iter().map(Into::into).collect();
        inner.extend([self.program().into(), case.call.into(), calls.to_string().into()]);
        let mut command = match (hooked, case.quota) {
            (true, Some(quota)) => {
                let mut command = Command::new(self.release.join("vcuda"));
                command.args(["run", "--sim"]).args(quota).args(["--", "env"]);
                command
                    .arg(format!("LD_LIBRARY_PATH={}", self.dir.path().display()))
                    .args(inner);
                command
            }
            _ => {
                let mut command = Command::new("env");
                command.args(inner);
                command
            }
        };
        command.env("LD_LIBRARY_PATH", self.dir.path());
        command
            .env("VCUDA_SIM", self.dir.path().join("machine"))
            .env("XDG_RUNTIME_DIR", self.dir.path());
        // The no-op driver's card has a UUID of its own, which the quota must name.
        std::fs::create_dir_all(self.dir.path().join("machine")).ok();
        std::fs::write(
            self.dir.path().join("machine/machine.toml"),
            "[[gpus]]\nuuid = \"GPU-11111111-1111-1111-1111-111111111111\"\n",
        )
        .ok();
        command
    }

    /// Nanoseconds per call.
    fn ns(&self, case: &Case, hooked: bool) -> Result<f64> {
        let output = self.command(case, hooked, &[], 1_000_000).output()?;
        let text = String::from_utf8(output.stdout)?;
        ensure!(
            output.status.success(),
            "{}: {}{text}",
            case.title,
            String::from_utf8_lossy(&output.stderr)
        );
        text.trim()
            .parse()
            .with_context(|| format!("{}: {text:?} is no number", case.title))
    }

    /// Instructions per call, or `None` where valgrind is not installed.
    fn instructions(&self, case: &Case, hooked: bool) -> Result<Option<f64>> {
        let mut totals = [0.0; 2];
        let calls = [20_000, 40_000];
        for (total, calls) in totals.iter_mut().zip(calls) {
            let out = self.dir.path().join("callgrind.out");
            let flag = format!("--callgrind-out-file={}", out.display());
            let tool = [
                "valgrind",
                "-q",
                "--tool=callgrind",
                "--trace-children=yes",
                flag.as_str(),
            ];
            let Ok(output) = self.command(case, hooked, &tool, calls).output() else {
                return Ok(None);
            };
            if !output.status.success() {
                return Ok(None);
            }
            let report = std::fs::read_to_string(&out)?;
            let line = report
                .lines()
                .find_map(|l| l.strip_prefix("summary:").or(l.strip_prefix("totals:")));
            *total = line.context("callgrind wrote no total")?.trim().parse()?;
        }
        Ok(Some((totals[1] - totals[0]) / 20_000.0))
    }
}

fn cc(command: &mut Command) -> Result<()> {
    let output = command.output().context("no C compiler")?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// What preloading the shim adds to a program that never touches CUDA: the median difference of 300 paired runs of
/// `true`, in microseconds.
fn preload_us(release: &Path) -> Result<f64> {
    let shim = release.join("libvcuda_shim.so");
    let run = |preload: bool| -> Result<f64> {
        let mut command = Command::new("true");
        command.env_remove("LD_PRELOAD");
        if preload {
            command.env("LD_PRELOAD", &shim);
        }
        let start = vcuda_region::clock::now_ns();
        ensure!(command.status()?.success(), "`true` failed");
        #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
        let us = (vcuda_region::clock::now_ns() - start) as f64 / 1e3;
        Ok(us)
    };
    let differences: Result<Vec<f64>> = (0..300).map(|_| Ok(-run(false)? + run(true)?)).collect();
    Ok(median(differences?))
}

#[expect(clippy::print_stdout, reason = "the table is what the program is for")]
fn main() -> Result<()> {
    let bench = Bench::new()?;
    let mut table = comfy_table::Table::new();
    table.set_header(["call", "driver ns", "added ns", "goal ns", "added instructions"]);
    for case in &CASES {
        let (mut bare, mut added) = (Vec::new(), Vec::new());
        for _ in 0..7 {
            let driver = bench.ns(case, false)?;
            added.push(bench.ns(case, true)? - driver);
            bare.push(driver);
        }
        let instructions = match (bench.instructions(case, true)?, bench.instructions(case, false)?) {
            (Some(hooked), Some(driver)) => format!("{:.0}", hooked - driver),
            _ => "no valgrind".to_owned(),
        };
        table.add_row([
            case.title.to_owned(),
            format!("{:.1}", median(bare)),
            format!("{:.1}", median(added)),
            format!("{:.0}", case.goal_ns),
            instructions,
        ]);
    }
    println!("{table}");
    println!(
        "preloaded into `true`: {:.0} us more (goal 300)",
        preload_us(&bench.release)?
    );
    Ok(())
}
