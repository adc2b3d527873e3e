//! The figures of shares as arithmetic, for `vcuda bench` and the benches alike: shares are parts of
//! the GPU, 1 is the whole. Of nothing all of them are not a number, so that no goal is met by what was not measured.

/// Shares after a change are told from one such step to the next (ns).
pub const STEP_NS: u64 = 5_000_000;
/// And are there when so many steps have them on average: in one a kernel is a tenth.
const STEPS: usize = 4;

/// Mean of what there is.
#[expect(clippy::cast_precision_loss, reason = "counts")]
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The least of them.
#[must_use]
pub fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::min)
}

/// The most of them.
#[must_use]
pub fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::max)
}

/// The value in the middle.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// At most so much are `permille` thousandths of the values; nothing of none.
#[must_use]
pub fn quantile(mut values: Vec<f64>, permille: usize) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let wanted = (values.len() * permille).div_ceil(1000).max(1);
    values.get(wanted - 1).copied()
}

/// Mean distance of the shares in each window from what it should be.
#[must_use]
pub fn mean_absolute_error(windows: &[f64], share: f64) -> f64 {
    let errors: Vec<f64> = windows.iter().map(|got| (got - share).abs()).collect();
    mean(&errors)
}

/// By how much the ratio of two tenants misses that of their shares, the worst of all pairs, from what each got over what it
/// should: the larger over the smaller, less 1, so that the order does not matter. Infinite where one got nothing.
#[must_use]
pub fn ratio_error(got_of_share: &[f64]) -> f64 {
    most(got_of_share) / least(got_of_share) - 1.0
}

/// Jain's index of what each got over what it should: 1 where all are served in proportion, 1/n where one gets everything.
#[expect(clippy::cast_precision_loss, reason = "counts")]
#[must_use]
pub fn jain(got_of_share: &[f64]) -> f64 {
    let sum: f64 = got_of_share.iter().sum();
    let squares: f64 = got_of_share.iter().map(|x| x * x).sum();
    if squares > 0.0 {
        sum * sum / (squares * got_of_share.len() as f64)
    } else {
        0.0
    }
}

/// The first of the four steps whose mean is as it should be.
#[must_use]
pub fn first_there(steps: &[f64], is_there: impl Fn(f64) -> bool) -> Option<usize> {
    steps.windows(STEPS).position(|four| is_there(mean(four)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} instead of {expected}");
    }

    #[test]
    fn errors_do_not_cancel() {
        near(mean_absolute_error(&[0.2, 0.4], 0.3), 0.1);
        near(mean(&[0.2, 0.4]), 0.3);
        assert!(
            [mean(&[]), least(&[]), median(Vec::new())]
                .iter()
                .all(|of| of.is_nan())
        );
    }

    #[test]
    fn a_ratio_is_wrong_whoever_gets_too_much() {
        // 54 : 46 where 70 : 30 is asked for, as published of others: 1.17 instead of 2.33.
        let of_shares = [46.0 / 30.0, 54.0 / 70.0];
        near(ratio_error(&of_shares), (70.0 / 30.0) / (54.0 / 46.0) - 1.0);
        near(
            ratio_error(&[of_shares[1], of_shares[0]]),
            ratio_error(&of_shares),
        );
        near(ratio_error(&[0.97, 0.97, 0.97]), 0.0);
        assert!(ratio_error(&[1.0, 0.0]).is_infinite());
    }

    #[test]
    fn jain_is_one_for_proportional_service() {
        near(jain(&[0.9, 0.9, 0.9, 0.9]), 1.0);
        near(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25);
        near(jain(&[0.0, 0.0]), 0.0);
    }

    #[test]
    fn quantiles_are_values() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        for (permille, value) in [(0, 1.0), (500, 100.0), (990, 198.0), (1000, 200.0)] {
            assert_eq!(quantile(values.clone(), permille), Some(value));
        }
        assert_eq!(quantile(Vec::new(), 500), None);
        near(median(vec![3.0, 1000.0, 1.0]), 3.0);
    }

    #[test]
    fn a_share_is_there_when_four_steps_have_it() {
        let is_there = |share: f64| share >= 0.36;
        let steps = [0.0, 0.2, 0.4, 0.4, 0.4, 0.4, 0.0];
        assert_eq!(first_there(&steps, is_there), Some(2));
        // One step too much does not make up for three without.
        assert_eq!(first_there(&[1.0, 0.0, 0.0, 0.4], is_there), None);
        assert_eq!(first_there(&[0.4, 0.4, 0.4], is_there), None);
    }
}
