//! Shares of saturating tenants over time.

use std::collections::HashMap;
use std::time::Duration;

use vcuda_region::clock;

use super::changes::shares;
use super::plan::{Load, Plan, Row, WARM_UP, WINDOW};
use super::report::{Sample, SharesReport, TenantReport};
use crate::fixture::interrupt::Interrupt;
use crate::fixture::protocol::{Reply, Request, Shape, Work};
use crate::fixture::record::{Record, Served};
use crate::fixture::{Fixture, Tenant};
use vcuda_cli::failure::{Failure, failed};
use vcuda_quota::CoreShare;

/// Interval of readings for the chart.
const SAMPLE: Duration = Duration::from_millis(100);
/// Duration of the measurement of work alone, and of its warm-up.
const BASELINE: Duration = Duration::from_millis(1500);
const BASELINE_WARM_UP: Duration = Duration::from_millis(300);

/// Measurement of the rows.
#[derive(Debug)]
pub(super) struct Shares<'a> {
    plan: &'a Plan,
    fixture: &'a Fixture,
    interrupt: &'a Interrupt,
    iterations_per_ms: u64,
    /// Iterations per millisecond of each load alone, on a real GPU.
    baselines: HashMap<&'static str, u64>,
    started: u32,
}

impl<'a> Shares<'a> {
    /// A measurement on a GPU with this rate of iterations per millisecond.
    pub(super) fn new(
        plan: &'a Plan,
        fixture: &'a Fixture,
        interrupt: &'a Interrupt,
        iterations_per_ms: u64,
    ) -> Shares<'a> {
        Shares { plan, fixture, interrupt, iterations_per_ms, baselines: HashMap::new(), started: 0 }
    }

    /// Runs the row's tenants concurrently.
    pub(super) fn row(&mut self, row: &Row) -> Result<SharesReport, Failure> {
        let record = self.record(row.load)?;
        let mut tenants = Vec::new();
        for cap in &row.caps {
            tenants.push(self.tenant(*cap)?);
        }
        let work = row.load.work(self.iterations_per_ms);
        for tenant in &mut tenants {
            tenant.must(Request::Saturate { work })?;
        }
        let looks = self.watch(&record, &mut tenants)?;
        drop(tenants);
        let reports = row.caps.iter().zip(looks).map(|(cap, looks)| {
            TenantReport::new(*cap, &windows(&looks), row.load.submission_ns(), samples(&looks))
        });
        let baseline = match record {
            Record::Record => None,
            Record::Work { iterations_per_ms } => Some(iterations_per_ms),
        };
        Ok(SharesReport::new(row.load.name, baseline, reports.collect()))
    }

    /// Starts a new tenant, so that a row does not profit from what an earlier one learnt.
    fn tenant(&mut self, cap: CoreShare) -> Result<Tenant, Failure> {
        self.started += 1;
        let name = format!("bench-{}", self.started);
        if self.plan.has_shim { self.fixture.tenant(&name, None, cap) } else { self.fixture.bare(&name) }
    }

    /// Record of the tenants' service. On a real GPU that is the work done, at the rate of the same work alone.
    pub(super) fn record(&mut self, load: &'static Load) -> Result<Record, Failure> {
        if self.fixture.is_simulated() {
            return Ok(Record::Record);
        }
        let iterations_per_ms = match self.baselines.get(load.name) {
            Some(known) => *known,
            None => {
                let measured = self.baseline(load.work(self.iterations_per_ms))?;
                *self.baselines.entry(load.name).or_insert(measured)
            }
        };
        Ok(Record::Work { iterations_per_ms })
    }

    /// Iterations per millisecond of this work alone and without the shim. For synchronous work the kernels are measured
    /// without the pauses between them.
    fn baseline(&self, work: Work) -> Result<u64, Failure> {
        let work = match work.shape {
            Shape::Synchronized => Work { shape: Shape::Launches, ..work },
            _ => work,
        };
        let mut alone = self.fixture.bare("baseline")?;
        alone.must(Request::Saturate { work })?;
        self.interrupt.sleep(BASELINE_WARM_UP)?;
        let before = count(&mut alone)?;
        self.interrupt.sleep(BASELINE)?;
        let after = count(&mut alone)?;
        let iterations = u128::from(after.0.saturating_sub(before.0));
        let rate = iterations * 1_000_000 / u128::from(after.1.saturating_sub(before.1).max(1));
        match u64::try_from(rate) {
            Ok(rate) if rate > 0 => Ok(rate),
            _ => Err(Failure::Failed(
                "the GPU did no work at all while one program had it alone; does it answer? Try `nvidia-smi`"
                    .to_owned(),
            )),
        }
    }

    /// Service of each tenant at the beginning and after each [`SAMPLE`].
    fn watch(&self, record: &Record, tenants: &mut [Tenant]) -> Result<Vec<Vec<Served>>, Failure> {
        let mut looks: Vec<Vec<Served>> = vec![Vec::new(); tenants.len()];
        let begin_ns = clock::now_ns();
        let time = WARM_UP + WINDOW * self.plan.windows;
        for look in 0..=u64::try_from(samples_in(time)).map_err(failed)? {
            let due_ns = begin_ns + look * u64::try_from(SAMPLE.as_nanos()).map_err(failed)?;
            let wait_ns = due_ns.saturating_sub(clock::now_ns());
            self.interrupt.sleep(Duration::from_nanos(wait_ns))?;
            for (looks, tenant) in looks.iter_mut().zip(tenants.iter_mut()) {
                looks.push(record.served(self.fixture, tenant)?);
            }
        }
        Ok(looks)
    }
}

