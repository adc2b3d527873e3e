//! Results in the form of `vcuda bench --json`. The keys are stable for other programs.

use serde::Serialize;
use vcuda_figures::{jain, mean, mean_absolute_error, median, most, ratio_error};

use super::plan::{CHANGED, Plan, WINDOW};
use crate::fixture::Fixture;
use crate::load;
use vcuda_quota::CoreShare;

/// The whole report.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) vcuda: &'static str,
    pub(super) gpu: GpuReport,
    /// Number of processors of this machine.
    pub(super) processors: usize,
    /// Load average over the minute before; absent if the kernel does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) load_before: Option<f64>,
    /// Whether the tenants had the shim; without it caps have no effect.
    pub(super) with_shim: bool,
    /// Source of the tenants' service.
    pub(super) measured_by: &'static str,
    pub(super) window_seconds: f64,
    pub(super) windows: u32,
    pub(super) shares: Vec<SharesReport>,
    pub(super) changes: Vec<ChangeReport>,
    pub(super) overhead: Vec<OverheadReport>,
    pub(super) running: Vec<RunningReport>,
    pub(super) summary: Summary,
}

/// The GPU.
#[derive(Clone, Debug, Serialize)]
pub(super) struct GpuReport {
    pub(super) uuid: String,
    pub(super) name: String,
    pub(super) simulated: bool,
}

/// Results of concurrent tenants.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SharesReport {
    pub(super) work: &'static str,
    /// Rate of this work alone and without the shim; absent with an exact record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) baseline_iterations_per_ms: Option<u64>,
    pub(super) tenants: Vec<TenantReport>,
    /// Error of the ratio of two tenants against that of their caps, for the worst pair (percent). Absent for a single
    /// tenant, and if one was not served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio_error_percent: Option<f64>,
    /// Jain's index of shares over caps; absent for a single tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) weighted_jain: Option<f64>,
    /// Sum of shares over sum of caps.
    pub(super) used_of_caps: f64,
}

/// Result of a tenant.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TenantReport {
    pub(super) cap_percent: f64,
    /// Share of the GPU's time over all windows (percent).
    pub(super) share_percent: f64,
    /// Deviation from the cap, positive if above it (percent of the cap).
    pub(super) error_percent: f64,
    /// Mean absolute distance of the windows' shares from the cap (percentage points).
    pub(super) mae_points: f64,
    /// The same for an ideal limiter, as a running kernel cannot be stopped: length / (2 windows).
    pub(super) mae_floor_points: f64,
    /// Share divided by cap.
    pub(super) throughput_of_cap: f64,
    pub(super) windows_percent: Vec<f64>,
    /// Share in each tenth of a second from the first launch on; the windows begin at 0.
    pub(super) over_time: Vec<Sample>,
}

/// Share at a time.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Sample {
    /// End of the tenth (s).
    pub(super) second: f64,
    pub(super) share_percent: f64,
}

/// Delay until a share is reached: until the first of four steps of 5 ms that have it on average.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ChangeReport {
    pub(super) change: String,
    pub(super) work: &'static str,
    /// Number of changes.
    pub(super) times: usize,
    /// Number of times that the share was not reached within a second.
    pub(super) never: usize,
    /// Median of the times when it was reached (ms); absent if it never was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) median_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) worst_ms: Option<f64>,
    pub(super) goal_ms: f64,
}

/// Cost of the shim per call.
#[derive(Clone, Debug, Serialize)]
pub(super) struct OverheadReport {
    pub(super) call: &'static str,
    /// Number of alternations with and without the shim; the figures are medians over these.
    pub(super) pairs: u32,
    pub(super) without_shim_ns: f64,
    pub(super) with_shim_ns: f64,
    pub(super) added_ns: f64,
    /// 99th percentile of single calls, each between two clock readings (ns).
    pub(super) without_shim_p99_ns: f64,
    pub(super) with_shim_p99_ns: f64,
    pub(super) added_p99_ns: f64,
}

