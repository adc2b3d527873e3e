//! Simulated GPU in virtual time, with tenants that launch whenever their limiter permits.

use anyhow::{Context as _, Result};
use vcuda_machine::{Client, ClockKind, Command, Config, Machine, StreamId, Ticket};

use super::limiter::{Kind, Limiter, POLL_NS};
use super::program::{Launch, Program};

/// Cost of a launch for the host (ns).
const LAUNCH_NS: u64 = 4_000;
/// Number of launches between two readings of the clock.
const BATCH: u64 = 16;
/// Minimum duration of a full queue (ns): 1024 kernels of 10 us.
const FULL_NS: u64 = 1_000_000;
/// Window over which shares are compared with caps (ns).
pub(crate) const WINDOW_NS: u64 = 1_000_000_000;

/// A tenant: a process with one stream.
#[derive(Debug)]
struct Tenant {
    client: Client,
    stream: StreamId,
    program: Program,
    limiter: Limiter,
    random: fastrand::Rng,
    /// A launch that found the queue full.
    blocked: Option<Launch>,
    /// Time until which it sleeps (ns).
    asleep_until_ns: u64,
    /// Command that it waits for.
    waits_for: Option<Ticket>,
    pid: u32,
}

impl Tenant {
    /// Starts a process with a context and a stream. Fails if the simulated machine is full.
    fn start(machine: &Machine, pid: u32, program: Program, limiter: Limiter) -> Result<Tenant> {
        let client = machine.attach(pid, "tenant")?;
        let context = client.context_create(0).map_err(|_| anyhow::anyhow!("no context"))?;
        let stream = client.stream_create(context, 0).context("no stream")?;
        Ok(Tenant {
            client,
            stream,
            program,
            limiter,
            random: fastrand::Rng::with_seed(u64::from(pid)),
            blocked: None,
            asleep_until_ns: 0,
            waits_for: None,
            pid,
        })
    }

    /// Makes all permitted launches. Returns the time of the next attempt (ns); `None`: at the next event on the GPU.
    fn act(&mut self, now_ns: u64) -> Option<u64> {
        if let Some(ticket) = self.waits_for {
            if !self.client.is_done(ticket) {
                return None;
            }
            self.waits_for = None;
        }
        if now_ns < self.asleep_until_ns {
            return Some(self.asleep_until_ns);
        }
        for _ in 0..BATCH {
            let launch = match self.blocked.take() {
                Some(paid) => paid,
                None if !self.limiter.admit() => return self.sleep(now_ns, POLL_NS),
                None => self.program.next(&mut self.random, now_ns),
            };
            let kernel = Command::Kernel { duration_ns: launch.duration_ns, sms: 0 };
            match self.client.submit(self.stream, kernel) {
                Ok(ticket) if launch.waits => {
                    self.waits_for = Some(ticket);
                    return None;
                }
                Ok(_) => {}
                // A launch into a full queue blocks; it is paid already.
                Err(_) => {
                    self.blocked = Some(launch);
                    return self.sleep(now_ns, FULL_NS);
                }
            }
        }
        self.sleep(now_ns, BATCH * LAUNCH_NS)
    }

    fn sleep(&mut self, now_ns: u64, ns: u64) -> Option<u64> {
        self.asleep_until_ns = now_ns + ns;
        Some(self.asleep_until_ns)
    }
}

/// Share of each tenant in each of `windows` (percent), after `warm_up` windows. Fails if the simulated machine is
/// full.
pub(crate) fn shares(
    kind: Kind,
    program: Program,
    caps_percent: &[u32],
    warm_up: usize,
    windows: usize,
) -> Result<Vec<Vec<f64>>> {
    let mut config = Config::with_gpus(1, 80 << 30);
    config.clock = ClockKind::Virtual;
    config.sample_ns = WINDOW_NS / 6;
    let machine = Machine::in_memory(config)?;
    let mut tenants = (1..)
        .zip(caps_percent)
        .map(|(pid, cap)| Tenant::start(&machine, pid, program, Limiter::new(kind, *cap)))
        .collect::<Result<Vec<Tenant>>>()?;
    let start_ns = machine.now_ns();
    let mut steer_at_ns = start_ns.saturating_add(kind.period_ns());
    let mut window_ends_ns = start_ns + WINDOW_NS * warm_up as u64;
    let mut before: Option<Vec<u64>> = None;
    let mut found = vec![Vec::new(); caps_percent.len()];
    loop {
        let now_ns = machine.now_ns();
        if now_ns >= steer_at_ns {
            steer_at_ns = now_ns.saturating_add(kind.period_ns());
            steer(&machine, &mut tenants, now_ns);
        }
        if now_ns >= window_ends_ns {
            window_ends_ns += WINDOW_NS;
            let now = services_ns(&machine, &tenants);
            for ((share, now), before) in found.iter_mut().zip(&now).zip(before.iter().flatten()) {
                share.push(percent(now - before));
            }
            before = Some(now);
            if found.iter().all(|shares| shares.len() >= windows) {
                return Ok(found);
            }
        }
        let mut until_ns = steer_at_ns.min(window_ends_ns);
        let mut waits_for_gpu = false;
        for tenant in &mut tenants {
            match tenant.act(now_ns) {
                Some(at_ns) => until_ns = until_ns.min(at_ns),
                None => waits_for_gpu = true,
            }
        }
        if waits_for_gpu && let Some(event_ns) = machine.next_event_ns() {
            until_ns = until_ns.min(event_ns);
        }
        machine.step_clock(until_ns.saturating_sub(now_ns).max(1));
    }
}

/// Gives each limiter its tenant's use in the last window, as NVML would report it.
fn steer(machine: &Machine, tenants: &mut [Tenant], now_ns: u64) {
    let samples = machine.samples(0, now_ns.saturating_sub(WINDOW_NS));
    for tenant in tenants {
        let last = samples.iter().rev().find(|sample| sample.pid == tenant.pid);
        tenant.limiter.steer(last.map_or(0, |sample| sample.percent));
    }
}

/// GPU time of each tenant so far (ns).
fn services_ns(machine: &Machine, tenants: &[Tenant]) -> Vec<u64> {
    let report = machine.report();
    let service = |tenant: &Tenant| {
        let own = report.processes.iter().find(|row| row.pid == tenant.pid);
        own.map_or(0, |row| row.service_ns)
    };
    tenants.iter().map(service).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a second in ns is far below 2^53")]
fn percent(service_ns: u64) -> f64 {
    service_ns as f64 / WINDOW_NS as f64 * 100.0
}
