//! `vcuda bench`: measures the accuracy of shares and the cost of the shim on this GPU or the simulated one. The tenants
//! are this program, under `vcuda run` like any other.

mod changes;
mod overhead;
mod picture;
mod plan;
mod progress;
mod report;
mod running;
mod shares;
mod table;
mod verdict;

use std::io::{self, Write as _};

use crate::chart;
use crate::fixture::interrupt::Interrupt;
use crate::fixture::{Fixture, GpuKind, record};
use changes::Changes;
use overhead::Overhead;
use plan::Plan;
use progress::Progress;
use report::{GpuReport, Report};
use shares::Shares;
use vcuda_cli::args::bench::BenchArgs;
use vcuda_cli::config::Environment;
use vcuda_cli::failure::Failure;

/// Measures, and prints the report.
pub(crate) fn bench(args: &BenchArgs, environment: &Environment) -> Result<(), Failure> {
    let plan = Plan::new(args)?;
    args.svg.as_deref().map_or(Ok(()), chart::can_write)?;
    let interrupt = Interrupt::catch()?;
    let kind = GpuKind::asked(args.sim, GpuKind::Real);
    let fixture = Fixture::set_up(kind, args.gpu.as_ref(), environment)?;
    let mut report = Report::new(&plan, GpuReport::of(&fixture));
    let measured = measure(&plan, &fixture, &interrupt, &mut report);
    // Also after a failure, nothing is left behind.
    fixture.clear();
    if measured.is_err() && report.is_empty() {
        return measured;
    }
    // A measurement takes minutes: of one that was interrupted, the complete rows are reported.
    report.sum_up();
    print(&report, args)?;
    measured
}

fn print(report: &Report, args: &BenchArgs) -> Result<(), Failure> {
    if let Some(place) = &args.svg {
        chart::write(&picture::panels(report), place)?;
    }
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, report)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", table::text(report))?;
    }
    Ok(out.flush()?)
}

/// Adds the rows of the plan to the report, each once it is complete.
fn measure(
    plan: &Plan,
    fixture: &Fixture,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Result<(), Failure> {
    let progress = Progress::new(plan);
    progress.step("calibration");
    let iterations_per_ms = record::calibrate(fixture)?;
    let mut shares = Shares::new(plan, fixture, interrupt, iterations_per_ms);
    for row in &plan.rows {
        progress.step(row.to_string());
        report.shares.push(shares.row(row)?);
    }
    if plan.changes > 0 {
        let changes =
            Changes { plan, fixture, interrupt, iterations_per_ms, record: shares.record(&plan::CHANGED)? };
        progress.step("a share after idleness");
        report.changes.push(changes.after_idleness()?);
        progress.step("a share that is changed");
        report.changes.push(changes.of_share()?);
    }
    if plan.has_overhead {
        let overhead = Overhead { plan, fixture, interrupt, iterations_per_ms };
        for subject in overhead::SUBJECTS {
            progress.step(subject.name);
            report.overhead.push(overhead.row(&subject)?);
        }
        let costs = running::Costs { plan, fixture, interrupt, iterations_per_ms };
        progress.step("processor time without the shim");
        let bare_ns = costs.bare()?;
        for caps in running::ROWS {
            progress.step("processor time, lateness");
            report.running.push(costs.row(caps, bare_ns)?);
        }
    }
    Ok(())
}
