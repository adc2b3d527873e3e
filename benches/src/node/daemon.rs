//! Process of the daemon: start, scrapes, and measurements.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use vcuda_benches::{Stage, median};
use vcuda_region::clock;

/// Maximum number of checks for its first answer, one each [`LOOK`].
const LOOKS: u32 = 1000;
const LOOK: Duration = Duration::from_millis(20);

/// A running `vcuda-manager`, killed on drop.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    socket: PathBuf,
    metrics: String,
}

/// A command for `vcuda` with the directories of `place`.
pub(crate) fn vcuda(stage: &Stage, place: &Path) -> Command {
    let mut command = Command::new(stage.released("vcuda"));
    command.env("VCUDA_SIM", place.join("machine")).env("XDG_RUNTIME_DIR", place).stdin(Stdio::null());
    command
}

impl Daemon {
    pub(crate) fn start(stage: &Stage, place: &Path, state: &Path) -> Result<Self> {
        let (root, log) = (place.join("vcuda"), place.join("log"));
        let child = Command::new(stage.released("vcuda-manager"))
            .arg("--root")
            .arg(&root)
            .arg("--state")
            .arg(state.join("state"))
            .arg("--nvml-library")
            .arg(stage.released("libvcuda_simulator_nvml.so"))
            .args(["--node", "bench", "--metrics", "127.0.0.1:0"])
            .env("VCUDA_SIM", place.join("machine"))
            .stdin(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .context("no vcuda-manager: run `cargo build --release` first")?;
        let mut daemon = Self { child, socket: root.join("manager.sock"), metrics: String::new() };
        for _ in 0..LOOKS {
            let said = fs::read_to_string(&log)?;
            let address = said.split_once("metrics at http://");
            if let Some((_, rest)) = address.filter(|_| said.contains("ready")) {
                rest.split('/').next().unwrap_or_default().clone_into(&mut daemon.metrics);
                return Ok(daemon);
            }
            sleep(LOOK);
        }
        bail!("the manager is not ready: {}", fs::read_to_string(&log)?)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.socket.clone()
    }

    fn proc(&self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.child.id());
        fs::read_to_string(&path).context(path)
    }

    /// Its resident memory, including files (bytes).
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        let status = self.proc("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        Ok(kib.context("no VmRSS")?.trim().parse::<u64>()? << 10)
    }

    /// Processor time of its threads, user and system (ns), without threads that have ended.
    pub(crate) fn processor_ns(&self) -> Result<u64> {
        let mut sum_ns = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            // A thread that ends meanwhile has no figure.
            let stat = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
            sum_ns += stat.split(' ').next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(sum_ns)
    }

    /// Median duration of `times` scrapes (ms), and the size of the last one (bytes).
    pub(crate) fn scrape(&self, times: usize) -> Result<(f64, usize)> {
        let mut times_ms = Vec::new();
        let mut page = Vec::new();
        for _ in 0..times {
            let began_ns = clock::now_ns();
            let mut stream = TcpStream::connect(&self.metrics)?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
            page.clear();
            stream.read_to_end(&mut page)?;
            times_ms.push(clock::now_ns().saturating_sub(began_ns) as f64 / 1e6);
        }
        Ok((median(times_ms), page.len()))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