/// Processor time of running tenants (percent of a processor), and the delay of their launches.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RunningReport {
    pub(super) caps_percent: Vec<f64>,
    pub(super) work: &'static str,
    /// Use of their processes.
    pub(super) programs_cpu_percent: f64,
    /// Part beyond the use of the same program without the shim for as much work.
    pub(super) shim_cpu_percent: f64,
    /// Use of the manager.
    pub(super) arbiter_cpu_percent: f64,
    /// Number of waits with a predicted end. The delay of the launch after it follows as median and 99th percentile, up to
    /// half above the true value; absent without waits, or if above 16 ms.
    pub(super) holds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) late_median_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) late_p99_us: Option<f64>,
    /// Median delay of a plain sleep in another process meanwhile, caused by the machine (us).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sleep_late_median_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sleep_late_p99_us: Option<f64>,
}

/// Summary of the tables; figures of tables that were not measured are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Summary {
    /// Mean absolute `error_percent` of tenants alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) alone_mean_error_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) alone_mean_mae_points: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) alone_mean_throughput_of_cap: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) split_mean_ratio_error_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) split_worst_ratio_error_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) split_worst_weighted_jain: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) split_least_used_of_caps: Option<f64>,
}

impl Report {
    /// An empty report.
    pub(super) fn new(plan: &Plan, gpu: GpuReport) -> Report {
        Report {
            vcuda: env!("CARGO_PKG_VERSION"),
            with_shim: plan.has_shim,
            measured_by: if gpu.simulated {
                "the exact record's"
            } else {
                "work done / the same alone without the shim"
            },
            gpu,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            load_before: load::load(),
            window_seconds: WINDOW.as_secs_f64(),
            windows: plan.windows,
            shares: Vec::new(),
            changes: Vec::new(),
            overhead: Vec::new(),
            running: Vec::new(),
            summary: Summary::default(),
        }
    }

    /// Whether nothing was measured.
    pub(super) fn is_empty(&self) -> bool {
        self.shares.is_empty()
            && self.changes.is_empty()
            && self.overhead.is_empty()
            && self.running.is_empty()
    }

    /// Computes the summary from the rows.
    pub(super) fn sum_up(&mut self) {
        let (alone, split): (Vec<&SharesReport>, Vec<_>) =
            self.shares.iter().partition(|row| row.tenants.len() == 1);
        let of_alone = |value: fn(&TenantReport) -> f64| {
            let values: Vec<f64> = alone.iter().flat_map(|row| &row.tenants).map(value).collect();
            (!values.is_empty()).then(|| mean(&values))
        };
        let ratios: Vec<f64> = split.iter().filter_map(|row| row.ratio_error_percent).collect();
        let is_whole = !ratios.is_empty() && ratios.len() == split.len();
        let least = |values: Vec<f64>| values.into_iter().reduce(f64::min);
        self.summary = Summary {
            alone_mean_error_percent: of_alone(|tenant| tenant.error_percent.abs()),
            alone_mean_mae_points: of_alone(|tenant| tenant.mae_points),
            alone_mean_throughput_of_cap: of_alone(|tenant| tenant.throughput_of_cap),
            split_mean_ratio_error_percent: is_whole.then(|| mean(&ratios)),
            split_worst_ratio_error_percent: ratios.into_iter().reduce(f64::max).filter(|_| is_whole),
            split_worst_weighted_jain: least(split.iter().filter_map(|row| row.weighted_jain).collect()),
            split_least_used_of_caps: least(split.iter().map(|row| row.used_of_caps).collect()),
        };
    }
}

impl GpuReport {
    /// The GPU of the fixture.
    pub(super) fn of(fixture: &Fixture) -> GpuReport {
        GpuReport {
            uuid: fixture.gpu().uuid.to_string(),
            name: fixture.gpu().name.clone(),
            simulated: fixture.is_simulated(),
        }
    }
}

