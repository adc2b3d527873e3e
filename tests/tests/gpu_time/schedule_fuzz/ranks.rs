//! Scripts of ranks, whose kernels wait for each other on two GPUs: in processes of their own, in threads of one, or all in one thread.

use fastrand::Rng;

use crate::schedule_fuzz::generate::family;
use crate::schedule_fuzz::script::{Script, Step};
use crate::schedule_fuzz::threads::{log_uniform, script};

/// Streams of each context.
const STREAMS: u64 = 12;
/// Longest work between two meetings, meeting, and pause of a rank (us).
const WORK_US: u64 = 5_000;
const MEETING_US: u64 = 1_000;
const PAUSE_US: u64 = 100_000;
/// Longest kernels of a process beside them (us).
const BESIDE_US: u64 = 5_000;

/// Stream of a rank: on the two GPUs in turn, none of those that wait for others of their context.
fn stream(rank: u64) -> u64 {
    rank % 2 * STREAMS + 3 + 2 * (rank / 2)
}

/// What a rank does before a meeting.
fn work(random: &mut Rng, rank: u64, us: u64, steps: &mut Vec<Step>) {
    if random.u8(..4) == 0 {
        steps.push(Step::new('P', &[log_uniform(random, 10, PAUSE_US)]));
    }
    if random.u8(..6) != 0 {
        let most = (2 * WORK_US / us).clamp(1, 50);
        let count = log_uniform(random, 1, most + 1);
        steps.push(Step::new('L', &[stream(rank), 1 << random.u32(..3), us, count]));
    }
}

/// Ranks, each round with the same meetings: two on the two GPUs, or up to four in processes of their own; at times with a process of one
/// thread beside them.
pub(crate) fn scripts(random: &mut Rng, families: u32) -> Vec<Script> {
    let is_one_thread = random.u8(..3) == 0;
    let are_processes = !is_one_thread && random.bool();
    let may_be_many = are_processes || families & family::RANKS_TOGETHER != 0;
    let ranks = if may_be_many { random.u64(2..5) } else { 2 };
    let meetings: Vec<u64> = (0..random.usize(1..4)).map(|_| log_uniform(random, 20, MEETING_US)).collect();
    let own_us: Vec<u64> = (0..ranks).map(|_| log_uniform(random, 10, WORK_US)).collect();
    let meet = |rank: u64, us: u64| Step::new('M', &[stream(rank), ranks, us]);
    let end = |random: &mut Rng, rank: u64, steps: &mut Vec<Step>| match random.u8(..4) {
        0..2 => steps.push(Step::new('S', &[stream(rank)])),
        2 => steps.push(Step::new('Q', &[stream(rank), random.u64(20..500)])),
        _ => {}
    };
    let mut threads = Vec::new();
    if is_one_thread {
        let mut steps = Vec::new();
        for us in &meetings {
            (0..ranks).for_each(|rank| work(random, rank, own_us[rank as usize], &mut steps));
            steps.extend((0..ranks).map(|rank| meet(rank, *us)));
        }
        (0..ranks).for_each(|rank| end(random, rank, &mut steps));
        threads.push(steps);
    } else {
        for rank in 0..ranks {
            let mut steps = Vec::new();
            for us in &meetings {
                work(random, rank, own_us[rank as usize], &mut steps);
                steps.push(meet(rank, *us));
            }
            end(random, rank, &mut steps);
            threads.push(steps);
        }
    }
    let script_of = |threads| Script { contexts: 2, streams: STREAMS, threads };
    let mut scripts: Vec<Script> = if are_processes {
        threads.into_iter().map(|steps| script_of(vec![steps])).collect()
    } else {
        vec![script_of(threads)]
    };
    if families & family::PROCESSES != 0 {
        // Of many threads some wait for many seconds, and the ranks with them (docs/limits.md).
        scripts.push(script(random, families & !family::THREADS, BESIDE_US));
    }
    scripts
}
