//! Samples of OpenMetrics text, as the managers serve it (docs/generated/metrics.md).

use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

impl Sample {
    /// Value of a label; empty if it has none.
    pub(crate) fn label(&self, name: &str) -> String {
        self.labels.get(name).cloned().unwrap_or_default()
    }
}

/// All samples of a text. Lines that are none are left out.
pub(crate) fn parse(text: &str) -> Vec<Sample> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect()
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (BTreeMap::new(), rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { name: name.to_owned(), labels, value })
}

/// Labels up to the closing brace, and what is behind it.
fn labels(mut text: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        text = text.trim_start_matches(',');
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, rest) = text.split_once("=\"")?;
        let mut value = String::new();
        let mut letters = rest.char_indices();
        let end = loop {
            match letters.next()? {
                (end, '"') => break end,
                (_, '\\') => value.push(match letters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, letter) => value.push(letter),
            }
        };
        labels.insert(name.to_owned(), value);
        text = rest.get(end + 1..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_with_their_labels() {
        let text = "# TYPE a gauge\na{node=\"n\",pod=\"x\\\"y\\\\\\n}\"} 1.5e3\nb 7 123\nc{} 0\n# EOF\n";
        let samples = parse(text);
        assert_eq!(samples.len(), 3);
        assert_eq!((samples[0].label("pod").as_str(), samples[0].value), ("x\"y\\\n}", 1500.0));
        assert_eq!(samples[0].label("gone"), "");
        assert_eq!((samples[1].name.as_str(), samples[1].value), ("b", 7.0));
    }

    #[test]
    fn what_is_no_sample_is_left_out() {
        for line in ["", "a", "a{", "a{b", "a{b=\"", "a{b=\"c\\", "a{b=\"c\"} x", "a{b=\"c\"", "{}", "a b"] {
            assert_eq!(parse(line), [], "{line}");
        }
    }
}
