//! Consistency of all statements about the metrics: docs/metrics.md, the golden list of names, the dashboard and the alerts
//! in deploy/. `VCUDA_UPDATE=1` rewrites the first two.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it should be"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;

use promql_parser::parser::{self, Expr, VectorSelector};
use serde_json::Value;
use vcuda_manager::metrics::series::{self, Kind, Series};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn all() -> impl Iterator<Item = &'static Series> {
    series::ALL.iter().flat_map(|(_, series)| *series)
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
    ["node"]
        .into_iter()
        .chain(series.labels.iter().copied())
        .collect()
}

/// Compares a file with `wanted`, or writes it.
fn holds(path: &str, wanted: &str) {
    if std::env::var_os("VCUDA_UPDATE").is_some() {
        std::fs::write(root().join(path), wanted).unwrap();
    }
    let found = std::fs::read_to_string(root().join(path)).unwrap_or_default();
    assert!(
        found == wanted,
        "{path} is stale: run `VCUDA_UPDATE=1 cargo test -p vcuda-manager --test metrics_files`, and see what changed"
    );
}

#[test]
fn names_and_labels_change_only_on_purpose() {
    let line = |series: &Series| {
        format!(
            "{}{{{}}} {}\n",
            series.name(),
            labels(series).join(","),
            kind(series)
        )
    };
    holds("manager/tests/metrics.txt", &all().map(line).collect::<String>());
}

#[test]
fn the_page_is_up_to_date() {
    let mut page = include_str!("metrics_page.md").to_owned();
    let in_backticks = |labels: &[&str]| {
        labels
            .iter()
            .map(|label| format!("`{label}`"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    for (title, series) in series::ALL {
        let of_all: Vec<&str> = labels(series.first().unwrap())
            .into_iter()
            .filter(|label| series.iter().all(|one| labels(one).contains(label)))
            .collect();
        let named = in_backticks(&of_all);
        write!(
            page,
            "\n## {title}\nLabels: {named}.\n\n| series | kind | meaning |\n|---|---|---|\n"
        )
        .unwrap();
        for series in *series {
            let own: Vec<&str> = labels(series)
                .into_iter()
                .filter(|label| !of_all.contains(label))
                .collect();
            let by = if own.is_empty() {
                String::new()
            } else {
                format!(" by {}", in_backticks(&own))
            };
            writeln!(
                page,
                "| `{}`{by} | {} | {} |",
                series.name(),
                kind(series),
                series.help
            )
            .unwrap();
        }
    }
    holds("docs/metrics.md", &page);
}

#[test]
fn no_name_stands_twice() {
    let names: Vec<String> = all().flat_map(Series::names).collect();
    let once: BTreeSet<&String> = names.iter().collect();
    assert_eq!(once.len(), names.len());
    for series in all() {
        assert!(
            !series.help.ends_with('.') && !series.help.contains('|') && !series.help.contains('\n'),
            "{series:?}"
        );
    }
}

/// Labels of each series, by name. Prometheus adds `job`, `instance` and the series `up`.
fn known() -> BTreeMap<String, BTreeSet<&'static str>> {
    let scraped = ["job", "instance"];
    let mut known: BTreeMap<String, BTreeSet<&str>> = BTreeMap::from([("up".to_owned(), scraped.into())]);
    for series in all() {
        let labels: BTreeSet<&str> = scraped
            .into_iter()
            .chain(["node"])
            .chain(series.labels.iter().copied())
            .collect();
        for name in series.names() {
            let mut labels = labels.clone();
            if name.ends_with("_bucket") {
                labels.insert("le");
            }
            known.insert(name, labels);
        }
    }
    known
}

/// Collects every selector of an expression, and every label that it groups or joins by.
fn walk<'e>(expression: &'e Expr, selectors: &mut Vec<&'e VectorSelector>, named: &mut BTreeSet<String>) {
    match expression {
        Expr::Aggregate(aggregate) => {
            named.extend(
                aggregate
                    .modifier
                    .iter()
                    .flat_map(|modifier| modifier.labels().labels.clone()),
            );
            walk(&aggregate.expr, selectors, named);
            aggregate
                .param
                .iter()
                .for_each(|inner| walk(inner, selectors, named));
        }
        Expr::Unary(unary) => walk(&unary.expr, selectors, named),
        Expr::Binary(binary) => {
            if let Some(modifier) = &binary.modifier {
                named.extend(
                    modifier
                        .matching
                        .iter()
                        .flat_map(|matching| matching.labels().labels.clone()),
                );
                named.extend(
                    modifier
                        .card
                        .labels()
                        .into_iter()
                        .flat_map(|labels| labels.labels.clone()),
                );
            }
            walk(&binary.lhs, selectors, named);
            walk(&binary.rhs, selectors, named);
        }
        Expr::Paren(paren) => walk(&paren.expr, selectors, named),
        Expr::Subquery(subquery) => walk(&subquery.expr, selectors, named),
        Expr::VectorSelector(selector) => selectors.push(selector),
        Expr::MatrixSelector(matrix) => selectors.push(&matrix.vs),
        Expr::Call(call) => call
            .args
            .args
            .iter()
            .for_each(|argument| walk(argument, selectors, named)),
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) => {}
        Expr::Extension(_) => panic!("an extension"),
    }
}

