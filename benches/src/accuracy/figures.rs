//! Figures of shares (THROTTLE.md section 6): `u` what a tenant got, `c` what it should get, 1 is the whole GPU.

/// The mean; not a number of nothing.
#[expect(clippy::cast_precision_loss, reason = "a few windows")]
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Mean absolute error of single windows, in percentage points of the GPU.
pub(super) fn mean_absolute_error(windows: &[f64], share: f64) -> f64 {
    let errors: Vec<f64> = windows.iter().map(|got| (got - share).abs() * 100.0).collect();
    mean(&errors)
}

/// By how much the best served tenant got more than the worst served one, each in parts of its share (percent).
pub(super) fn ratio_error(got: &[f64], shares: &[f64]) -> f64 {
    let parts: Vec<f64> = got.iter().zip(shares).map(|(got, share)| got / share).collect();
    let most = parts.iter().copied().fold(f64::NAN, f64::max);
    (most / crate::least(&parts) - 1.0) * 100.0
}

/// Jain's index of service by share: 1 if all got the same part of theirs.
#[expect(clippy::cast_precision_loss, reason = "a few tenants")]
pub(super) fn weighted_jain(got: &[f64], shares: &[f64]) -> f64 {
    let parts: Vec<f64> = got.iter().zip(shares).map(|(got, share)| got / share).collect();
    let sum: f64 = parts.iter().sum();
    let squares: f64 = parts.iter().map(|part| part * part).sum();
    sum * sum / (parts.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_known_shares() {
        let near = |got: f64, wanted: f64| assert!((got - wanted).abs() < 1e-9, "{got} {wanted}");
        near(mean(&[0.2, 0.4]), 0.3);
        near(mean_absolute_error(&[0.29, 0.33], 0.30), 2.0);
        near(ratio_error(&[0.33, 0.60], &[0.30, 0.60]), 10.0);
        near(ratio_error(&[0.30, 0.66], &[0.30, 0.60]), 10.0);
        near(weighted_jain(&[0.1, 0.2], &[0.2, 0.4]), 1.0);
        near(weighted_jain(&[0.2, 0.0], &[0.2, 0.4]), 0.5);
    }
}
