//! Results, as `vcuda bench --json` prints them. The keys are a promise to other programs.

use serde::Serialize;
use vcuda_figures::{jain, mean, mean_absolute_error, median, most, ratio_error};

use super::plan::{CHANGED, Plan, WINDOW};
use crate::fixture::Fixture;
use vcuda_quota::CoreShare;

/// The whole.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) vcuda: &'static str,
    pub(super) gpu: GpuReport,
    /// Processors of this machine.
    pub(super) processors: usize,
    /// Mean number of programs that wanted one in the minute before; absent where the kernel does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) load_before: Option<f64>,
    /// Whether the tenants had the shim; without it caps are words.
    pub(super) with_shim: bool,
    /// Record that says what a tenant was served.
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

/// Tenants side by side.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SharesReport {
    pub(super) work: &'static str,
    /// Rate of this work alone and without the shim; absent if there is an exact record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) baseline_iterations_per_ms: Option<u64>,
    pub(super) tenants: Vec<TenantReport>,
    /// By how much the ratio of two tenants misses that of their caps, the worst pair; absent for one alone, and where one
    /// got nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio_error_percent: Option<f64>,
    /// Index of shares over caps; absent for one alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) weighted_jain: Option<f64>,
    /// All shares together over all caps together.
    pub(super) used_of_caps: f64,
}

/// One tenant.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TenantReport {
    pub(super) cap_percent: f64,
    /// Share of the GPU's time, over all windows.
    pub(super) share_percent: f64,
    /// Deviation from the cap: more than it if positive.
    pub(super) error_percent: f64,
    /// Mean distance of a window's share from the cap, percentage points.
    pub(super) mae_points: f64,
    /// Error of an ideal limiter, since a running kernel cannot be stopped: length / (2 windows), percentage points.
    pub(super) mae_floor_points: f64,
    /// Share over cap.
    pub(super) throughput_of_cap: f64,
    pub(super) windows_percent: Vec<f64>,
    /// Every tenth of a second from the first launch on; the windows begin at 0.
    pub(super) over_time: Vec<Sample>,
}

/// A share at a time.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Sample {
    /// End of the tenth.
    pub(super) second: f64,
    pub(super) share_percent: f64,
}

/// Delay until a share is there: until the first of four steps of 5 ms that have it on average.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ChangeReport {
    pub(super) change: String,
    pub(super) work: &'static str,
    /// Number of changes made.
    pub(super) times: usize,
    /// Number of times that the share was not there within a second.
    pub(super) never: usize,
    /// Median over the times when it was; absent if it never was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) median_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) worst_ms: Option<f64>,
    pub(super) goal_ms: f64,
}

/// Cost that the shim adds to a call.
#[derive(Clone, Debug, Serialize)]
pub(super) struct OverheadReport {
    pub(super) call: &'static str,
    /// Times with and without it, in alternation; the figures are medians of these.
    pub(super) pairs: u32,
    pub(super) without_shim_ns: f64,
    pub(super) with_shim_ns: f64,
    pub(super) added_ns: f64,
    /// Bound of 99 of 100 single calls, each between two looks at the clock.
    pub(super) without_shim_p99_ns: f64,
    pub(super) with_shim_p99_ns: f64,
    pub(super) added_p99_ns: f64,
}

/// Cost of running tenants, in percent of one processor, and the lateness of their launches.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RunningReport {
    pub(super) caps_percent: Vec<f64>,
    pub(super) work: &'static str,
    /// Use of their processes in all.
    pub(super) programs_cpu_percent: f64,
    /// Part of it that the same program takes beyond its use without the shim for as much work.
    pub(super) shim_cpu_percent: f64,
    /// Use of the arbiter and its standby.
    pub(super) arbiter_cpu_percent: f64,
    /// Holds whose end was known, and how late the launch went on: at most so late for half and for 99 of 100, up to half as
    /// much again as the truth; absent where nothing was held, or later than 16 ms.
    pub(super) holds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) late_median_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) late_p99_us: Option<f64>,
    /// Lateness of a plain sleep of another process meanwhile: what the machine gives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sleep_late_median_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sleep_late_p99_us: Option<f64>,
}

/// The tables in a few figures; those of a table that was not measured are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Summary {
    /// Mean of the amounts of `error_percent` of tenants alone.
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
    /// Nothing measured yet.
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
            load_before: load(),
            window_seconds: WINDOW.as_secs_f64(),
            windows: plan.windows,
            shares: Vec::new(),
            changes: Vec::new(),
            overhead: Vec::new(),
            running: Vec::new(),
            summary: Summary::default(),
        }
    }

    /// Fills the summary from the rows.
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

/// The first figure of `/proc/loadavg`.
fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.parse().ok()
}

impl GpuReport {
    /// The one that the fixture plays on.
    pub(super) fn of(fixture: &Fixture) -> GpuReport {
        GpuReport {
            uuid: fixture.gpu().uuid.to_string(),
            name: fixture.gpu().name.clone(),
            simulated: fixture.is_simulated(),
        }
    }
}

impl ChangeReport {
    /// Report of the time that it took each time; nothing where it never was.
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
    /// Report of tenants that ran side by side.
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
    /// Report of the shares in each window (fractions); `submission_ns` is how long nothing can interrupt it.
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
