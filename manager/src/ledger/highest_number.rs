//! The highest grant number in a damaged ledger, so that no number is reused. No grant is read from it.

/// The greatest number that follows `number":` anywhere in the bytes.
pub(super) fn highest_number(bytes: &[u8]) -> u64 {
    const WORD: &[u8] = b"number\":";
    let digits_at = |at: usize| {
        let digits = bytes.get(at + WORD.len()..).unwrap_or_default().iter();
        let digits = digits.take(20).take_while(|byte| byte.is_ascii_digit());
        digits.fold(0_u64, |number, digit| number.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
    };
    let words = bytes.windows(WORD.len()).enumerate();
    words
        .filter(|(_, window)| *window == WORD)
        .map(|(at, _)| digits_at(at))
        // A huge number, made by damage, would leave no numbers to use.
        .filter(|number| *number < u64::MAX / 2)
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_number_is_found_in_a_damaged_ledger() {
        let damaged = br#"xx"last_number":17,"gra{"number":18,"key":"number":9"#;
        assert_eq!(highest_number(damaged), 18);
        assert_eq!(highest_number(b"\"number\":"), 0);
        assert_eq!(highest_number(b"\"number\":99999999999999999999999"), 0);
    }
}
