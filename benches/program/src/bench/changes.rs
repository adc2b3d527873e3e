//! Delay until a share is reached: after idleness, and after a change.

use std::path::Path;
use std::time::Duration;

use vcuda_figures::{STEP_NS, first_there};
use vcuda_region::clock;
use vcuda_region::limits::LimitsWriter;

use super::plan::{CHANGED, Plan, WARM_UP};
use super::report::ChangeReport;
use crate::fixture::interrupt::Interrupt;
use crate::fixture::protocol::{Request, Work};
use crate::fixture::record::{Record, Served};
use crate::fixture::{Fixture, Tenant};
use vcuda_cli::failure::{Failure, failed};
use vcuda_quota::{CoreShare, Quota};

/// Duration of idleness, and interval between two changes.
const IDLE: Duration = Duration::from_secs(1);
const BETWEEN: Duration = Duration::from_millis(200);
/// Maximum delay; a longer one counts as never.
const WATCHED: Duration = Duration::from_secs(1);
/// Number of submissions in flight: finished work is counted with a delay of as many submissions.
const DEPTH: u32 = 4;
/// Fraction of a share from which it counts as reached.
const THERE: f64 = 0.9;
/// Distance from the new share within which a change counts as effective.
const FELT: f64 = 0.1;
/// Goals for a share after idleness and for a change (ms); the latter in addition to the running kernel.
const IDLE_GOAL_MS: f64 = 20.0;
const CHANGE_GOAL_MS: f64 = 50.0;

/// Shares (thousandths) of a program that was idle, and the two that are exchanged.
const IDLE_SHARE: u32 = 400;
const SHARES: [u32; 2] = [300, 700];

/// Number of rows.
pub(super) const ROWS: usize = 2;

/// Measurement of the rows.
#[derive(Debug)]
pub(super) struct Changes<'a> {
    pub(super) plan: &'a Plan,
    pub(super) fixture: &'a Fixture,
    pub(super) interrupt: &'a Interrupt,
    pub(super) iterations_per_ms: u64,
    /// Record of the service of [`CHANGED`].
    pub(super) record: Record,
}

impl Changes<'_> {
    /// Measures the delay of a program that was idle and saturates again, from the first step in which it is served.
    pub(super) fn after_idleness(&self) -> Result<ChangeReport, Failure> {
        let share = CoreShare(IDLE_SHARE);
        let mut tenant = self.saturating("bench-idle", share)?;
        let mut times_ms = Vec::new();
        for _ in 0..self.plan.changes {
            tenant.must(Request::Rest)?;
            self.interrupt.sleep(IDLE)?;
            tenant.must(Request::Resume)?;
            let there = |got| got >= THERE * fraction(share);
            times_ms.push(self.watch(&mut tenant, |looks| ms_since_begun(looks, there))?);
        }
        let change = format!("{} after {} s of idleness", share, IDLE.as_secs());
        Ok(ChangeReport::new(change, &times_ms, IDLE_GOAL_MS))
    }

    /// Measures the delay of a changed share of a saturating tenant, from the moment before the change.
    pub(super) fn of_share(&self) -> Result<ChangeReport, Failure> {
        let name = "bench-changed";
        let [first, other] = SHARES.map(CoreShare);
        let mut tenant = self.saturating(name, first)?;
        let directory = self.fixture.tenant_directory(name);
        let mut times_ms = Vec::new();
        for share in [other, first].into_iter().cycle().take(2 * self.plan.changes as usize) {
            let begin_ns = clock::now_ns();
            set_share(&directory, share)?;
            let felt = |got: f64| (got - fraction(share)).abs() <= FELT;
            times_ms.push(self.watch(&mut tenant, |looks| ms_until(begin_ns, looks, felt))?);
            self.interrupt.sleep(BETWEEN)?;
        }
        let change = format!("{} changed to {} and back", first, other);
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a kernel")]
        let kernel_ms = CHANGED.submission_ns() as f64 / 1e6;
        Ok(ChangeReport::new(change, &times_ms, CHANGE_GOAL_MS + kernel_ms))
    }

    /// A tenant that has saturated the GPU at its share for a while.
    fn saturating(&self, name: &str, share: CoreShare) -> Result<Tenant, Failure> {
        let mut tenant = self.fixture.tenant(name, None, share)?;
        let work = Work { depth: DEPTH, ..CHANGED.work(self.iterations_per_ms) };
        tenant.must(Request::Saturate { work })?;
        self.interrupt.sleep(WARM_UP)?;
        Ok(tenant)
    }

    /// Reads a tenant's service now and after each step, until `there` returns the delay (ms).
    fn watch(
        &self,
        tenant: &mut Tenant,
        there: impl Fn(&[Served]) -> Option<f64>,
    ) -> Result<Option<f64>, Failure> {
        let end_ns = clock::now_ns() + u64::try_from(WATCHED.as_nanos()).map_err(failed)?;
        let mut looks = Vec::new();
        loop {
            let look = self.record.served(self.fixture, tenant)?;
            looks.push(look);
            let came = there(&looks);
            if came.is_some() || look.at_ns > end_ns {
                return Ok(came);
            }
            // Before this reading, nothing shows whether a step catches up on an earlier one.
            self.interrupt.sleep(Duration::from_nanos(STEP_NS))?;
        }
    }
}

