//! A quota that holds for a time.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use vcuda_manager_api::v1::Grant;

use super::quota::{described, lasting};

/// The rest of a quota's time, and what comes then. The keys of its JSON are stable for other programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Temporary {
    /// Time left (s), 0 if the manager has yet to set it back.
    pub(crate) remaining_seconds: u64,
    /// End (milliseconds since 1970-01-01 UTC).
    pub(crate) until_unix_ms: i64,
    /// Memory limit from then on (bytes); 0: the whole GPU.
    then_memory_bytes: u64,
    /// Share of GPU time from then on (thousandths).
    then_cores_permille: u32,
    /// Policy from then on.
    then_policy: &'static str,
    /// Quota from then on, in words.
    #[serde(skip)]
    then: String,
}

impl Temporary {
    /// The rest of a grant's time; `None` if its quota lasts.
    pub(crate) fn of(grant: &Grant) -> Option<Temporary> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::at(grant, i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
    }

    fn at(grant: &Grant, now_ms: i64) -> Option<Temporary> {
        let until_unix_ms = grant.until_unix_ms;
        let then = lasting(grant);
        (until_unix_ms != 0).then(|| Temporary {
            // Rounded up, as a time that is not over is not zero.
            remaining_seconds: until_unix_ms.saturating_sub(now_ms).max(0).cast_unsigned().div_ceil(1000),
            until_unix_ms,
            then_memory_bytes: then.memory_bytes.unwrap_or(0),
            then_cores_permille: then.cores_permille,
            then_policy: then.policy.name(),
            then: described(&then),
        })
    }

    /// Text such as `for 59 min, then 4 GiB, 30 % fixed`.
    pub(crate) fn words(&self) -> String {
        format!("for {}, then {}", span(self.remaining_seconds), self.then)
    }
}

/// A time in its two largest units, such as `1 h 5 min`.
fn span(seconds: u64) -> String {
    let two = |large: u64, unit: &str, small: u64, below: &str| match small {
        0 => format!("{large} {unit}"),
        small => format!("{large} {unit} {small} {below}"),
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => two(minutes, "min", seconds % 60, "s"),
        3600..86_400 => two(hours, "h", minutes % 60, "min"),
        _ => two(days, "d", hours % 24, "h"),
    }
}

#[cfg(test)]
mod tests {
    use vcuda_manager_api::v1::Amounts;
    use vcuda_quota::Quota;

    use super::*;

    #[test]
    fn the_rest_of_the_time_is_in_two_units() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (3599, "59 min 59 s"),
            (3600, "1 h"),
            (5405, "1 h 30 min"),
            (200_000, "2 d 7 h"),
        ] {
            assert_eq!(span(seconds), text);
        }
    }

    #[test]
    fn only_a_quota_with_an_end_is_temporary() {
        let amounts = |gib: u64| Some(Amounts::from(&Quota::fixed(Some(gib << 30), 300)));
        let mut grant = Grant { amounts: amounts(6), lasting_amounts: amounts(4), ..Grant::default() };
        assert_eq!(Temporary::at(&grant, 1000), None);
        grant.until_unix_ms = 60_500;
        let temporary = Temporary::at(&grant, 1000).unwrap();
        assert_eq!(temporary.words(), "for 1 min, then 4 GiB, 30 % fixed");
        assert_eq!(temporary.then_memory_bytes, 4 << 30);
        assert_eq!(Temporary::at(&grant, 70_000).unwrap().remaining_seconds, 0);
    }
}
