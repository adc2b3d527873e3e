//! Parser of callgrind's output, by instruction (valgrind manual, "Callgrind Format Specification").

use std::collections::HashMap;

use anyhow::{Context as _, Result};

/// Executions of each instruction, by file and address.
pub(crate) type Counts = HashMap<(String, u64), u64>;

/// Instructions of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Instructions {
    /// Instructions that nearly every call executes.
    pub(crate) usual: f64,
    /// Mean over all calls.
    pub(crate) mean: f64,
}

/// The counts of a report with one event (instructions) and two positions (address, line).
pub(crate) fn counts(report: &str) -> Result<Counts> {
    let mut counts = Counts::new();
    let mut objects = HashMap::new();
    let (mut object, mut address) = ("", 0);
    let mut is_call = false;
    for line in report.lines() {
        if let Some((kind, named)) = line.split_once("ob=") {
            // `(NUMBER) FILE` at first, later only `(NUMBER)`.
            let (number, file) = named.split_once(' ').unwrap_or((named, ""));
            let file = *objects.entry(number).or_insert(file);
            // `cob` names the called function's file.
            object = if kind.is_empty() { file } else { object };
        } else if line.starts_with("calls=") {
            // The next line is the cost of the called function, which is counted there.
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let mut words = line.split(' ');
            address = moved(address, words.next().unwrap_or_default()).context(line.to_owned())?;
            if !std::mem::take(&mut is_call) {
                let count: u64 = words.nth(1).context(line.to_owned())?.parse()?;
                *counts.entry((object.to_owned(), address)).or_default() += count;
            }
        }
    }
    Ok(counts)
}

/// A position given in hexadecimal, as a difference to the previous one, or as `*` for the same.
fn moved(before: u64, word: &str) -> Option<u64> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    match word.split_at_checked(1)? {
        ("*", _) => Some(before),
        ("+", distance) => Some(before.wrapping_add(number(distance)?)),
        ("-", distance) => Some(before.wrapping_sub(number(distance)?)),
        _ => number(word),
    }
}

/// Part of the calls that counts as nearly all. What is rare and loops, as over all streams, has a mean of more than half.
const NEARLY_ALL: f64 = 0.9;

/// Instructions per call: the difference of a run with many calls and one with few, divided by `calls`.
#[expect(clippy::cast_precision_loss, reason = "millions")]
pub(crate) fn per_call(few: &Counts, many: &Counts, calls: u64) -> Instructions {
    let (mut usual, mut mean) = (0.0, 0.0);
    for (place, count) in many {
        let more = *count as f64 - few.get(place).copied().unwrap_or(0) as f64;
        let each = more / calls as f64;
        usual += (each + 1.0 - NEARLY_ALL).floor();
        mean += each;
    }
    Instructions { usual, mean }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "positions: instr line\nevents: Ir\n\nob=(1) /a\nfn=(1) f\n0x10 7 3\n+4 8 2\ncob=(2) /b\ncfn=(2)\ncalls=2 0x90 1\n* 8 99\n\nob=(2)\nfn=(2) g\n0x90 1 2\n-16 1 5\ntotals: 12\n";

    #[test]
    fn what_a_called_function_takes_is_counted_there() {
        let expected = [("/a", 0x10, 3), ("/a", 0x14, 2), ("/b", 0x90, 2), ("/b", 0x80, 5)];
        let expected = expected.map(|(object, address, count)| ((object.to_owned(), address), count));
        assert_eq!(counts(REPORT).unwrap(), Counts::from(expected));
    }

    #[test]
    fn what_comes_now_and_then_is_in_the_mean_alone() {
        let at = |address| ("/a".to_owned(), address);
        let few = Counts::from([(at(1), 100), (at(2), 7)]);
        let many = Counts::from([(at(1), 300), (at(2), 9), (at(3), 560), (at(4), 190)]);
        let of_many = per_call(&few, &many, 200);
        assert!((of_many.mean - 4.76).abs() < 1e-9);
        // Once, never, 2.8 times and nearly once.
        assert!((of_many.usual - 4.0).abs() < 1e-9);
    }
}