/// Errors in an expression.
fn problems(expression: &str) -> Vec<String> {
    let parsed = match parser::parse(expression) {
        Ok(parsed) => parsed,
        Err(error) => return vec![format!("{expression}: {error}")],
    };
    let (mut selectors, mut named) = (Vec::new(), BTreeSet::new());
    walk(&parsed, &mut selectors, &mut named);
    let known = known();
    let (mut problems, mut labels) = (Vec::new(), BTreeSet::new());
    for selector in selectors {
        let name = selector.name.clone().unwrap_or_default();
        let Some(has) = known.get(&name) else {
            problems.push(format!("{expression}: there is no series {name:?}"));
            continue;
        };
        for matcher in &selector.matchers.matchers {
            if !has.contains(matcher.name.as_str()) {
                problems.push(format!("{expression}: {name} has no label {}", matcher.name));
            }
        }
        labels.extend(has.iter().copied());
    }
    let strange = named.iter().filter(|label| !labels.contains(label.as_str()));
    problems.extend(strange.map(|label| format!("{expression}: none of its series has a label {label}")));
    problems
}

#[test]
fn the_check_sees_mistakes() {
    for (expression, is_right) in [
        (
            "sum by (gpu_uuid) (rate(vcuda_container_denied_total{pod=~\"a.*\"}[5m]))",
            true,
        ),
        ("up{job=\"x\"} == 0", true),
        (
            "histogram_quantile(0.9, sum by (le, method) (rate(vcuda_api_duration_seconds_bucket[5m])))",
            true,
        ),
        ("vcuda_container_denied{pod=\"a\"}", false),
        ("vcuda_gpu_healthy{pod=\"a\"}", false),
        ("sum by (pod) (vcuda_gpu_healthy)", false),
        ("sum(vcuda_gpu_healthy", false),
        ("vcuda_gpu_shares * on (pod) vcuda_gpu_healthy", false),
    ] {
        assert_eq!(
            problems(expression).is_empty(),
            is_right,
            "{expression}: {:?}",
            problems(expression)
        );
    }
}

/// The expression with Grafana's variables replaced by times and label values.
fn without_variables(expression: &str) -> String {
    let mut expression = expression
        .replace("$__rate_interval", "5m")
        .replace("$__range", "1h");
    for variable in ["node", "gpu", "namespace", "pod"] {
        expression = expression.replace(&format!("${variable}"), "x");
    }
    expression
}

#[test]
fn the_dashboard_asks_for_what_there_is() {
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana-dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "ids are unique");
    let mut expressions = 0;
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        for target in panel["targets"].as_array().unwrap() {
            let expression = without_variables(target["expr"].as_str().unwrap());
            assert!(!expression.contains('$'), "{expression}: an unknown variable");
            assert_eq!(problems(&expression), [""; 0], "{}", panel["title"]);
            expressions += 1;
        }
    }
    assert!(expressions >= 12, "{expressions}");
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let Some(query) = variable["query"]["query"].as_str() else {
            continue;
        };
        let inside = query
            .strip_prefix("label_values(")
            .and_then(|rest| rest.strip_suffix(')'))
            .unwrap();
        let (selector, label) = inside.rsplit_once(',').unwrap();
        assert_eq!(problems(&without_variables(selector)), [""; 0]);
        let name = selector.split('{').next().unwrap();
        assert!(known()[name].contains(label.trim()), "{query}");
    }
}

#[test]
fn the_alerts_ask_for_what_there_is() {
    let rules: Value = serde_yaml_ng::from_str(&read("deploy/alerts.yaml")).unwrap();
    let mut names = BTreeSet::new();
    let page = read("docs/alerts.md");
    let mut runbooks: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .collect();
    for group in rules["groups"].as_array().unwrap() {
        assert!(group["name"].is_string());
        for rule in group["rules"].as_array().unwrap() {
            let name = rule["alert"].as_str().unwrap();
            assert!(names.insert(name.to_owned()), "{name} stands twice");
            let expression = rule["expr"].as_str().unwrap();
            assert_eq!(problems(expression), [""; 0], "{name}");
            let severity = rule["labels"]["severity"].as_str().unwrap();
            assert!(
                ["critical", "warning", "info"].contains(&severity),
                "{name}: {severity}"
            );
            if name == "VcudaAuditFinding" {
                let summary = rule["annotations"]["summary"].as_str().unwrap();
                assert!(summary.starts_with("The audit has findings for "), "{summary}");
            }
            let runbook = rule["annotations"]["runbook_url"].as_str().unwrap();
            let (page, section) = runbook.split_once('#').unwrap();
            assert_eq!(page, "https://vcuda.io/docs/alerts.md", "{name}");
            assert_eq!(section, name.to_lowercase());
            assert!(runbooks.remove(name), "{name}: docs/alerts.md has no section");
            for part in ["summary", "description"] {
                let text = rule["annotations"][part].as_str().unwrap();
                let told = text.split("$labels.").skip(1).map(|rest| {
                    rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
                        .next()
                        .unwrap()
                });
                for label in told {
                    // Labels that were aggregated away must not be used.
                    let parsed = parser::parse(expression).unwrap();
                    let (mut selectors, mut named) = (Vec::new(), BTreeSet::new());
                    walk(&parsed, &mut selectors, &mut named);
                    let of_all = selectors
                        .iter()
                        .any(|selector| known()[selector.name.as_deref().unwrap()].contains(label));
                    assert!(of_all || named.contains(label), "{name}: no label {label}");
                }
            }
        }
    }
    assert!(runbooks.is_empty(), "sections of no alert: {runbooks:?}");
    for wanted in [
        "NotAttached",
        "OverLimit",
        "MemoryDenied",
        "ManagerDown",
        "GpuUnhealthy",
        "ArbiterStale",
    ] {
        assert!(names.contains(&format!("Vcuda{wanted}")), "{wanted}");
    }
}
