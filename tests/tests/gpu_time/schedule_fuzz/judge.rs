//! Promises of the limiter, held against the exact record.
//!
//! **Of any program**: in no window does the tenant get more than its cap allows, plus what it may have saved (`BURST_NS`), plus
//! what was in flight ([`in_flight_ns`]), plus what ranks may owe for kernels that wait for them (`GANG_NS`), plus what measuring may be wrong by (`ERROR_PERMILLE` of the cap). The worst of all
//! windows is found in one pass: the excess at a moment is that of the moment before, if positive, plus what came since.
//!
//! **Of an honest neighbour** beside kernels of at most 100 ms: in each window of `FLOOR_NS` it gets its guarantee but `FLOOR_POINTS`, of the time that switches between
//! contexts leave: no limiter can give that to a tenant. Work behind flags and host functions was paid for before, and runs in equal slices
//! when they let it go: what the tenant gets so above its cap between two looks is its neighbour's loss.

use crate::schedule_fuzz::case::{Case, Event};
use crate::schedule_fuzz::play::{GPUS, Look, MS};
use crate::schedule_fuzz::script::Script;

/// More than a tenant may save for later (ns), alone and beside others: that is 5 and 120 ms (docs/limiter.md).
const BURST_NS: (u64, u64) = (50 * MS, 150 * MS);
/// Tolerance of the cap: means are within 1 % (docs/evidence.md), launch calls that take long are believed 2 % of the
/// time.
const ERROR_PERMILLE: u64 = 20;
/// In what windows the neighbour's guarantee holds (ns), and to how many points.
const FLOOR_NS: u64 = 5_000 * MS;
const FLOOR_POINTS: f64 = 3.0;
const LONG_NS: u64 = 100 * MS;
/// The neighbour's account has settled after so long (ns).
const FLOOR_FROM_NS: u64 = 1_000 * MS;
/// Time in which a changed cap is followed (ns).
const FOLLOWED_NS: u64 = 25 * MS;
/// Work of a process that is killed before it was measured is charged as predicted: so much for each (ns) is in flight then.
const WINDOW_NS: u64 = 2 * MS;
/// For how long kernels of ranks may spin before launches go in time (ns): until the first that they wait for goes on debt after a second,
/// and what launches of a gang may owe then (`WAITED_MOST_NS` of the shim's `gang.rs`).
const GANG_NS: u64 = 1_500 * MS;

/// Promise that a case broke.
#[derive(Debug, Clone)]
pub(crate) enum Broken {
    /// The tenant got so much (ns) in that window, where it was allowed so much.
    Cap {
        window_ns: [u64; 2],
        got_ns: u64,
        allowed_ns: u64,
        /// By how many times as much as it may be the tenant was ahead of its cap.
        times: f64,
    },
    /// The neighbour got so much (percent of the time that switches leave) in that window.
    Floor { window_ns: [u64; 2], got: f64, guarantee: f64 },
    /// It could not be played.
    Stuck(String),
}

impl Broken {
    /// Severity: 1 and more.
    pub(crate) fn times_allowed(&self) -> f64 {
        match self {
            Broken::Cap { times, .. } => *times,
            Broken::Floor { got, guarantee, .. } => (guarantee - got) / FLOOR_POINTS,
            Broken::Stuck(_) => 1.0,
        }
    }

    /// Whether it is the same promise.
    pub(crate) fn is_like(&self, other: &Broken) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = |ns: u64| ns as f64 / 1e9;
        match self {
            Broken::Cap { window_ns: [from, to], got_ns, allowed_ns, times } => write!(
                f,
                "from {:.1} to {:.1} s the tenant got {:.3} s of the GPU, {:.1} % of it; allowed are {:.3} s ({times:.1} times as far ahead as it may be)",
                seconds(*from),
                seconds(*to),
                seconds(*got_ns),
                100.0 * seconds(*got_ns) / seconds(to - from),
                seconds(*allowed_ns)
            ),
            Broken::Floor { window_ns: [from, to], got, guarantee } => write!(
                f,
                "from {:.1} to {:.1} s the neighbour got {got:.1} % of what switches leave, of {guarantee:.0}",
                seconds(*from),
                seconds(*to)
            ),
            Broken::Stuck(why) => write!(f, "it could not be played: {why}"),
        }
    }
}

/// Result of a case.
#[derive(Debug, Clone)]
pub(crate) struct Verdict {
    pub(crate) broken: Option<Broken>,
    /// The most that the tenant was ahead of its cap, of what is allowed (ns).
    pub(crate) excess_ns: u64,
    pub(crate) allowed_ns: u64,
    /// Shares in the whole of the time (percent).
    pub(crate) tenant: f64,
    pub(crate) neighbour: f64,
}

