//! Statistics of shares of GPU time, for `vcuda bench` and the benches. A share of 1 is the whole GPU. Without values each
//! statistic is NaN, which meets no goal.

/// Length of the steps in which shares after a change are measured (ns).
pub const STEP_NS: u64 = 5_000_000;
/// Number of steps over which the mean must reach a share, as a single kernel may be a tenth of one step.
const STEPS: usize = 4;

/// Mean of the values.
#[expect(clippy::cast_precision_loss, reason = "counts")]
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Smallest value.
pub fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::min)
}

/// Largest value.
pub fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::max)
}

/// Median of the values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Value that at least `permille` thousandths of the values do not exceed; `None` without values.
pub fn quantile(mut values: Vec<f64>, permille: usize) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let wanted = (values.len() * permille).div_ceil(1000).max(1);
    values.get(wanted - 1).copied()
}

/// Mean absolute distance of the windows' shares from the intended share.
pub fn mean_absolute_error(windows: &[f64], share: f64) -> f64 {
    let errors: Vec<f64> = windows.iter().map(|got| (got - share).abs()).collect();
    mean(&errors)
}

/// Error of the ratio of two tenants, for the worst pair: the larger quotient of obtained and intended share over the
/// smaller one, less 1. Infinite if one tenant obtained nothing.
pub fn ratio_error(got_of_share: &[f64]) -> f64 {
    most(got_of_share) / least(got_of_share) - 1.0
}

/// Jain's index of the quotients of obtained and intended share: 1 if all are equal, 1/n if one tenant gets everything.
#[expect(clippy::cast_precision_loss, reason = "counts")]
pub fn jain(got_of_share: &[f64]) -> f64 {
    let sum: f64 = got_of_share.iter().sum();
    let squares: f64 = got_of_share.iter().map(|x| x * x).sum();
    if squares > 0.0 { sum * sum / (squares * got_of_share.len() as f64) } else { 0.0 }
}

/// Index of the first of four steps whose mean satisfies `is_there`.
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
        assert!([mean(&[]), least(&[]), median(Vec::new())].iter().all(|of| of.is_nan()));
    }

    #[test]
    fn a_ratio_is_wrong_whoever_gets_too_much() {
        // 54 : 46 instead of 70 : 30, as published of others: 1.17 instead of 2.33.
        let of_shares = [46.0 / 30.0, 54.0 / 70.0];
        near(ratio_error(&of_shares), (70.0 / 30.0) / (54.0 / 46.0) - 1.0);
        near(ratio_error(&[of_shares[1], of_shares[0]]), ratio_error(&of_shares));
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
        // One step with too much does not compensate for three without.
        assert_eq!(first_there(&[1.0, 0.0, 0.0, 0.4], is_there), None);
        assert_eq!(first_there(&[0.4, 0.4, 0.4], is_there), None);
    }
}
