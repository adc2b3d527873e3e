//! The figures of THROTTLE.md section 6, as arithmetic on shares (fractions of the GPU).

/// Mean of what there is; 0 of nothing.
#[expect(clippy::cast_precision_loss, reason = "counts")]
pub(super) fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1);
    values.sum::<f64>() / count as f64
}

/// Mean distance of the shares in each window from the cap.
pub(super) fn mean_absolute_error(windows: &[f64], cap: f64) -> f64 {
    mean(windows.iter().map(|share| (share - cap).abs()))
}

/// By how much the ratio of two tenants' shares misses that of their caps, the worst of all pairs; the smaller over the
/// larger ratio, so that the order does not matter.
pub(super) fn ratio_error(of_caps: &[f64]) -> f64 {
    let least = of_caps.iter().copied().fold(f64::INFINITY, f64::min);
    let most = of_caps.iter().copied().fold(0.0, f64::max);
    if least > 0.0 {
        most / least - 1.0
    } else {
        f64::INFINITY
    }
}

/// Jain's index of shares over caps: 1 where all are served in proportion, 1/n where one gets everything.
pub(super) fn jain(of_caps: &[f64]) -> f64 {
    let sum: f64 = of_caps.iter().sum();
    let squares: f64 = of_caps.iter().map(|x| x * x).sum();
    if squares > 0.0 {
        sum * sum / (squares * mean_count(of_caps))
    } else {
        0.0
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts")]
fn mean_count(values: &[f64]) -> f64 {
    values.len() as f64
}

/// The middle of the values; 0 of nothing.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// At most so much are `permille` thousandths of the values; nothing of none.
pub(super) fn quantile(mut values: Vec<f64>, permille: usize) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let wanted = (values.len() * permille).div_ceil(1000).max(1);
    values.get(wanted - 1).copied()
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
        near(mean([0.2, 0.4].into_iter()), 0.3);
        near(mean([].into_iter()), 0.0);
    }

    #[test]
    fn a_ratio_is_wrong_whoever_gets_too_much() {
        // 54 : 46 where 70 : 30 is asked for, as published of others: 1.17 instead of 2.33.
        let of_caps = [46.0 / 30.0, 54.0 / 70.0];
        near(ratio_error(&of_caps), (70.0 / 30.0) / (54.0 / 46.0) - 1.0);
        near(ratio_error(&[of_caps[1], of_caps[0]]), ratio_error(&of_caps));
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
    }

    #[test]
    fn one_outlier_does_not_move_the_median() {
        near(median(vec![3.0, 1000.0, 1.0]), 3.0);
        near(median(Vec::new()), 0.0);
    }
}
