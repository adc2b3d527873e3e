//! Options of a quota, the changes that they make, and errors worded with their names.

use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser};
use vcuda_quota::{Contradiction, CoreShare, MemorySize, Policy, Priority, Quota, QuotaChange, parse_time};

use crate::failure::Failure;

/// Quota of a new or joined tenant.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct QuotaArgs {
    /// Memory per GPU, as in Kubernetes: 4Gi, 4GiB, 4096MiB, 4G [default: the whole GPU]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = memory)]
    pub(crate) memory: Option<MemorySize>,
    /// Share of each GPU's time in percent, 0.1 to 100: the cap of fixed, the guarantee of burst, the maximum of
    /// best-effort [default: 100, for fixed no guarantee (what is left)]
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true)]
    pub(crate) cores: Option<CoreShare>,
    /// Maximum share of a burst tenant, borrowed time included [default: 100]
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true)]
    pub(crate) cores_max: Option<CoreShare>,
    /// Use of idle GPU time [default: fixed]
    #[arg(long, value_parser = policies())]
    pub(crate) policy: Option<Policy>,
    /// Weight for time beyond the guarantees, 1 to 10000 [default: ten times --cores]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) weight: Option<u32>,
    /// Rank if there is too little GPU time for all [default: normal]
    #[arg(long, value_parser = priorities())]
    pub(crate) priority: Option<Priority>,
}

/// Least memory quota (bytes): with less no program can use a GPU.
const LEAST_BYTES: u64 = 64 << 20;
/// Memory that a CUDA context takes on common GPUs (bytes), up to 529 MiB as seen (docs/evidence.md): a smaller quota may be used
/// up before the program allocates.
const CONTEXT_BYTES: u64 = 530 << 20;

/// Parses a memory quota.
pub(crate) fn memory(text: &str) -> Result<MemorySize, String> {
    let size = MemorySize::with_unit(text).map_err(|error| error.to_string())?;
    if size.0 < LEAST_BYTES {
        return Err(format!(
            "{size} is less than {}, with which no program can use a GPU; write for example 4GiB",
            MemorySize(LEAST_BYTES)
        ));
    }
    Ok(size)
}

/// Longest time for which a quota can hold (366 days).
const TIME_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Parses a time, such as `1h30m`.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let time = parse_time(text).ok_or("not a time; write for example 90m, 1h30m or 48h")?;
    match (Duration::from_secs(1)..=TIME_MAX).contains(&time) {
        true => Ok(time),
        false => Err("outside 1s to 8784h (366 days); write for example 1h".to_owned()),
    }
}

/// Longest wait for memory (a day).
const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

/// Parses a wait for memory, such as `30s` or `0s`, into milliseconds.
pub(crate) fn wait_ms(text: &str) -> Result<u32, String> {
    let wait = parse_time(text).ok_or("not a time; write for example 30s, 2m or 0s")?;
    let wait_ms =
        Some(wait).filter(|wait| *wait <= WAIT_MAX).and_then(|wait| wait.as_millis().try_into().ok());
    wait_ms.ok_or_else(|| "outside 0s to 24h; write for example 2m".to_owned())
}

fn policies() -> impl TypedValueParser<Value = Policy> {
    let shown = |policy: Policy| {
        PossibleValue::new(policy.name()).help(match policy {
            Policy::Fixed => "The share is a hard cap",
            Policy::Burst => "The share is guaranteed; idle time may be borrowed",
            Policy::BestEffort => "Nothing is guaranteed; whatever others leave",
        })
    };
    PossibleValuesParser::new(Policy::ALL.map(shown)).try_map(|name| name.parse::<Policy>())
}

fn priorities() -> impl TypedValueParser<Value = Priority> {
    let shown = |priority: Priority| {
        PossibleValue::new(priority.name()).help(match priority {
            Priority::Low => "After the others",
            Priority::Normal => "Neither",
            Priority::High => "Before the others",
        })
    };
    PossibleValuesParser::new(Priority::ALL.map(shown)).try_map(|name| name.parse::<Priority>())
}

/// Options of a quota alone.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Typed {
    #[command(flatten)]
    quota: QuotaArgs,
}

/// A quota with a change by options such as `--memory 6GiB --cores 50`.
pub fn changed_quota(before: &Quota, words: &[&str]) -> Result<Quota, Failure> {
    Ok(before.merge(&QuotaArgs::of_words(words.iter().copied())?.change())?)
}

