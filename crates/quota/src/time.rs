//! Lengths of time as people type them.

use core::time::Duration;

use jiff::{Span, SpanRelativeTo};

/// Reads a length of time, such as `100ms`, `90s`, `1h30m` or `7d` of 24 hours each; `None` if it is not one.
pub fn parse_time(text: &str) -> Option<Duration> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase());
    let span: Span = text.parse().ok().filter(|_| is_plain)?;
    Duration::try_from(span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit() {
        for (text, ms) in
            [("100ms", 100), ("90s", 90_000), ("1h30m", 5_400_000), ("7d", 604_800_000), ("0s", 0)]
        {
            assert_eq!(parse_time(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for text in
            ["", "5", "s", "-1s", "+1s", "1.5h", "1 h", "1H", "1month", "1y", "soon", "18446744073709551615s"]
        {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
