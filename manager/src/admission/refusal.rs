//! Reasons for refusing a tenant, with what would be possible.

use std::cmp::Reverse;
use std::fmt::Write;

use vcuda_quota::{CoreShare, MemorySize, Quota};
use vcuda_region::GpuUuid;

use super::{Candidate, Free, Load, Rules, why_unusable};

/// Maximum number of GPUs named in a text, which travels in a header of bounded size.
const TOLD: usize = 16;

/// A refusal of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such GPU.
    Unknown(String),
    /// A named GPU that cannot be used now.
    Unusable(String),
    /// Too little is free.
    NoRoom(String),
}

impl Refusal {
    /// The sentence for the caller.
    pub fn text(&self) -> &str {
        match self {
            Self::Unknown(text) | Self::Unusable(text) | Self::NoRoom(text) => text,
        }
    }

    pub(super) fn unknown(uuid: &GpuUuid, candidates: &[Candidate<'_>]) -> Self {
        let known: Vec<String> =
            candidates.iter().take(TOLD).map(|candidate| candidate.gpu.uuid.to_string()).collect();
        let known = if known.is_empty() {
            "this node has none now".to_owned()
        } else {
            format!("this node has {}", known.join(", "))
        };
        Self::Unknown(format!("{uuid}: no such GPU; {known}"))
    }

    pub(super) fn unusable(candidate: &Candidate<'_>, why: String) -> Self {
        Self::Unusable(format!("{} is {why}", candidate.gpu.uuid))
    }

    /// The refusal for `count` of `candidates` that lack room. If none of them may be used, it says why.
    pub(super) fn no_room(
        rules: &Rules,
        amounts: &Quota,
        is_suspendable: bool,
        count: usize,
        candidates: &[Candidate<'_>],
    ) -> Self {
        let mut states: Vec<(Option<String>, Free, &Candidate<'_>)> = candidates
            .iter()
            .map(|candidate| {
                let free = rules.free(candidate.gpu, &candidate.load, is_suspendable);
                (why_unusable(candidate), free, candidate)
            })
            .collect();
        // Usable GPUs first, among them the freest.
        states.sort_by_key(|(why, free, _)| (why.is_some(), Reverse(free.memory_bytes)));
        let has_usable = states.iter().any(|(why, ..)| why.is_none());
        let mut text = format!("{} not free on {count} GPU", wish(amounts));
        if count != 1 {
            text.push('s');
        }
        for (place, (why, free, candidate)) in states.iter().take(TOLD).enumerate() {
            let between = if place == 0 { ": " } else { "; " };
            let state = why.clone().unwrap_or_else(|| left(free, &candidate.load));
            let _ = write!(text, "{between}{} {state}", candidate.gpu.uuid);
        }
        if states.is_empty() {
            text.push_str(": none is left of those that were asked for");
        } else if states.len() > TOLD {
            let _ = write!(text, "; and {} with less", states.len() - TOLD);
        }
        if has_usable || states.is_empty() { Self::NoRoom(text) } else { Self::Unusable(text) }
    }

    /// The refusal for a tenant of GPU `uuid` that wants `after` in place of `before`. `others` have all but `free`, of which the
    /// tenant's own amounts are a part.
    pub(super) fn no_growth(
        (before, after): (&Quota, &Quota),
        free: &Free,
        uuid: GpuUuid,
        others: &Load,
    ) -> Self {
        // What it has already it may keep, even on an overcommitted GPU.
        let memory = free.memory_bytes.max(before.memory_bytes.unwrap_or(0));
        let cores = free.cores_permille.max(before.reserved_permille());
        let now = before
            .memory_bytes
            .map_or_else(|| "all memory".to_owned(), |bytes| MemorySize(bytes).to_string());
        Self::NoRoom(format!(
            "{} not free on 1 GPU: {uuid} has at most {} and {} for this tenant, which has {now} and {} now; {}",
            wish(after),
            MemorySize(memory),
            CoreShare(cores),
            CoreShare(before.reserved_permille()),
            held(others)
        ))
    }
}

fn wish(amounts: &Quota) -> String {
    let memory = amounts
        .memory_bytes
        .map_or_else(|| "all the memory of an empty GPU".to_owned(), |bytes| MemorySize(bytes).to_string());
    match amounts.reserved_permille() {
        0 => format!("{memory} is"),
        cores => format!("{memory} and {} are", CoreShare(cores)),
    }
}

/// What other tenants have of a GPU.
fn held(others: &Load) -> String {
    if others.sharers == 0 {
        return "no other tenant is on it".to_owned();
    }
    let memory = match others.is_whole {
        true => "all memory".to_owned(),
        false => MemorySize(others.memory_bytes).to_string(),
    };
    format!(
        "its other tenants ({}) have {memory} and {}",
        others.sharers,
        CoreShare(others.promised_permille)
    )
}

fn left(free: &Free, load: &Load) -> String {
    let mut text =
        format!("has {} and {} free", MemorySize(free.memory_bytes), CoreShare(free.cores_permille));
    if free.is_empty {
        text.push_str(", empty");
    } else if load.is_whole {
        text.push_str(", one tenant has all its memory");
    } else if free.sharers == 0 {
        let _ = write!(text, ", no place beside {} tenants (admission.sharers_max)", load.sharers);
    }
    text
}