/// Most that may be in flight beyond what was paid for (ns): of each process its longest launch (of each thread, if handlers launch), what waits behind flags and host
/// functions, and a round of what cannot be predicted; for each death as much again, and for each change of the cap what goes until
/// it is followed.
fn in_flight_ns(case: &Case) -> u64 {
    // A launch of seconds may wait for the next one: so that goes, too.
    let launches = if is_long(case) { 2 } else { 1 };
    let of_process =
        |script: &Script| launches * script.at_once_ns() + script.gated_ns() + script.unpredictable_ns();
    let all_ns: u64 = case.scripts.iter().map(of_process).sum();
    let of_event = |(_, event): &(u64, Event)| match event {
        Event::Kill(process) => case.scripts.get(*process).map_or(0, of_process) + WINDOW_NS,
        Event::Cap(_) => FOLLOWED_NS,
        Event::Stop(_) | Event::Resume(_) | Event::Start(_) | Event::Claim(_) => 0,
    };
    all_ns + case.events.iter().map(of_event).sum::<u64>()
}

/// Whether the case has launches beside which no neighbour is promised anything.
fn is_long(case: &Case) -> bool {
    case.scripts.iter().any(|script| script.longest_ns() > LONG_NS)
}

pub(crate) fn judge(case: &Case, looks: &[Look]) -> Verdict {
    let (alone_ns, beside_ns) = BURST_NS;
    let burst_ns = if case.neighbour.is_some() { beside_ns } else { alone_ns };
    let gang_ns = if case.scripts.iter().any(Script::has_meetings) { GANG_NS } else { 0 };
    let allowed_ns = burst_ns + in_flight_ns(case) + gang_ns;
    let worst = |gpu| (worst_excess(looks, gpu), gpu);
    let ((excess_ns, window_ns), gpu) =
        (0..GPUS).rev().map(worst).max_by_key(|((ns, _), _)| *ns).unwrap_or_default();
    let at = |ns: u64| looks.iter().find(|look| look.at_ns >= ns).map_or(0, |look| look.tenant_ns[gpu]);
    let got_ns = at(window_ns[1]).saturating_sub(at(window_ns[0]));
    let cap = (excess_ns > allowed_ns).then(|| Broken::Cap {
        window_ns,
        got_ns,
        allowed_ns: got_ns.saturating_sub(excess_ns) + allowed_ns,
        times: excess_ns as f64 / allowed_ns as f64,
    });
    let whole = |of: &dyn Fn(&Look) -> u64| {
        let last = looks.last().map_or((0, 1), |look| (of(look), look.at_ns));
        let first = looks.first().map_or((0, 0), |look| (of(look), look.at_ns));
        100.0 * (last.0 - first.0) as f64 / (last.1 - first.1) as f64
    };
    Verdict {
        broken: cap.or_else(|| floor(case, looks)),
        excess_ns,
        allowed_ns,
        tenant: whole(&|look| look.tenant_ns[gpu]),
        neighbour: whole(&|look| look.neighbour_ns),
    }
}

/// The most by which the tenant got more than its cap of a GPU in any window (ns), and the window.
fn worst_excess(looks: &[Look], gpu: usize) -> (u64, [u64; 2]) {
    let (mut excess_ns, mut since_ns) = (0, 0);
    let mut worst = (0, [0, 1]);
    for pair in looks.windows(2) {
        let [before, after] = pair else { continue };
        let time_ns = after.at_ns - before.at_ns;
        let allowed_ns = time_ns * u64::from(before.cap) * (1000 + ERROR_PERMILLE) / 100_000;
        if excess_ns == 0 {
            since_ns = before.at_ns;
        }
        // What a killed process had since its last sign of life is not in the record.
        let got_ns = after.tenant_ns[gpu].saturating_sub(before.tenant_ns[gpu]);
        excess_ns = (excess_ns + got_ns).saturating_sub(allowed_ns);
        if excess_ns > worst.0 {
            worst = (excess_ns, [since_ns, after.at_ns]);
        }
    }
    worst
}

/// GPU time of the tenant above its cap between two looks, of all from one to another (ns).
fn above_cap_ns(looks: &[Look], from: &Look, to: &Look) -> u64 {
    let within = looks.windows(2).filter(|pair| pair[0].at_ns >= from.at_ns && pair[1].at_ns <= to.at_ns);
    let above = within.map(|pair| {
        let of_cap_ns = (pair[1].at_ns - pair[0].at_ns) * u64::from(pair[0].cap) / 100;
        pair[1].tenant_ns[0].saturating_sub(pair[0].tenant_ns[0] + of_cap_ns)
    });
    above.sum()
}

/// The first window in which the neighbour gets too little.
fn floor(case: &Case, looks: &[Look]) -> Option<Broken> {
    let guarantee = f64::from(case.neighbour.filter(|_| !is_long(case))?);
    let has_gates = case.scripts.iter().any(|script| script.gated_ns() > 0);
    looks.iter().enumerate().find_map(|(position, from)| {
        let to = looks[position..].iter().find(|to| to.at_ns >= from.at_ns + FLOOR_NS)?;
        let time_ns = to.at_ns - from.at_ns - (to.switched_ns - from.switched_ns);
        let let_go_ns = if has_gates { above_cap_ns(looks, from, to) } else { 0 };
        let got_ns = to.neighbour_ns - from.neighbour_ns + let_go_ns;
        let got = 100.0 * got_ns as f64 / time_ns as f64;
        (from.at_ns >= FLOOR_FROM_NS && got < guarantee - FLOOR_POINTS).then_some(Broken::Floor {
            window_ns: [from.at_ns, to.at_ns],
            got,
            guarantee,
        })
    })
}
