//! Limiter on drivers of every kind: worst and mean error of shares, with all refinements and without one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::scope;

use anyhow::{Result, anyhow};
use serde_json::{Value, json};
use vcuda_figures::mean;

use super::{Bench, PROGRAMS, Program, SLICE_NS, SWITCH_NS};
use crate::lab::Load;

/// Number of concurrent cases, as each mostly waits for its processes.
const JOBS: usize = 3;

/// Time slicing of contexts by GPU and driver.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slices {
    ns: u64,
    switch_ns: u64,
    order: &'static str,
    spread_permille: u64,
}

/// An H200.
const TURNS: Slices = Slices { ns: SLICE_NS, switch_ns: SWITCH_NS, order: "round-robin", spread_permille: 0 };

/// Tenants on a machine.
#[derive(Debug, Clone)]
pub(super) struct Case {
    group: &'static str,
    name: String,
    machine: String,
    /// Cap (percent), number of processes, and program of each.
    tenants: Vec<(u32, usize, Program)>,
}

/// Error of a case.
#[derive(Debug)]
pub struct Off {
    group: &'static str,
    name: String,
    /// Error of the worst tenant (percentage points of the GPU).
    points: f64,
}

fn machine(slices: &Slices, event_ns: u64) -> String {
    format!(
        "context_bytes = \"64MiB\"\nswitch_ns = {}\nslice_ns = {}\n[driver]\nslice_order = \"{}\"\n\
         slice_spread_permille = {}\nevent_record_ns = {event_ns}\nevent_pair_ns = {event_ns}\n",
        slices.switch_ns, slices.ns, slices.order, slices.spread_permille
    )
}

/// Programs for neighbours, each able to use up any share, with short, mixed and longer kernels.
fn beside() -> [Program; 3] {
    let [small, _, mix, ..] = PROGRAMS;
    let millisecond =
        Program { name: "kernels of 1 ms", arguments: &["kernel", "1000000"], longest_ns: 1_000_000 };
    [small, mix, millisecond]
}

fn split(group: &'static str, slices: &Slices, caps: &[u32], program: &Program) -> Case {
    let texts: Vec<String> = caps.iter().map(ToString::to_string).collect();
    let random = if slices.spread_permille > 0 { " random" } else { "" };
    Case {
        group,
        name: format!(
            "{} {}, slices of {} us{random} {}, switch {} us",
            texts.join(":"),
            program.name,
            slices.ns / 1000,
            slices.order,
            slices.switch_ns / 1000
        ),
        machine: machine(slices, 0),
        tenants: caps.iter().map(|cap| (*cap, 1, *program)).collect(),
    }
}

/// All cases.
fn cases() -> Vec<Case> {
    let mut cases = alone();
    cases.extend(splits());
    cases.extend(beside_long_kernels());
    cases.extend(several_processes());
    cases
}

/// Every program under three caps, with and without a cost of events.
fn alone() -> Vec<Case> {
    let mut cases = Vec::new();
    for program in &PROGRAMS {
        for (cap, event_ns) in [5, 30, 75].into_iter().flat_map(|cap| [(cap, 0), (cap, 3_000)]) {
            cases.push(Case {
                group: if event_ns == 0 { "alone" } else { "alone, events of 3 us" },
                name: format!("{cap} % {}, events of {} us", program.name, event_ns / 1000),
                machine: machine(&TURNS, event_ns),
                tenants: vec![(cap, 1, *program)],
            });
        }
    }
    cases
}

