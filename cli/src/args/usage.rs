//! Arguments of `vcuda usage`.

use std::str::FromStr;

use clap::{Args, ValueEnum};
use vcuda_quota::parse_time;

pub(super) const USAGE_EXAMPLES: &str = "\
Examples:
  vcuda usage                               the last 24 hours, by tenant
  vcuda usage --since 7d --by namespace
  vcuda usage --since 31d --by user --csv > bill.csv";

pub(super) const USAGE_DETAILS: &str = "\
Asks the node's manager, or the user's own. It keeps 31 days in whole hours, \
also of tenants that have ended, but for idle ones of less than a minute. \
Memory is the most at once: what was granted, and what was in use, summed \
over GPUs and tenants of the key. The user is the one that a grant was made \
for, else the owner of its processes. GPU time is not measured for a tenant \
that alone has all of a GPU's time. \
A tenant's figures come from its own processes; impossible ones do not count.";

/// What usage is summed by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum UsageBy {
    /// By tenant
    #[default]
    Tenant,
    /// By Kubernetes namespace
    Namespace,
    /// By user: the one that the grant was made for, else the owner of its processes
    User,
}

#[derive(Args, Debug)]
pub(crate) struct UsageArgs {
    /// Length of the period that ends now, from a whole hour on: a number with s, m, h or d
    #[arg(long, value_name = "TIME", default_value = "24h", allow_negative_numbers = true)]
    pub(crate) since: Period,
    /// What figures are summed by
    #[arg(long, value_enum, default_value_t)]
    pub(crate) by: UsageBy,
    /// Print CSV with plain numbers
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
    /// Print JSON
    #[arg(long, long_help = super::json::USAGE)]
    pub(crate) json: bool,
}

/// Length of a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Period {
    /// Length (s), more than 0.
    pub(crate) seconds: u64,
    text: String,
}

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match parse_time(text).map(|time| time.as_secs()) {
            Some(seconds @ 1..) => Ok(Self { seconds, text: text.to_owned() }),
            _ => Err("no length of time; write a number with s, m, h or d, such as 24h or 7d".to_owned()),
        }
    }
}

impl std::fmt::Display for Period {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_a_number_with_a_unit() {
        let seconds = |text: &str| text.parse::<Period>().map(|period| period.seconds);
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("15m"), Ok(900));
        assert_eq!(seconds("24h"), Ok(86_400));
        assert_eq!(seconds("7d"), Ok(604_800));
        for wrong in [
            "",
            "24",
            "h",
            "0h",
            "-1h",
            "+1h",
            "1.5h",
            "1 h",
            "24H",
            "1é",
            "18446744073709551615d",
            "99999999999999999999s",
        ] {
            assert!(seconds(wrong).unwrap_err().contains("such as 24h"), "{wrong}");
        }
    }
}
