//! Cost of running tenants: processor time of their processes and of the manager, compared with the same program without
//! the shim, and the delay of launches after a wait.

use std::thread;
use std::time::Duration;

use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use vcuda_figures::quantile;
use vcuda_limiter::token_bucket::LatenessUse;
use vcuda_region::usage_reader::UsageReader;
use vcuda_region::{DeviceIndex, clock};

use super::plan::{Plan, USUAL, WARM_UP};
use super::report::RunningReport;
use crate::fixture::interrupt::Interrupt;
use crate::fixture::protocol::{Reply, Request};
use crate::fixture::{Fixture, Tenant};
use vcuda_cli::failure::{Failure, failed};
use vcuda_quota::CoreShare;

/// Sets of concurrent tenants, by their caps (thousandths of the GPU).
pub(super) const ROWS: [&[u32]; 2] = [&[500], &[300, 600]];
/// Duration of a plain sleep whose delay is measured, about that of a wait.
const NAP: Duration = Duration::from_millis(3);

/// Measurement of the rows.
#[derive(Debug)]
pub(super) struct Costs<'a> {
    pub(super) plan: &'a Plan,
    pub(super) fixture: &'a Fixture,
    pub(super) interrupt: &'a Interrupt,
    pub(super) iterations_per_ms: u64,
}

/// Use of a program up to a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    cpu_ns: u64,
    iterations: u64,
}

impl Used {
    fn since(self, before: Used) -> Used {
        Used {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            iterations: self.iterations.saturating_sub(before.iterations),
        }
    }
}

impl Costs<'_> {
    /// Processor time per iteration of the program without the shim, alone on the GPU (ns).
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of seconds")]
    pub(super) fn bare(&self) -> Result<f64, Failure> {
        let mut alone = [self.fixture.bare("bare")?];
        let (used, _, _) = self.run(&mut alone)?;
        Ok(used.cpu_ns as f64 / (used.iterations.max(1)) as f64)
    }

    /// Measures tenants with these caps; `bare_ns` is the processor time of an iteration without the shim.
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of seconds")]
    pub(super) fn row(&self, caps: &[u32], bare_ns: f64) -> Result<RunningReport, Failure> {
        let mut tenants = Vec::new();
        for (at, cap) in caps.iter().enumerate() {
            let name = format!("bench-cost-{}-{at}", caps.len());
            tenants.push((
                self.fixture.tenant(&name, None, CoreShare(*cap))?,
                self.fixture.tenant_directory(&name),
            ));
        }
        let (mut programs, directories): (Vec<Tenant>, Vec<_>) = tenants.into_iter().unzip();
        let lateness = || {
            let mut sum = LatenessUse::default();
            for directory in &directories {
                let reader = UsageReader::open(directory).map_err(failed)?;
                let Some(device) = DeviceIndex::new(0) else {
                    return Ok(sum);
                };
                sum = sum.and(&reader.bucket(device).map_err(failed)?.lateness);
            }
            Ok::<_, Failure>(sum)
        };
        let manager = || Ok::<_, Failure>(cpu_ns(self.fixture.manager_pid()?));
        let before = std::cell::Cell::new((LatenessUse::default(), 0));
        let (used, elapsed_ns, naps) = self.run_from(&mut programs, || {
            before.set((lateness()?, manager()?));
            Ok(())
        })?;
        let (late_before, manager_before) = before.get();
        let late = lateness()?.since(&late_before);
        let percent = |ns: f64| ns / elapsed_ns as f64 * 100.0;
        let added_ns = used.cpu_ns as f64 - bare_ns * used.iterations as f64;
        let us = |permille| {
            let known = late.at_most_ns(permille).filter(|ns| *ns < u64::MAX);
            known.map(|ns| ns as f64 / 1000.0)
        };
        Ok(RunningReport {
            caps_percent: caps.iter().map(|cap| f64::from(*cap) / 10.0).collect(),
            work: USUAL.name,
            programs_cpu_percent: percent(used.cpu_ns as f64),
            shim_cpu_percent: percent(added_ns),
            arbiter_cpu_percent: percent(manager()?.saturating_sub(manager_before) as f64),
            holds: late.waits(),
            late_median_us: us(500),
            late_p99_us: us(990),
            sleep_late_median_us: quantile(naps.clone(), 500),
            sleep_late_p99_us: quantile(naps, 990),
        })
    }

    fn run(&self, programs: &mut [Tenant]) -> Result<(Used, u64, Vec<f64>), Failure> {
        self.run_from(programs, || Ok(()))
    }

    /// Lets the tenants saturate the GPU, and calls `begin` after the warm-up. Returns their use from then on, the duration
    /// (ns), and the delays of sleeps in this process meanwhile (us).
    fn run_from(
        &self,
        programs: &mut [Tenant],
        begin: impl Fn() -> Result<(), Failure>,
    ) -> Result<(Used, u64, Vec<f64>), Failure> {
        let work = USUAL.work(self.iterations_per_ms);
        for program in programs.iter_mut() {
            program.must(Request::Saturate { work })?;
        }
        self.interrupt.sleep(WARM_UP)?;
        begin()?;
        let start_ns = clock::now_ns();
        let before = looked_at(programs)?;
        let naps = self.naps(start_ns + u64::from(self.plan.windows) * 1_000_000_000)?;
        let after = looked_at(programs)?;
        Ok((after.since(before), clock::now_ns() - start_ns, naps))
    }

    /// Delays of sleeps in this process until `until_ns` (us).
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a sleep")]
    fn naps(&self, until_ns: u64) -> Result<Vec<f64>, Failure> {
        let mut late_us = Vec::new();
        loop {
            let start_ns = clock::now_ns();
            if start_ns >= until_ns {
                return Ok(late_us);
            }
            self.interrupt.sleep(Duration::ZERO)?;
            let begun_ns = clock::now_ns();
            thread::sleep(NAP);
            let slept = Duration::from_nanos(clock::now_ns() - begun_ns);
            late_us.push(slept.saturating_sub(NAP).as_nanos() as f64 / 1000.0);
        }
    }
}

fn looked_at(programs: &mut [Tenant]) -> Result<Used, Failure> {
    let mut sum = Used::default();
    for program in programs {
        sum.cpu_ns += i32::try_from(program.pid()).map_or(0, cpu_ns);
        sum.iterations += match program.ask(Request::Count)? {
            Reply::Count { iterations, .. } => iterations,
            other => return Err(Failure::Failed(format!("asked for a count, got {other:?}"))),
        };
    }
    Ok(sum)
}

/// Processor time of a process so far (ns); 0 if it is gone.
fn cpu_ns(pid: i32) -> u64 {
    let clock: Result<ClockId, _> = clock_getcpuclockid(Pid::from_raw(pid));
    let time = clock.and_then(clock_gettime);
    time.map_or(0, |time| u64::try_from(time.tv_sec() * 1_000_000_000 + time.tv_nsec()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_time_of_a_process_grows_with_its_work() {
        let me = i32::try_from(std::process::id()).unwrap();
        let before = cpu_ns(me);
        let mut sum = 0_u64;
        while cpu_ns(me) < before + 1_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(before > 0);
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        assert_eq!(cpu_ns(i32::try_from(ended.id()).unwrap()), 0);
    }
}
