//! docs/generated/metrics.md and the golden list of names say what is exported; `VCUDA_UPDATE=1` rewrites them. `scripts/check-metrics.py` holds
//! dashboard and alerts against the list.
#![expect(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;

use vcuda_manager::metrics::series::{self, Kind, Series};

/// What the page says before its tables.
const HEAD: &str = "<!-- Made from manager/src/metrics/series.rs by VCUDA_UPDATE=1 cargo test -p vcuda-manager --test it metrics_files -->
# Metrics

`vcuda-manager` serves OpenMetrics text at `http://127.0.0.1:9436/metrics` (`metrics.listen`), or Prometheus' older format if a request accepts
`text/plain` only. `/healthz` answers `ok`. `/readyz` answers `ok`, or status 503 with a line for each reason why no GPU is given out (NVML, the
ledger, the shim). `deploy/` has [alerts](alerts.md) and a Grafana dashboard.

- GPUs are named by UUID. Tenants of `vcuda run` have an empty `namespace` and `pod`, and their name as `container`.
- A tenant's series begin with its grant, at 0, and end with it. Its counters survive restarts of the manager.
- If a container has two grants (one ending, one new), the older one's `container` is followed by its id.
- Ratios are parts of 1. With overcommit, guarantees may exceed it.
- A tenant could falsify its own figures, which its processes write into `usage`. `vcuda_gpu_memory_used_bytes` and the audit's series are NVML's.
- A scrape asks no GPU. It reads the tenants' files again if the last reading is older than 50 ms.
- GPU hours of each namespace in a month, for chargeback:
  `sum by (namespace) (increase(vcuda_container_gpu_seconds_total[30d])) / 3600`.
";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

fn all() -> impl Iterator<Item = Series> {
    series::all().into_iter().flat_map(|(_, series)| series)
}

fn kind(series: &Series) -> &'static str {
    match series.kind {
        Kind::Gauge => "gauge",
        Kind::Counter => "counter",
        Kind::Histogram => "histogram",
        Kind::Info => "info",
    }
}

fn labels(series: &Series) -> Vec<&str> {
    ["node"].into_iter().chain(series.labels.iter().copied()).collect()
}

/// Compares a file with `wanted`, or writes it.
fn holds(path: &str, wanted: &str) {
    if std::env::var_os("VCUDA_UPDATE").is_some() {
        std::fs::write(root().join(path), wanted).unwrap();
    }
    let found = std::fs::read_to_string(root().join(path)).unwrap_or_default();
    assert!(
        found == wanted,
        "{path} is stale: run `VCUDA_UPDATE=1 cargo test -p vcuda-manager --test it metrics_files`, and see what changed"
    );
}

#[test]
fn names_and_labels_change_only_on_purpose() {
    let line =
        |series: &Series| format!("{}{{{}}} {}\n", series.name(), labels(series).join(","), kind(series));
    holds("manager/tests/it/metrics.txt", &all().map(|series| line(&series)).collect::<String>());
}

#[test]
fn the_page_is_up_to_date() {
    let mut page = HEAD.to_owned();
    let in_backticks =
        |labels: &[&str]| labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
    for (title, series) in series::all() {
        let of_all: Vec<&str> = labels(series.first().unwrap())
            .into_iter()
            .filter(|label| series.iter().all(|one| labels(one).contains(label)))
            .collect();
        let named = in_backticks(&of_all);
        write!(page, "\n## {title}\nLabels: {named}.\n\n| series | kind | meaning |\n|---|---|---|\n")
            .unwrap();
        for series in &series {
            let own: Vec<&str> = labels(series).into_iter().filter(|label| !of_all.contains(label)).collect();
            let by = if own.is_empty() { String::new() } else { format!(" by {}", in_backticks(&own)) };
            writeln!(page, "| `{}`{by} | {} | {} |", series.name(), kind(series), series.help).unwrap();
        }
    }
    holds("docs/generated/metrics.md", &page);
}

#[test]
fn no_name_stands_twice() {
    let names: Vec<String> = all().flat_map(|series| series.names()).collect();
    let once: BTreeSet<&String> = names.iter().collect();
    assert_eq!(once.len(), names.len());
    for series in all() {
        assert!(
            !series.help.ends_with('.') && !series.help.contains('|') && !series.help.contains('\n'),
            "{series:?}"
        );
    }
}
