//! How long requests take beside a neighbour that wants the whole GPU.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use vcuda_figures::{mean, quantile};

use super::{Bench, Figure, Goal, Row, SECOND_NS, SWITCH_NS, WARM_UP_NS};
use crate::lab::Load;

/// A program that answers requests, one at a time.
struct Server {
    name: &'static str,
    kernel_ns: &'static str,
    kernels: &'static str,
    /// Mean time between two requests (us).
    period_us: &'static str,
    /// Most that its p99 may be times that alone, where it is guaranteed half beside kernels of 100 us.
    most: f64,
}

const SERVERS: [Server; 2] = [
    Server { name: "100 us every 2 ms", kernel_ns: "100000", kernels: "1", period_us: "2000", most: 8.0 },
    Server {
        name: "200 of 50 us every 30 ms",
        kernel_ns: "50000",
        kernels: "200",
        period_us: "30000",
        most: 1.4,
    },
];
/// Quotas of server and neighbour.
const HALVES: [&[&str]; 2] = [&["--cores", "50"], &["--cores", "50"]];
const GUARANTEED: [&[&str]; 2] = [
    &["--cores", "50", "--policy", "burst", "--priority", "high"],
    &["--policy", "best-effort", "--priority", "low"],
];

/// Durations of requests (ms) in this many seconds, and the neighbour's mean share.
fn durations(
    bench: &Bench,
    server: &Server,
    quotas: Option<[&[&str]; 2]>,
    neighbour: Option<&str>,
) -> Result<(Vec<f64>, f64)> {
    let file = bench.dir.path().join("requests");
    let _ = fs::remove_file(&file);
    let path = file.to_string_lossy();
    let requests = ["requests", server.kernel_ns, server.kernels, server.period_us, &path];
    let mut lab = bench.lab(SWITCH_NS)?;
    lab.without_shim(quotas.is_none());
    let [own, other] = quotas.unwrap_or_default();
    lab.start(Load { quota: own, program: &requests, processes: 1 })?;
    if let Some(kernel_ns) = neighbour {
        lab.start(Load { quota: other, program: &["kernel", kernel_ns], processes: 1 })?;
    }
    lab.run_for(WARM_UP_NS)?;
    let before = recorded(&file)?.len();
    let shares = lab.windows(bench.windows, SECOND_NS)?;
    let took = recorded(&file)?.split_off(before);
    Ok((took, shares.get(1).map_or(0.0, |share| mean(share))))
}

/// Durations of the requests so far (ms).
fn recorded(file: &Path) -> Result<Vec<f64>> {
    let bytes = fs::read(file)?;
    let (words, _) = bytes.as_chunks();
    let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
    let count = usize::try_from(words.next().context("no requests")?)?;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    Ok(words.take(count).map(|ns| ns as f64 / 1e6).collect())
}

/// Each server alone, by plain slices, and by quotas, beside a neighbour with kernels of each duration (ns).
pub fn tails(bench: &Bench, neighbours: &[&str]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for server in &SERVERS {
        let (took, _) = durations(bench, server, None, None)?;
        let alone_ms = quantile(took.clone(), 990).context("no request")?;
        rows.push(row(format!("{}: alone", server.name), &took, alone_ms, 0.0, Goal::None));
        for neighbour in neighbours {
            let beside = format!("{} beside kernels of {} ms", server.name, neighbour.parse::<f64>()? / 1e6);
            let most = if *neighbour == "100000" { Goal::AtMost(server.most) } else { Goal::None };
            for (name, quotas, goal) in [
                ("plain slices", None, Goal::None),
                ("50 and 50 %", Some(HALVES), Goal::None),
                ("guaranteed 50 % and best effort", Some(GUARANTEED), most),
            ] {
                let (took, share) = durations(bench, server, quotas, Some(neighbour))?;
                rows.push(row(format!("{beside}: {name}"), &took, alone_ms, share, goal));
            }
        }
    }
    Ok(rows)
}

/// Row of requests that took so long (ms), beside a neighbour that had this share.
fn row(case: String, took_ms: &[f64], alone_ms: f64, share: f64, goal: Goal) -> Row {
    let at = |permille| quantile(took_ms.to_vec(), permille).unwrap_or(f64::NAN);
    let figures = vec![
        Figure::new("p50, ms", at(500), Goal::None),
        Figure::new("p99, ms", at(990), Goal::None),
        Figure::new("p99.9, ms", at(999), Goal::None),
        Figure::new("p99 times alone", at(990) / alone_ms, goal),
    ];
    Row { case, shares: vec![share * 100.0], figures }
}