fn count(tenant: &mut Tenant) -> Result<(u64, u64), Failure> {
    match tenant.ask(Request::Count)? {
        Reply::Count { iterations, at_ns } => Ok((iterations, at_ns)),
        other => Err(Failure::Failed(format!("asked for a count, got {other:?}"))),
    }
}

fn samples_in(time: Duration) -> usize {
    usize::try_from(time.as_nanos() / SAMPLE.as_nanos()).unwrap_or(usize::MAX)
}

/// Share in each window after the warm-up.
fn windows(looks: &[Served]) -> Vec<f64> {
    let measured = looks.get(samples_in(WARM_UP)..).unwrap_or_default();
    let ends: Vec<Served> = measured.iter().copied().step_by(samples_in(WINDOW)).collect();
    shares(&ends)
}

/// Share over time from the first launch on; the windows begin at second 0.
fn samples(looks: &[Served]) -> Vec<Sample> {
    let step = SAMPLE.as_secs_f64();
    let first = -WARM_UP.as_secs_f64() + step;
    let at = std::iter::successors(Some(first), |at| Some(at + step));
    let of = |(second, share): (f64, f64)| Sample {
        second: (second * 10.0).round() / 10.0,
        share_percent: share * 100.0,
    };
    at.zip(shares(looks)).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings of a tenant with half of the GPU in the warm-up, and a quarter later.
    fn looks(seconds: u64) -> Vec<Served> {
        let warm_up = samples_in(WARM_UP) as u64;
        let served = |look: u64| 50_000_000 * look.min(warm_up) + 25_000_000 * look.saturating_sub(warm_up);
        (0..=warm_up + seconds * samples_in(WINDOW) as u64)
            .map(|look| Served { served_ns: served(look), at_ns: look * 100_000_000 })
            .collect()
    }

    #[test]
    fn the_warm_up_is_drawn_but_not_measured() {
        let looks = looks(2);
        assert_eq!(windows(&looks), [0.25, 0.25]);
        let samples = samples(&looks);
        assert_eq!((samples[0].second, samples[0].share_percent), (-1.4, 50.0));
        let last = samples.last().unwrap();
        assert_eq!((last.second, last.share_percent), (2.0, 25.0));
    }

    #[test]
    fn a_window_that_is_not_whole_does_not_count() {
        let mut looks = looks(2);
        looks.pop();
        assert_eq!(windows(&looks), [0.25]);
    }
}
