//! Fairness of an ideal order by service with long kernels: processes of a tenant under a cap of 30 %, one kernel at a
//! time, without delay, overlap or interruption. No limiter can beat it, as half a kernel cannot be given.

const PROCESSES_CAP: u64 = 30;
/// GPU time of the tenant in a window of one second (ns).
const WINDOW_NS: u64 = super::SECOND_NS / 100 * PROCESSES_CAP;

/// Durations of the kernels of `apps/load.c mix` (ns).
fn mix(mut seed: u64) -> impl Iterator<Item = u64> {
    core::iter::repeat_with(move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        // Ten sizes, each smaller than the previous by the ninth root of 625.
        let size = i32::try_from(((seed >> 11) * 10) >> 53).unwrap_or(0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "8 us to 5 ms")]
        let ns = (8000.0 * 625_f64.powf(f64::from(size) / 9.0)) as u64;
        ns
    })
}

/// Mean over the windows of the ratio of the most served of `count` processes to the least served. The next kernel is of
/// the process that will have had least, counting `ahead` of that kernel.
fn most_to_least(count: usize, windows: usize, ahead: f64) -> f64 {
    // Each process is at another position of its work.
    let mut work: Vec<_> = (1..=count).map(|one| mix(0x9e37_79b9_7f4a_7c15).skip(one * one * 131)).collect();
    let mut next: Vec<u64> = work.iter_mut().filter_map(Iterator::next).collect();
    let mut had = vec![0_u64; count];
    let mut before = had.clone();
    let (mut now, mut end) = (0, 10 * WINDOW_NS);
    let mut ratios = Vec::new();
    while ratios.len() < windows {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let rank = |one: &usize| had[*one] as f64 + ahead * next[*one] as f64;
        let one = (0..count).min_by(|one, other| rank(one).total_cmp(&rank(other))).unwrap();
        let until = now + next[one];
        if until >= end {
            // The record shows to the nanosecond what ran on either side of a window's end.
            let mut then = had.clone();
            then[one] += end - now;
            let served = then.iter().zip(&before).map(|(then, before)| then - before);
            let (least, most) = served.fold((u64::MAX, 0), |(least, most), ns| (least.min(ns), most.max(ns)));
            if end > 10 * WINDOW_NS {
                ratios.push(crate::lab::ratio(most, least));
            }
            before = then;
            end += WINDOW_NS;
        }
        now = until;
        had[one] += next[one];
        next[one] = work[one].next().unwrap();
    }
    super::mean(&ratios)
}

#[test]
fn of_sixteen_processes_with_long_kernels_no_order_is_within_the_goal() {
    let sixteen = most_to_least(16, 200, 0.5);
    assert!((1.30..=1.37).contains(&sixteen), "{sixteen}");
    // Any other order by service is worse, and with fewer processes the goal can be met.
    for ahead in [0.0, 1.0] {
        let other = most_to_least(16, 200, ahead);
        assert!(other > sixteen + 0.05, "{ahead}: {other}");
    }
    let four = most_to_least(4, 200, 0.5);
    assert!(four < 1.1, "{four}");
}
