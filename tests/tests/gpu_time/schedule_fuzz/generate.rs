//! Cases at random, from a seed.

use fastrand::Rng;

use crate::schedule_fuzz::case::{Case, Event};
use crate::schedule_fuzz::ranks;
use crate::schedule_fuzz::script::{Script, Step};
use crate::schedule_fuzz::threads::script;

/// Features that a case may have; each takes some of those it is allowed. A sum of these is `VCUDA_FUZZ_FAMILIES`.
pub(crate) mod family {
    pub(crate) const STREAMS: u32 = 1;
    pub(crate) const THREADS: u32 = 1 << 1;
    pub(crate) const CONTEXTS: u32 = 1 << 2;
    pub(crate) const GRAPHS: u32 = 1 << 3;
    pub(crate) const CAPTURES: u32 = 1 << 4;
    pub(crate) const EVENTS: u32 = 1 << 5;
    /// Host functions, and streams that wait for the host.
    pub(crate) const HOST: u32 = 1 << 6;
    pub(crate) const PROCESSES: u32 = 1 << 7;
    pub(crate) const CAPS: u32 = 1 << 8;
    pub(crate) const STOPS: u32 = 1 << 9;
    /// Processes are killed, and begun anew. Kernels are short then.
    pub(crate) const KILLS: u32 = 1 << 10;
    /// Streams and contexts are made anew.
    pub(crate) const RENEWALS: u32 = 1 << 11;
    pub(crate) const NEIGHBOUR: u32 = 1 << 12;
    /// Kernels of one function and grid take now this long, now that.
    pub(crate) const VARIES: u32 = 1 << 13;
    /// A hundred streams, or a dozen threads.
    pub(crate) const MANY: u32 = 1 << 14;
    /// Processes stop themselves, or are killed, with long work in flight.
    pub(crate) const LONG_ENDS: u32 = 1 << 15;
    /// Work in other streams, or of other threads, while a stream is captured.
    pub(crate) const BESIDE_CAPTURES: u32 = 1 << 16;
    /// Kernels and graphs of up to five seconds.
    pub(crate) const LONG: u32 = 1 << 17;
    /// Signal handlers launch while a launch waits, and leave it by a jump.
    pub(crate) const SIGNALS: u32 = 1 << 18;
    /// The tenant claims contexts in its `usage` that it does not have.
    pub(crate) const LIES: u32 = 1 << 19;
    /// Kernels of ranks on two GPUs wait for each other. Such cases have no neighbour, and no process is stopped or killed: a kernel
    /// that spins for another one meanwhile cannot be stopped, and is paid for afterwards.
    pub(crate) const RANKS: u32 = 1 << 20;
    /// Of such ranks several run on one GPU in one process: such meetings take more than 20 s.
    pub(crate) const RANKS_TOGETHER: u32 = 1 << 21;
    /// Processes live in a time namespace of their own.
    pub(crate) const OFFSETS: u32 = 1 << 22;
    /// The tenant claims at times to be busy, beside a neighbour: with contexts, and with work that is none. At times it is idle.
    pub(crate) const CLAIMS: u32 = 1 << 23;
    /// Threads poll streams and events without sleeping.
    pub(crate) const POLLS: u32 = 1 << 24;
    pub(crate) const ALL: u32 = (1 << COUNT) - 1;
    pub(crate) const COUNT: u32 = 25;
}

/// Features that are tried by default: all but those known to break promises (docs/limits.md: "Work of a process that stops";
/// docs/evidence.md, "Known to miss their goals").
pub(crate) const USUAL: u32 = family::ALL & !(family::LONG_ENDS | family::RANKS_TOGETHER);