/// Caps that add up to the whole GPU, on all kinds of time slicing.
fn splits() -> Vec<Case> {
    let lengths = [500_000, SLICE_NS, 2_000_000, 4_000_000, 6_000_000];
    let mut all: Vec<(&'static str, Slices)> = Vec::new();
    all.extend(lengths.map(|ns| ("splits by slice", Slices { ns, ..TURNS })));
    let random = Slices { ns: 2_000_000, spread_permille: 900, ..TURNS };
    all.push(("splits by slice", random));
    for ns in [SLICE_NS, 2_000_000] {
        let order = "arrival";
        all.push(("splits by arrival", Slices { ns, order, ..TURNS }));
    }
    for switch_ns in [0, 100_000, 200_000] {
        all.push(("splits by switch", Slices { switch_ns, ..TURNS }));
    }
    let [small, mix, _] = beside();
    let mut cases = Vec::new();
    for (group, slices) in &all {
        let two = beside().map(|program| split(group, slices, &[30, 70], &program));
        let four = [small, mix].map(|program| split(group, slices, &[10, 20, 30, 40], &program));
        cases.extend(two.into_iter().chain(four));
    }
    cases
}

/// A tenant beside one with kernels much longer than a slice.
fn beside_long_kernels() -> Vec<Case> {
    let long = |arguments, longest_ns| Program { name: "long kernels", arguments, longest_ns };
    let neighbours = [long(&["kernel", "20000000"], 20_000_000), long(&["kernel", "100000000"], 100_000_000)];
    let mut cases = Vec::new();
    for (share, program) in
        [30, 80, 90].into_iter().flat_map(|share| beside().map(|program| (share, program)))
    {
        for neighbour in neighbours {
            cases.push(Case {
                group: "beside long kernels",
                name: format!(
                    "{share} % {} beside {} % of kernels of {} ms",
                    program.name,
                    100 - share,
                    neighbour.longest_ns / 1_000_000
                ),
                machine: machine(&TURNS, 0),
                tenants: vec![(share, 1, program), (100 - share, 1, neighbour)],
            });
        }
    }
    cases
}

/// A tenant of four processes, alone and beside another tenant.
fn several_processes() -> Vec<Case> {
    let mut cases = Vec::new();
    for program in beside() {
        let four = (30, 4, program);
        for tenants in [vec![four], vec![four, (70, 1, program)]] {
            let beside = if tenants.len() > 1 { " beside 70 %" } else { "" };
            cases.push(Case {
                group: "several processes",
                name: format!("30 % of 4 processes{beside}: {}", program.name),
                machine: machine(&TURNS, 0),
                tenants,
            });
        }
    }
    cases
}

/// Measures the error of a case.
fn measure(bench: &Bench, case: &Case, without: &str) -> Result<Off> {
    let texts: Vec<String> = case.tenants.iter().map(|(cap, ..)| cap.to_string()).collect();
    let quotas: Vec<[&str; 2]> = texts.iter().map(|cap| ["--cores", cap.as_str()]).collect();
    let tenants = quotas.iter().zip(&case.tenants);
    let loads: Vec<Load<'_>> = tenants
        .map(|(quota, (_, processes, program))| Load {
            quota,
            program: program.arguments,
            processes: *processes,
        })
        .collect();
    let windows = bench.shares_on(&case.machine, without, &loads)?;
    let got: Vec<f64> = windows.iter().map(|windows| mean(windows) * 100.0).collect();
    let caps: Vec<f64> = case.tenants.iter().map(|(cap, ..)| f64::from(*cap)).collect();
    // Context switches count for no tenant: each has its part of the used time.
    let whole = match caps.iter().sum::<f64>() {
        all if all >= 100.0 => got.iter().sum::<f64>() / all,
        _ => 1.0,
    };
    let off = got.iter().zip(&caps).map(|(got, cap)| (got / whole - cap).abs());
    Ok(Off { group: case.group, name: case.name.clone(), points: off.fold(0.0, f64::max) })
}

/// Runs every case whose name contains `part`, without the named refinements (separated by commas; none if empty).
pub fn matrix(bench: &Bench, without: &str, part: &str) -> Result<Vec<Off>> {
    let cases: Vec<Case> =
        cases().into_iter().filter(|case| case.name.contains(part) || case.group.contains(part)).collect();
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<(usize, Off)>> {
        let mut own = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(at) else {
                return Ok(own);
            };
            own.push((at, measure(bench, case, without)?));
        }
    };
    let mut found = scope(|scope| -> Result<Vec<(usize, Off)>> {
        let workers: Vec<_> = (0..JOBS).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.join().map_err(|_| anyhow!("a case has panicked"))??);
        }
        Ok(all)
    })?;
    found.sort_by_key(|(at, _)| *at);
    Ok(found.into_iter().map(|(_, off)| off).collect())
}

/// Text by group: number of cases, mean and worst error (percentage points of the GPU).
pub fn matrix_as_table(all: &[Off]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(["group", "cases", "mean, points", "worst, points", "worst case"]);
    let mut groups: Vec<&str> = Vec::new();
    for off in all {
        if !groups.contains(&off.group) {
            groups.push(off.group);
        }
    }
    for group in groups {
        let own: Vec<&Off> = all.iter().filter(|off| off.group == group).collect();
        let points: Vec<f64> = own.iter().map(|off| off.points).collect();
        let worst = own.iter().max_by(|one, other| one.points.total_cmp(&other.points));
        table.add_row([
            group.to_owned(),
            own.len().to_string(),
            format!("{:.2}", mean(&points)),
            worst.map_or_else(String::new, |worst| format!("{:.2}", worst.points)),
            worst.map_or_else(String::new, |worst| worst.name.clone()),
        ]);
    }
    table.to_string()
}

/// All cases as JSON.
pub fn matrix_as_json(all: &[Off]) -> Value {
    let row = |off: &Off| json!({"group": off.group, "case": off.name, "points": off.points});
    all.iter().map(row).collect()
}