impl QuotaArgs {
    /// Parses options such as `--memory 6GiB --cores 50`.
    pub(crate) fn of_words<'w>(words: impl Iterator<Item = &'w str>) -> Result<QuotaArgs, Failure> {
        Typed::try_parse_from(words).map(|typed| typed.quota).map_err(|error| {
            let message = error.to_string();
            let first = message.lines().next().unwrap_or_default();
            Failure::Usage(first.trim_start_matches("error: ").to_owned())
        })
    }

    /// Changes that the given options make to a quota.
    pub(crate) fn change(&self) -> QuotaChange {
        QuotaChange {
            memory_bytes: self.memory.map(|size| size.0),
            cores_permille: self.cores.map(|share| share.0),
            cores_max_permille: self.cores_max.map(|share| share.0),
            policy: self.policy,
            priority: self.priority,
            weight: self.weight,
            // An option of its own, where a tenant is made.
            suspendable: None,
        }
    }

    /// Warning for a memory quota that a CUDA context may use up.
    pub(crate) fn warning(&self) -> Option<String> {
        let memory = self.memory.filter(|memory| memory.0 < CONTEXT_BYTES)?;
        Some(format!(
            "--memory {memory}: a CUDA context alone takes up to {} of it on common GPUs",
            MemorySize(CONTEXT_BYTES)
        ))
    }

    /// Whether no option was given.
    pub(crate) fn is_empty(&self) -> bool {
        self.change() == QuotaChange::default()
    }
}

impl From<Contradiction> for Failure {
    fn from(contradiction: Contradiction) -> Self {
        Failure::Usage(match contradiction {
            Contradiction::MaximumWithoutBurst { cores_max_permille, policy } => format!(
                "--cores-max {}: a {policy} tenant has at most its --cores; add --policy burst to let it borrow beyond \
                 them",
                CoreShare(cores_max_permille)
            ),
            Contradiction::MaximumBelowShare { cores_max_permille, cores_permille } => format!(
                "--cores-max {} is less than the --cores {} that are guaranteed; give it at least these",
                CoreShare(cores_max_permille),
                CoreShare(cores_permille)
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use vcuda_quota::Quota;

    use super::*;

    #[test]
    fn a_memory_quota_has_a_unit_and_room_for_a_program() {
        let refused = |text: &str| memory(text).unwrap_err();
        assert!(refused("4").starts_with("a number without a unit; write for example 4GiB"));
        assert!(refused("4294967296").contains("write 4294967296B if it is bytes"));
        assert!(refused("63MiB").starts_with("63 MiB is less than 64 MiB"));
        assert!(refused("four").starts_with("not a number"));
        assert_eq!(memory("67108864B"), Ok(MemorySize(64 << 20)));
        let warning = |text: &str| {
            let args = QuotaArgs { memory: Some(memory(text).unwrap()), ..QuotaArgs::default() };
            args.warning()
        };
        assert!(warning("128MiB").unwrap().contains("a CUDA context alone"));
        assert_eq!(warning("1GiB"), None);
    }

    #[test]
    fn a_time_has_a_unit_and_bounds() {
        let seconds = |text: &str| time(text).map(|time| time.as_secs());
        for (text, expected) in
            [("1s", 1), ("90m", 5400), ("1h30m", 5400), ("2h", 7200), ("8784h", 31_622_400)]
        {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in ["", "7", "soon", "-1h", "0s", "500ms", "8785h"] {
            let error = time(text).unwrap_err();
            assert!(error.contains("write for example"), "{text}: {error}");
        }
    }

    #[test]
    fn contradictions_name_the_option_and_the_remedy() {
        let burst = QuotaArgs {
            cores: Some(CoreShare(300)),
            cores_max: Some(CoreShare(500)),
            policy: Some(Policy::Burst),
            ..QuotaArgs::default()
        };
        let said = |args: QuotaArgs| {
            let quota = Quota::UNLIMITED.merge(&args.change());
            Failure::from(quota.unwrap_err()).to_string()
        };
        assert!(said(QuotaArgs { policy: None, ..burst }).starts_with("--cores-max 50 %: a fixed tenant"));
        assert_eq!(
            said(QuotaArgs { cores: Some(CoreShare(600)), ..burst }),
            "--cores-max 50 % is less than the --cores 60 % that are guaranteed; give it at least these"
        );
    }
}