impl ChangeReport {
    /// Report of a change, from each repetition's delay (ms); `None` where the share was never reached.
    pub(super) fn new(change: String, times_ms: &[Option<f64>], goal_ms: f64) -> ChangeReport {
        let known: Vec<f64> = times_ms.iter().copied().flatten().collect();
        let is_known = !known.is_empty();
        ChangeReport {
            change,
            work: CHANGED.name,
            times: times_ms.len(),
            never: times_ms.len() - known.len(),
            worst_ms: is_known.then(|| most(&known)),
            median_ms: is_known.then(|| median(known)),
            goal_ms,
        }
    }
}

impl SharesReport {
    /// Report of tenants that ran concurrently.
    pub(super) fn new(
        work: &'static str,
        baseline_iterations_per_ms: Option<u64>,
        tenants: Vec<TenantReport>,
    ) -> SharesReport {
        let of_caps: Vec<f64> = tenants.iter().map(|tenant| tenant.throughput_of_cap).collect();
        let is_split = of_caps.len() > 1;
        let total = |value: fn(&TenantReport) -> f64| tenants.iter().map(value).sum::<f64>();
        SharesReport {
            work,
            baseline_iterations_per_ms,
            ratio_error_percent: Some(ratio_error(&of_caps) * 100.0)
                .filter(|error| is_split && error.is_finite()),
            weighted_jain: is_split.then(|| jain(&of_caps)),
            used_of_caps: total(|tenant| tenant.share_percent) / total(|tenant| tenant.cap_percent),
            tenants,
        }
    }
}

impl TenantReport {
    /// Report of a tenant, from its share in each window (fractions). `submission_ns` is the time that cannot be
    /// interrupted.
    pub(super) fn new(
        cap: CoreShare,
        windows: &[f64],
        submission_ns: u64,
        over_time: Vec<Sample>,
    ) -> TenantReport {
        let cap = f64::from(cap.0) / 1000.0;
        let share = mean(windows);
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a kernel")]
        let floor = submission_ns as f64 / 1e9 / (2.0 * WINDOW.as_secs_f64());
        TenantReport {
            cap_percent: cap * 100.0,
            share_percent: share * 100.0,
            error_percent: (share / cap - 1.0) * 100.0,
            mae_points: mean_absolute_error(windows, cap) * 100.0,
            mae_floor_points: floor * 100.0,
            throughput_of_cap: share / cap,
            windows_percent: windows.iter().map(|share| share * 100.0).collect(),
            over_time,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(shares: &[(u32, f64)]) -> SharesReport {
        let tenant = |(cap, share): &(u32, f64)| {
            TenantReport::new(CoreShare(*cap), &[*share, *share], 20_000_000, Vec::new())
        };
        SharesReport::new("1 ms", None, shares.iter().map(tenant).collect())
    }

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} instead of {expected}");
    }

    #[test]
    fn figures_of_a_tenant() {
        let tenant = &row(&[(300, 0.33)]).tenants[0];
        near(tenant.error_percent, 10.0);
        near(tenant.mae_points, 3.0);
        near(tenant.mae_floor_points, 1.0);
        near(tenant.throughput_of_cap, 1.1);
    }

    #[test]
    fn what_never_came_is_counted_and_not_averaged() {
        let report = ChangeReport::new(String::new(), &[Some(5.0), None, Some(10.0), Some(0.0)], 20.0);
        assert_eq!((report.times, report.never), (4, 1));
        assert_eq!((report.median_ms, report.worst_ms), (Some(5.0), Some(10.0)));
        let report = ChangeReport::new(String::new(), &[None], 20.0);
        assert_eq!((report.never, report.median_ms, report.worst_ms), (1, None, None));
    }

    #[test]
    fn figures_of_a_split() {
        let alone = row(&[(300, 0.3)]);
        assert_eq!((alone.ratio_error_percent, alone.weighted_jain), (None, None));
        let split = row(&[(300, 0.3), (600, 0.54)]);
        near(split.ratio_error_percent.unwrap(), 100.0 / 9.0);
        near(split.used_of_caps, 0.84 / 0.9);
        assert!(split.weighted_jain.unwrap() < 1.0);
        let starved = row(&[(300, 0.0), (600, 0.9)]);
        assert_eq!(starved.ratio_error_percent, None);
        near(starved.weighted_jain.unwrap(), 0.5);
    }
}