/// Share of each step between two readings.
pub(super) fn shares(looks: &[Served]) -> Vec<f64> {
    let pairs = looks.iter().zip(looks.iter().skip(1));
    pairs.map(|(before, after)| after.share_since(*before)).collect()
}

/// Time from `begin_ns` to the first steps that satisfy `is_there` (ms); `None` if there are none.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds of a second")]
fn ms_until(begin_ns: u64, looks: &[Served], is_there: impl Fn(f64) -> bool) -> Option<f64> {
    let there = looks.get(first_there(&shares(looks), is_there)?)?;
    Some(there.at_ns.saturating_sub(begin_ns) as f64 / 1e6)
}

/// The same, from the end of the first step with service, in which the program begins.
fn ms_since_begun(looks: &[Served], is_there: impl Fn(f64) -> bool) -> Option<f64> {
    let first = shares(looks).iter().position(|share| *share > 0.0)?;
    let (begin, later) = looks.get(first..)?.split_first()?;
    ms_until(begin.at_ns, later, is_there)
}

fn fraction(share: CoreShare) -> f64 {
    f64::from(share.0) / 1000.0
}

/// Changes a tenant's share as the manager does.
fn set_share(directory: &Path, share: CoreShare) -> Result<(), Failure> {
    let mut writer = LimitsWriter::open(directory).map_err(failed)?;
    let devices: Vec<_> = writer.limits().devices().map(|(device, _)| device).collect();
    for device in devices {
        let config = Quota::fixed(None, share.0).config();
        writer.set_config(device, &config, clock::now_ns()).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings of 5 ms steps with these shares (percent).
    fn looks(percent: &[u64]) -> Vec<Served> {
        let mut looks = vec![Served { served_ns: 0, at_ns: 1_000_000_000 }];
        for share in percent {
            let last = looks[looks.len() - 1];
            looks.push(Served {
                served_ns: last.served_ns + share * STEP_NS / 100,
                at_ns: last.at_ns + STEP_NS,
            });
        }
        looks
    }

    #[test]
    fn a_change_is_felt_where_four_steps_have_it_on_average() {
        let looks = looks(&[30, 30, 50, 80, 60, 70, 70, 70]);
        let felt = |share: f64| (share - 0.7).abs() <= FELT;
        assert_eq!(ms_until(999_000_000, &looks, felt), Some(11.0));
        assert_eq!(ms_until(999_000_000, &looks, |share| share > 0.9), None);
    }

    #[test]
    fn idleness_ends_with_the_first_service() {
        let there = |share: f64| share >= 0.36;
        let looks = |percent: &[u64]| ms_since_begun(&looks(percent), there);
        assert_eq!(looks(&[0, 0, 10, 40, 40, 40, 40]), Some(5.0));
        assert_eq!(looks(&[0, 0, 10, 0, 0, 40, 40, 40, 40]), Some(15.0));
        assert_eq!(looks(&[0, 0, 0, 0, 0, 0]), None);
    }
}
