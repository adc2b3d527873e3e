//! A manager beside the experiment. It does not take part in virtual time, since it waits by system calls that no preloaded
//! library replaces (`epoll_wait` of its registrar). It reads virtual time. So time passes no faster than real time beside it,
//! and stands still while its arbiter lags behind.
#![expect(clippy::disallowed_methods, reason = "real time, which the manager waits by")]

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use vcuda_region::limits::Limits;

use super::{BEGINS_WITHIN, Lab};

/// Time that passes before the manager is looked at again (ns).
const STEP_NS: u64 = 1_000_000;
/// Age of the arbiter's last beat that stops time (ns). It beats at least each 100 ms while a tenant works.
const LAG_NS: u64 = 250_000_000;
/// Longest real time for which it is waited for: one that has nothing to do takes a step each 0.6 s.
const CATCHES_UP_WITHIN: Duration = Duration::from_secs(30);

impl Lab {
    /// Starts a manager with this configuration (`manager.toml`), before the first tenant. It runs the arbiter. Fails
    /// if it does not start.
    pub fn start_manager(&mut self, config: &str) -> Result<()> {
        let at = |name: &str| self.dir.path().join(name);
        let (settings, log) = (at("manager.toml"), at("manager.log"));
        fs::write(&settings, config)?;
        let libraries = ["nvml", "cuda"].map(|name| {
            let library = self.release.join(format!("libvcuda_simulator_{name}.so"));
            [format!("--{name}-library").into(), library.into_os_string()]
        });
        let mut command = self.command("vcuda-manager");
        command
            .arg("--root")
            .arg(at("run/vcuda"))
            .arg("--state")
            .arg(at("state"))
            .arg("--config")
            .arg(&settings)
            .args(libraries.concat())
            .args(["--node", "lab", "--metrics", "127.0.0.1:0"])
            .env("VCUDA_MANAGER_CDI", "off")
            .stderr(Stdio::from(File::create(&log)?))
            .process_group(0);
        self.world.look_on(&mut command);
        let mut manager = command.spawn()?;
        let is_ready = within(BEGINS_WITHIN, || is_ready(&log) || has_ended(&mut manager));
        self.manager = Some(manager);
        let said = fs::read_to_string(&log)?;
        ensure!(is_ready && is_ready_in(&said), "the manager did not start: {said}");
        Ok(())
    }

    /// What the manager has logged. Fails if its log cannot be read.
    pub fn manager_log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.dir.path().join("manager.log"))?)
    }

    /// Lets time pass (ns), for a manager that keeps up with it.
    pub(super) fn run_beside_manager(&self, ns: u64) -> Result<()> {
        let (end_ns, began_ns) = (self.now_ns() + ns, self.now_ns());
        let began = Instant::now();
        while self.now_ns() < end_ns {
            self.world.run_until(end_ns.min(self.now_ns() + STEP_NS))?;
            let passed = Duration::from_nanos(self.now_ns() - began_ns);
            std::thread::sleep(passed.saturating_sub(began.elapsed()));
            let keeps_up = || self.beat_ns().is_none_or(|beat_ns| self.now_ns() - beat_ns < LAG_NS);
            ensure!(within(CATCHES_UP_WITHIN, keeps_up), "the manager's arbiter does no step");
        }
        Ok(())
    }

    /// Time of the arbiter's last step that a tenant saw (ns). `None` before the first, for which the arbiter waits in virtual time.
    fn beat_ns(&self) -> Option<u64> {
        let directories = self.tenants.iter().filter_map(|tenant| tenant.directory.as_deref());
        let beats = directories.filter_map(|directory| Some(Limits::read(directory).ok()?.arbiter_beat_ns()));
        beats.max().filter(|beat_ns| *beat_ns > 0)
    }
}

/// Ends a manager and the runs of `vcuda-checkpoint` that it has begun: the limit of a step, in virtual time, never comes once that
/// stands still.
pub(super) fn end(manager: &mut Child) {
    if let Ok(pid) = i32::try_from(manager.id()) {
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    }
    let _ = manager.wait();
}

fn is_ready(log: &Path) -> bool {
    fs::read_to_string(log).is_ok_and(|said| is_ready_in(&said))
}

fn is_ready_in(said: &str) -> bool {
    said.lines().any(|line| line.ends_with(" ready"))
}

fn has_ended(manager: &mut Child) -> bool {
    !matches!(manager.try_wait(), Ok(None))
}

/// Waits until this holds. Returns whether it did in time.
fn within(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
