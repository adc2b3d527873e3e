//! Counters of answers, as OpenMetrics text.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages and their results.
const RESULTS: [(&str, &[&str]); 4] = [
    ("mutate", &["changed", "unchanged", "refused", "wrong"]),
    ("validate", &["admitted", "refused", "wrong"]),
    ("filter", &["answered", "wrong"]),
    ("prioritize", &["answered", "wrong"]),
];

#[derive(Debug)]
pub(crate) struct Counters(BTreeMap<(&'static str, &'static str), AtomicU64>);

impl Default for Counters {
    fn default() -> Self {
        let all = RESULTS.into_iter().flat_map(|(page, results)| {
            results.iter().map(move |result| ((page, *result), AtomicU64::new(0)))
        });
        Self(all.collect())
    }
}

impl Counters {
    pub(crate) fn count(&self, page: &'static str, result: &'static str) {
        if let Some(counter) = self.0.get(&(page, result)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// All counters, with whether the certificate is usable as it is in its folder.
    pub(crate) fn text(&self, is_certificate_good: bool) -> Result<String, fmt::Error> {
        let mut text = String::from(
            "# HELP vcuda_cluster_answers Answers of the webhook and the scheduler extender, by page and result.\n\
             # TYPE vcuda_cluster_answers counter\n",
        );
        for ((page, result), counter) in &self.0 {
            let count = counter.load(Ordering::Relaxed);
            writeln!(text, "vcuda_cluster_answers_total{{page=\"{page}\",result=\"{result}\"}} {count}")?;
        }
        writeln!(
            text,
            "# HELP vcuda_cluster_certificate_good 1: certificate and key in their folder can be used.\n\
             # TYPE vcuda_cluster_certificate_good gauge\n\
             vcuda_cluster_certificate_good {}\n# EOF",
            u8::from(is_certificate_good)
        )?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_is_there_from_the_start() {
        let counters = Counters::default();
        counters.count("mutate", "changed");
        counters.count("mutate", "none of these");
        let text = counters.text(true).unwrap();
        assert!(
            text.contains("vcuda_cluster_answers_total{page=\"mutate\",result=\"changed\"} 1\n"),
            "{text}"
        );
        assert!(text.contains("{page=\"validate\",result=\"refused\"} 0\n"), "{text}");
        assert!(text.ends_with("vcuda_cluster_certificate_good 1\n# EOF\n"), "{text}");
    }
}
