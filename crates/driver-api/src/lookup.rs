//! Answers of `cuGetProcAddress`: the exported symbol that serves a base name at a CUDA version.
//!
//! Source: measured on driver 550.163.01, every name, version and flag; for signatures newer than that driver, the
//! toolkit's declarations (`data/`, and the rule in `build.rs`). CUDA Driver API, "Driver Entry Point Access".

/// Flag: stream 0 is the driver's default (the legacy stream).
pub const DEFAULT: u64 = 0;
/// Flag: stream 0 is the legacy stream.
pub const LEGACY_STREAM: u64 = 1;
/// Flag: stream 0 is the calling thread's own stream.
pub const PER_THREAD_DEFAULT_STREAM: u64 = 2;

/// The answer to a look-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The exported symbol whose address is the answer.
    Symbol(&'static str),
    /// No function has this base name. Names that carry a suffix (`cuMemAlloc_v2`) are no base names.
    NotFound,
    /// The function came with a version later than the one asked for.
    VersionTooOld,
}

struct Row {
    base: &'static str,
    flags: u8,
    /// Lowest CUDA version (such as 12040) at which this row answers.
    lowest: u32,
    symbol: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/answers.rs"));

/// The symbol for `base` in the interface of CUDA `version` (12040 is 12.4), with the flags of `cuGetProcAddress`.
///
/// A version above the driver's is accepted, as the driver accepts it. Flags other than [`LEGACY_STREAM`] and
/// [`PER_THREAD_DEFAULT_STREAM`] count as [`DEFAULT`]: the caller refuses unknown ones.
pub fn symbol_for(base: &str, version: i32, flags: u64) -> Answer {
    let flags = match flags {
        LEGACY_STREAM => 1,
        PER_THREAD_DEFAULT_STREAM => 2,
        _ => 0,
    };
    let version = u32::try_from(version).unwrap_or(0);
    let start = ANSWERS.partition_point(|row| (row.base, row.flags) < (base, flags));
    let mut answer = Answer::NotFound;
    for row in ANSWERS.iter().skip(start).take_while(|row| row.base == base && row.flags == flags) {
        if row.lowest <= version {
            answer = Answer::Symbol(row.symbol);
        } else if answer == Answer::NotFound {
            answer = Answer::VersionTooOld;
        }
    }
    answer
}

/// All base names, in order, each once.
pub fn base_names() -> impl Iterator<Item = &'static str> {
    let mut last = "";
    ANSWERS.iter().map(|row| row.base).filter(move |base| std::mem::replace(&mut last, base) != *base)
}
