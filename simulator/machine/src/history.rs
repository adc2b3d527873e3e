//! Records of dead processes, each written once, with the commit that ends the process.

use crate::core::RecordRow;
use crate::layout::record;
use crate::map::Mapping;

/// Stores a record. Its place is never reused, so a late store repeats the same value.
pub(crate) fn store(map: &Mapping, row: &RecordRow) {
    let start = record(row.index);
    let words =
        [row.index, row.pid, row.gpu, row.first, row.last, row.service, row.peak, row.launches, row.denied];
    for (word, value) in (start..).zip(words) {
        map.store(word, value);
    }
}

/// Reads a record that a commit has announced.
pub(crate) fn read(map: &Mapping, index: u64) -> RecordRow {
    let start = record(index);
    let word = |offset: usize| map.load(start + offset);
    RecordRow {
        index: word(0),
        pid: word(1),
        gpu: word(2),
        first: word(3),
        last: word(4),
        service: word(5),
        peak: word(6),
        launches: word(7),
        denied: word(8),
    }
}
