//! Prometheus' text format, version 0.0.4, for scrapers that do not read OpenMetrics (Prometheus, "Exposition formats").

use std::collections::HashMap;
use std::fmt::Write as _;

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

/// Its media type.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether a request asks for this format: it accepts plain text and does not name OpenMetrics.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    let names = |kind: &str| {
        let mut accepted = headers.get_all(ACCEPT).iter();
        accepted.any(|value| value.to_str().is_ok_and(|value| value.contains(kind)))
    };
    names("text/plain") && !names("application/openmetrics-text")
}

/// Text of metrics in this format, from OpenMetrics without timestamps and exemplars. A family of counters or of information
/// is called as its samples are; units have no line.
pub fn of_openmetrics(metrics: &str) -> String {
    let kinds: HashMap<&str, &str> =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let called = |family: &str| match kinds.get(family) {
        Some(&"counter") => format!("{family}_total"),
        Some(&"info") => format!("{family}_info"),
        _ => family.to_owned(),
    };
    let mut text = String::with_capacity(metrics.len());
    for line in metrics.lines() {
        // Writing to a string does not fail.
        let _ = if let Some((family, kind)) = field(line, "# TYPE ") {
            let kind = match kind {
                "info" | "stateset" => "gauge",
                "unknown" => "untyped",
                kind => kind,
            };
            writeln!(text, "# TYPE {} {kind}", called(family))
        } else if let Some((family, help)) = field(line, "# HELP ") {
            writeln!(text, "# HELP {} {}", called(family), help.replace("\\\"", "\""))
        } else if line.starts_with("# ") {
            continue;
        } else {
            writeln!(text, "{line}")
        };
    }
    text
}

/// Family and rest of a line with this beginning.
fn field<'l>(line: &'l str, beginning: &str) -> Option<(&'l str, &'l str)> {
    line.strip_prefix(beginning)?.split_once(' ')
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn families_are_called_as_their_samples() {
        let metrics = "# HELP a_seconds Time of \\\"a\\\".\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\n\
                       a_seconds_total{x=\"# y\"} 1.5\n# HELP b What it is.\n# TYPE b info\nb_info{version=\"1\"} 1\n\
                       # HELP c Bytes.\n# TYPE c gauge\nc 7\n# EOF\n";
        let text = "# HELP a_seconds_total Time of \"a\".\n# TYPE a_seconds_total counter\na_seconds_total{x=\"# y\"} 1.5\n\
                    # HELP b_info What it is.\n# TYPE b_info gauge\nb_info{version=\"1\"} 1\n\
                    # HELP c Bytes.\n# TYPE c gauge\nc 7\n";
        assert_eq!(of_openmetrics(metrics), text);
    }

    #[test]
    fn open_metrics_goes_first() {
        for (accepted, wanted) in [
            ("text/plain;version=0.0.4", true),
            ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", false),
            ("*/*", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accepted));
            assert_eq!(is_wanted(&headers), wanted, "{accepted}");
        }
        assert!(!is_wanted(&HeaderMap::new()));
    }
}
