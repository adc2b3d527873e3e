//! Records of `usage`, decoded from bytes.

use core::mem::offset_of;

use vcuda_limiter::token_bucket::Meter;

use super::DeviceUse;
use crate::layout::IdentityRecord;
use crate::ledger::Record;
use crate::primitive::Ordering;
use crate::process::Identity;
use crate::slots::{State, identity_of_words};

/// The words of a line: of its record, and of its meter.
pub(super) fn words_of_line(line: &[u8]) -> [u64; 16] {
    core::array::from_fn(|position| word(line, position * 8))
}

/// The process of a slot that is live now.
pub(crate) fn identity_of_record(record: &[u8]) -> Option<Identity> {
    let state = State(word(record, offset_of!(IdentityRecord, state)));
    let name = offset_of!(IdentityRecord, name);
    let words = [
        word(record, offset_of!(IdentityRecord, start_ticks)),
        word(record, offset_of!(IdentityRecord, namespaces)),
        word(record, name),
        word(record, name + 8),
    ];
    state.is_live().then(|| identity_of_words(state, words))
}

pub(super) fn record_of_line(line: &[u8], head: u64) -> Record {
    let [_, copies @ .., _, _, _] = *words_of_line(line).first_chunk::<8>().unwrap_or(&[0; 8]);
    Record::of_words(head, copies)
}

pub(super) fn use_of_line(line: &[u8], head: u64) -> DeviceUse {
    let words = words_of_line(line);
    let [.., peak_bytes, denied, overhead_bytes] = *words.first_chunk::<8>().unwrap_or(&[0; 8]);
    let record = record_of_line(line, head);
    let meter = Meter::of_words(words.last_chunk::<8>().unwrap_or(&[0; 8]));
    DeviceUse {
        used_bytes: record.used_bytes(),
        peak_bytes,
        overhead_bytes,
        denied,
        launches: meter.launches(),
        charged_ns: meter.charged_ns.load(Ordering::Relaxed),
        holds: u64::from(meter.holds.load(Ordering::Relaxed)),
        held_ns: meter.held_ns.load(Ordering::Relaxed),
        debt_admits: u64::from(meter.debt_admits.load(Ordering::Relaxed)),
        mispredicted_ns: meter.mispredicted_ns.load(Ordering::Relaxed),
        in_flight_ns: meter.in_flight_ns(),
        in_flight_launches: u64::from(meter.in_flight_launches()),
    }
}

/// The word at `offset`, 0 beyond the end.
pub(crate) fn word(bytes: &[u8], offset: usize) -> u64 {
    bytes.get(offset..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

pub(super) fn half(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}