/// Duration of a case (virtual ms); one of many streams or threads, which takes long in real time, too; one of kernels of seconds.
const LASTS_MS: u64 = 10_000;
const LASTS_MANY_MS: u64 = 4_000;
const LASTS_LONG_MS: u64 = 60_000;
/// Longest kernels (us): of a case one of these is the most.
pub(crate) const LONGEST_US: [u64; 4] = [1_000, 5_000, 20_000, 100_000];
/// The same where processes are killed.
const LONGEST_KILLED_US: u64 = 2_000;
const LONGEST_LONG_US: u64 = 5_000_000;
const CAPS: [u32; 5] = [10, 20, 30, 50, 75];
const NEIGHBOURS: [u32; 4] = [25, 50, 70, 90];
/// Offsets of clocks (s).
const OFFSETS_S: [i64; 3] = [100_000, 3, -10];
/// Contexts that are claimed to be busy.
const CLAIMED: [u32; 4] = [1, 4, 16, 512];
/// The first of the features that came later.
const FIRST_LATER: u32 = 18;
/// The case of a seed.
pub(crate) fn case(seed: u64, families: u32) -> Case {
    let mut random = Rng::with_seed(seed);
    // Few at a time: what breaks a promise is seen better so.
    let chance = random.u32(1..5);
    let is_taken = |_: &u32| random.u32(..6) < chance;
    let taken: u32 = (0..FIRST_LATER).map(|bit| 1 << bit).filter(is_taken).sum();
    // From numbers of their own, so that a seed of before plays the case of before.
    let mut later = Rng::with_seed(!seed);
    let taken = (FIRST_LATER..family::COUNT)
        .filter(|_| later.u32(..6) < chance)
        .fold(taken, |sum, bit| sum | 1 << bit);
    // So that a family more changes none of what others draw.
    let mut values = Rng::with_seed(seed.reverse_bits());
    let families = fitting(families & taken);
    let has = |family: u32| families & family != 0;
    let longest_us = if has(family::KILLS) && !has(family::LONG_ENDS) {
        LONGEST_KILLED_US
    } else if has(family::LONG) {
        LONGEST_LONG_US
    } else {
        LONGEST_US[random.usize(..LONGEST_US.len())]
    };
    let neighbour = has(family::NEIGHBOUR).then(|| NEIGHBOURS[random.usize(..NEIGHBOURS.len())]);
    let caps: Vec<u32> = CAPS.into_iter().filter(|cap| cap + neighbour.unwrap_or(0) <= 100).collect();
    let processes = if has(family::PROCESSES) { random.usize(2..4) } else { 1 };
    let mut scripts: Vec<Script> = if has(family::RANKS) {
        ranks::scripts(&mut random, families)
    } else {
        (0..processes).map(|_| script(&mut random, families, longest_us)).collect()
    };
    let cap = caps[random.usize(..caps.len())];
    let lasts_ms = if has(family::MANY) {
        LASTS_MANY_MS
    } else if has(family::LONG) {
        LASTS_LONG_MS
    } else {
        LASTS_MS
    };
    let mut events = events(&mut random, families, processes, &caps);
    if has(family::CLAIMS) {
        claims(&mut values, &mut scripts, &mut events);
    }
    events.retain(|(at_ms, _)| *at_ms < lasts_ms);
    events.sort_by_key(|(at_ms, _)| *at_ms);
    Case {
        lasts_ms,
        cap,
        neighbour,
        offset_s: if has(family::OFFSETS) { OFFSETS_S[values.usize(..OFFSETS_S.len())] } else { 0 },
        gpus: if has(family::RANKS) { 2 } else { 1 },
        scripts,
        events,
        stays: has(family::LONG_ENDS),
        lies: has(family::LIES),
    }
}

/// Families that go together, of those that were drawn.
fn fitting(mut families: u32) -> u32 {
    if families & family::CLAIMS != 0 {
        families |= family::NEIGHBOUR;
    }
    if families & family::RANKS != 0 {
        families &= !(family::NEIGHBOUR
            | family::STOPS
            | family::KILLS
            | family::LONG_ENDS
            | family::LONG
            | family::CLAIMS);
    }
    families
}

/// Claims that come and go, of processes that pause for seconds half of the time.
fn claims(random: &mut Rng, scripts: &mut [Script], events: &mut Vec<(u64, Event)>) {
    for _ in 0..random.u32(1..5) {
        let at_ms = random.u64(500..LASTS_MS - 1000);
        events.push((at_ms, Event::Claim(CLAIMED[random.usize(..CLAIMED.len())])));
        events.push((at_ms + random.u64(50..3000), Event::Claim(0)));
    }
    if random.bool() {
        let pause_us = random.u64(500_000..3_000_000);
        let threads = scripts.iter_mut().flat_map(|script| &mut script.threads);
        threads.for_each(|steps| steps.push(Step::new('P', &[pause_us])));
    }
}

fn events(random: &mut Rng, families: u32, processes: usize, caps: &[u32]) -> Vec<(u64, Event)> {
    let has = |family: u32| families & family != 0;
    let mut events = Vec::new();
    if has(family::CAPS) {
        for _ in 0..random.u32(1..4) {
            events.push((random.u64(500..LASTS_MS - 1000), Event::Cap(caps[random.usize(..caps.len())])));
        }
    }
    if has(family::STOPS) {
        for _ in 0..random.u32(1..8) {
            let (at_ms, process) = (random.u64(200..LASTS_MS - 1500), random.usize(..processes));
            events.push((at_ms, Event::Stop(process)));
            events.push((at_ms + random.u64(1..1500), Event::Resume(process)));
        }
    }
    if has(family::KILLS) {
        for _ in 0..random.u32(1..6) {
            let (at_ms, process) = (random.u64(200..LASTS_MS - 1500), random.usize(..processes));
            events.push((at_ms, Event::Kill(process)));
            events.push((at_ms + random.u64(1..1000), Event::Start(process)));
        }
    }
    events
}
