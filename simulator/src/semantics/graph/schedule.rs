//! Time of a graph's kernels: each starts once its dependencies are done and multiprocessors are free, in the order of
//! creation.
//!
//! A launch submits one command for such a group, as nothing changes in memory while kernels run. docs/hardware.md,
//! "graphs": between other nodes, independent kernels run concurrently as far as they fit; copies and memsets do not
//! overlap with them.

use std::collections::BTreeSet;

/// A kernel of a group.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Duration (ns); `u64::MAX` never ends.
    pub(crate) duration_ns: u64,
    /// Number of multiprocessors that it occupies; 0 for a job that only orders others.
    pub(crate) sms: u32,
    /// Positions of the earlier jobs that it waits for.
    pub(crate) after: Vec<usize>,
}

/// A group as one kernel: duration (ns), and the maximum number of multiprocessors in use.
pub(crate) fn combine(jobs: &[Job], sms: u32) -> (u64, u32) {
    let mut missing: Vec<usize> = jobs.iter().map(|job| job.after.len()).collect();
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); jobs.len()];
    for (position, job) in jobs.iter().enumerate() {
        for earlier in &job.after {
            dependents[*earlier].push(position);
        }
    }
    let is_root = |position: &usize| missing[*position] == 0;
    let mut ready: BTreeSet<usize> = (0..jobs.len()).filter(is_root).collect();
    // Running jobs by end; they occupy `in_use` multiprocessors.
    let mut running: BTreeSet<(u64, usize)> = BTreeSet::new();
    let (mut now, mut in_use, mut most) = (0u64, 0u32, 0u32);
    loop {
        let mut started = Vec::new();
        for &position in &ready {
            let needed = jobs[position].sms;
            if in_use == 0 || in_use + needed <= sms {
                in_use += needed;
                most = most.max(in_use);
                running.insert((now.saturating_add(jobs[position].duration_ns), position));
                started.push(position);
            }
        }
        for position in started {
            ready.remove(&position);
        }
        let Some((end, position)) = running.pop_first() else {
            break;
        };
        now = end;
        in_use -= jobs[position].sms;
        for &dependent in &dependents[position] {
            missing[dependent] -= 1;
            if missing[dependent] == 0 {
                ready.insert(dependent);
            }
        }
    }
    (now, most.min(sms))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(duration_ns: u64, sms: u32, after: &[usize]) -> Job {
        Job { duration_ns, sms, after: after.to_vec() }
    }

    #[test]
    fn a_chain_adds_up() {
        assert_eq!(combine(&[job(5, 1, &[]), job(7, 2, &[0]), job(1, 1, &[1])], 132), (13, 2));
    }

    #[test]
    fn branches_run_side_by_side_as_far_as_they_fit() {
        let diamond = [job(1, 1, &[]), job(10, 40, &[0]), job(8, 40, &[0]), job(1, 1, &[1, 2])];
        assert_eq!(combine(&diamond, 132), (12, 80));
        assert_eq!(combine(&diamond, 60), (20, 40));
    }

    #[test]
    fn a_place_that_only_orders_takes_no_time() {
        assert_eq!(combine(&[job(5, 1, &[]), job(0, 0, &[0]), job(5, 1, &[1])], 132), (10, 1));
    }

    #[test]
    fn nothing_and_never() {
        assert_eq!(combine(&[], 132), (0, 0));
        assert_eq!(combine(&[job(u64::MAX, 1, &[]), job(5, 1, &[0])], 132), (u64::MAX, 1));
    }
}
