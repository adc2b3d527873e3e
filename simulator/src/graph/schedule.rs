//! How long kernels of a graph take together: each starts once what it depends on is done and multiprocessors
//! are free, in the order in which they were added.
//!
//! A graph's launch hands the machine one command for such a group, since nothing happens in memory while
//! kernels run. Assumed: between other nodes, kernels that do not depend on each other run side by side as
//! far as they fit; copies and sets do not overlap with them.

/// One kernel of a group.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// How long it runs, ns; `u64::MAX` never ends.
    pub(crate) duration_ns: u64,
    /// Multiprocessors that it occupies; 0 for a place that only orders others.
    pub(crate) sms: u32,
    /// Earlier jobs of the group that it waits for, by position.
    pub(crate) after: Vec<usize>,
}

/// A group as one kernel: nanoseconds, and the most multiprocessors in use at once.
pub(crate) fn combine(jobs: &[Job], sms: u32) -> (u64, u32) {
    let mut done = vec![false; jobs.len()];
    let mut waiting: Vec<usize> = (0..jobs.len()).collect();
    let mut running: Vec<(u64, usize)> = Vec::new();
    let (mut now, mut most) = (0u64, 0u32);
    while !waiting.is_empty() || !running.is_empty() {
        let in_use = |running: &[(u64, usize)]| {
            running
                .iter()
                .filter_map(|(_, job)| jobs.get(*job))
                .map(|job| job.sms)
                .sum::<u32>()
        };
        waiting.retain(|position| {
            let Some(job) = jobs.get(*position) else {
                return false;
            };
            let is_ready = job
                .after
                .iter()
                .all(|earlier| done.get(*earlier).copied().unwrap_or(true));
            let used = in_use(&running);
            let fits = used == 0 || used + job.sms <= sms;
            if is_ready && fits {
                running.push((now.saturating_add(job.duration_ns), *position));
                most = most.max(used + job.sms);
            }
            !(is_ready && fits)
        });
        let Some(next) = running.iter().map(|(end, _)| *end).min() else {
            break;
        };
        now = next;
        running.retain(|(end, job)| {
            if *end <= now
                && let Some(done) = done.get_mut(*job)
            {
                *done = true;
            }
            *end > now
        });
    }
    (now, most.min(sms))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(duration_ns: u64, sms: u32, after: &[usize]) -> Job {
        Job {
            duration_ns,
            sms,
            after: after.to_vec(),
        }
    }

    #[test]
    fn a_chain_adds_up() {
        assert_eq!(
            combine(&[job(5, 1, &[]), job(7, 2, &[0]), job(1, 1, &[1])], 132),
            (13, 2)
        );
    }

    #[test]
    fn branches_run_side_by_side_as_far_as_they_fit() {
        let diamond = [
            job(1, 1, &[]),
            job(10, 40, &[0]),
            job(8, 40, &[0]),
            job(1, 1, &[1, 2]),
        ];
        assert_eq!(combine(&diamond, 132), (12, 80));
        assert_eq!(combine(&diamond, 60), (20, 40));
    }

    #[test]
    fn a_place_that_only_orders_takes_no_time() {
        assert_eq!(
            combine(&[job(5, 1, &[]), job(0, 0, &[0]), job(5, 1, &[1])], 132),
            (10, 1)
        );
    }

    #[test]
    fn nothing_and_never() {
        assert_eq!(combine(&[], 132), (0, 0));
        assert_eq!(
            combine(&[job(u64::MAX, 1, &[]), job(5, 1, &[0])], 132),
            (u64::MAX, 1)
        );
    }
}
