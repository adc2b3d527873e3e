//! Text of figures and names in tables. Memory is in whole MiB, rounded down, as in nvidia-smi: by one rule for all, no tenant seems
//! to use less than one of its processes.

use std::cmp::Ordering;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// A figure that NVML does not tell.
pub(crate) const UNKNOWN: &str = "N/A";

/// Memory in MiB, such as `4096MiB`.
pub(crate) fn mib(bytes: u64) -> String {
    format!("{}MiB", bytes >> 20)
}

/// Used and whole memory, such as `512MiB / 4096MiB`.
pub(crate) fn mib_of(used_bytes: u64, limit_bytes: u64) -> String {
    format!("{} / {}", mib(used_bytes), mib(limit_bytes))
}

/// Part of a whole in percent, rounded down; 0 of nothing.
pub(crate) fn percent_of(part: u64, whole: u64) -> u64 {
    let percent = u128::from(part) * 100 / u128::from(whole.max(1));
    u64::try_from(percent).unwrap_or(u64::MAX)
}

/// A share of GPU time with a tenth of a percent, such as `29.9`.
pub(crate) fn tenths(permille: u32) -> String {
    format!("{}.{}", permille / 10, permille % 10)
}

/// Watts of a figure in milliwatts, rounded to whole ones.
pub(crate) fn watts(milliwatts: u32) -> String {
    format!("{}W", milliwatts.saturating_add(500) / 1000)
}

/// Watts of a figure in milliwatts with two decimals, such as `258.31`, as in nvidia-smi's details and CSV.
pub(crate) fn exact_watts(milliwatts: u32) -> String {
    format!("{}.{:02}", milliwatts / 1000, milliwatts % 1000 / 10)
}

/// Seconds with a tenth, such as `12.5s`.
pub(crate) fn seconds(seconds: f64) -> String {
    format!("{seconds:.1}s")
}

/// A moment in the machine's time zone, such as `2026-11-25 21:53`.
pub(crate) fn moment(unix_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(unix_ms).map_or_else(
        |_| unix_ms.to_string(),
        |time| {
            let zoned = time.to_zoned(jiff::tz::TimeZone::system());
            zoned.strftime("%Y-%m-%d %H:%M").to_string()
        },
    )
}

/// Time of the machine with milliseconds, such as `2026/11/25 21:53:35.123`.
pub(crate) fn timestamp() -> String {
    jiff::Zoned::now().strftime("%Y/%m/%d %H:%M:%S%.3f").to_string()
}

/// Text of a figure, or [`UNKNOWN`].
pub(crate) fn known<T>(figure: Option<T>, text: impl FnOnce(T) -> String) -> String {
    figure.map_or_else(|| UNKNOWN.to_owned(), text)
}

/// Time of the machine, as in nvidia-smi's heading, such as `Wed Nov 25 21:53:35 2026`.
pub(crate) fn now() -> String {
    jiff::Zoned::now().strftime("%a %b %e %H:%M:%S %Y").to_string()
}

/// Width of a text on a terminal (columns).
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// `text` cut to `width` columns with an ellipsis. Control characters are replaced, as names come from other users.
pub fn clipped(text: &str, width: usize) -> String {
    cut(text, width, 0)
}

/// As [`clipped`], but cut in the middle: long names differ at their ends.
pub(crate) fn clipped_in_the_middle(text: &str, width: usize) -> String {
    cut(text, width, width.saturating_sub(1) * 2 / 3)
}

/// `text` cut to `width` columns, of which at most `end` are for its end.
fn cut(text: &str, width: usize, end: usize) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    if clean.width() <= width {
        return clean;
    }
    let Some(room) = width.checked_sub(1) else {
        return String::new();
    };
    let end: String = first(clean.chars().rev(), end).chars().rev().collect();
    let start = first(clean.chars(), room.saturating_sub(end.width()));
    format!("{start}…{end}")
}

/// The first characters that fit into so many columns.
fn first(characters: impl Iterator<Item = char>, columns: usize) -> String {
    let mut left = columns;
    let fits = |c: &char| {
        let columns = c.width().unwrap_or(0);
        let is_room = columns <= left;
        left = left.saturating_sub(columns);
        is_room
    };
    characters.take_while(fits).collect()
}

/// Order of names in which numbers count as numbers: `web-2` comes before `web-10`.
pub(crate) fn natural(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one, other);
    loop {
        let (a, b) = (piece(one), piece(other));
        if a.is_empty() || b.is_empty() {
            return one.cmp(other);
        }
        let order = match (number(a), number(b)) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a.cmp(b),
        };
        // Equal numbers may be written differently: 07 and 7.
        match order.then_with(|| a.cmp(b)) {
            Ordering::Equal => {}
            unequal => return unequal,
        }
        one = one.get(a.len()..).unwrap_or_default();
        other = other.get(b.len()..).unwrap_or_default();
    }
}

/// The digits, or the other characters, with which a text begins.
fn piece(text: &str) -> &str {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit());
    let end = text.find(|c: char| c.is_ascii_digit() != is_number);
    text.get(..end.unwrap_or(text.len())).unwrap_or(text)
}

fn number(piece: &str) -> Option<u128> {
    piece.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_natural_order() {
        let mut names = ["web-10", "web-2", "a", "web", "web-02", "2", "10", "web-2-b"];
        names.sort_by(|one, other| natural(one, other));
        assert_eq!(names, ["2", "10", "a", "web", "web-02", "web-2", "web-2-b", "web-10"]);
    }

    #[test]
    fn a_cut_text_fits_and_shows_that_it_was_cut() {
        assert_eq!(clipped("python", 6), "python");
        assert_eq!(clipped("python3", 6), "pytho…");
        assert_eq!(clipped("a\u{1b}[2J", 9), "a?[2J");
        // Each of these takes two columns.
        assert_eq!(clipped("日本語", 6), "日本語");
        assert_eq!(clipped("日本語", 5), "日本…");
        assert_eq!(clipped("日本語", 4), "日…");
        assert_eq!(clipped("x", 0), "");
    }

    #[test]
    fn figures_are_rounded_down_to_the_mebibyte() {
        assert_eq!(mib((4 << 30) - 1), "4095MiB");
        assert_eq!(mib_of(0, 4 << 30), "0MiB / 4096MiB");
        assert_eq!(percent_of(999, 1000), 99);
        assert_eq!(percent_of(1, 0), 100);
        assert_eq!(tenths(298), "29.8");
        assert_eq!(watts(258_400), "258W");
        assert_eq!(known(None, watts), "N/A");
        assert_eq!(seconds(12.449), "12.4s");
        assert_eq!(moment(i64::MAX), i64::MAX.to_string());
    }
}
