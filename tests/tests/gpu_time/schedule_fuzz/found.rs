//! Cases that the fuzzer has found and that were mended, made smaller (`found.txt`): each as a failure prints it, behind a line with its
//! name, and with the share that its program gets at least (percent) if it once got less than it might.

use crate::schedule_fuzz::case::Case;

/// A case that was found.
pub(crate) struct Found {
    pub(crate) name: &'static str,
    pub(crate) case: Case,
    /// Percent of the GPU.
    pub(crate) least: Option<f64>,
}

/// All of them.
pub(crate) fn cases() -> Vec<Found> {
    include_str!("found.txt").split("# ").filter(|block| !block.is_empty()).map(found).collect()
}

fn found(block: &'static str) -> Found {
    let (name, case) = block.split_once('\n').unwrap();
    let least = case.strip_prefix("least ").map(|rest| rest.split_once('\n').unwrap());
    Found {
        name,
        case: least.map_or(case, |(_, case)| case).parse().unwrap(),
        least: least.map(|(least, _)| least.parse().unwrap()),
    }
}
