//! Reports why calls reached the driver without the shim: once in the log, and in the identity record, which `vcuda
//! doctor` reads. Memory that is taken past the shim is charged all the same, once measured, as overhead.

use core::sync::atomic::{AtomicU64, Ordering};
use std::fs;

use crate::driver::bypass::{Bypass, met};
use crate::driver::elf;
use crate::driver::objects;
use crate::driver::real::Library;
use crate::runtime::shim::Shim;

/// Bit of a namespace, which matters once a driver is loaded there. Until then it is met and not reported.
const NAMESPACE: u64 = Bypass::Namespace.bit();

/// Reports the bypasses met since the last call. If the program opened another namespace, looks in `/proc` for a
/// driver there.
#[inline]
pub(crate) fn report(shim: &'static Shim) {
    let news = met() & !shim.reported_bypasses.load(Ordering::Relaxed);
    if news & NAMESPACE != 0 && is_driver_loaded_twice() {
        report_new(shim, news);
    } else {
        report_known(shim);
    }
}

/// As [`report`], but leaves a namespace to that: for frequent callers.
#[inline]
pub(crate) fn report_known(shim: &'static Shim) {
    let known = met() & !NAMESPACE;
    let news = known & !shim.reported_bypasses.load(Ordering::Relaxed);
    if news != 0 {
        report_new(shim, news);
    }
}

#[cold]
fn report_new(shim: &'static Shim, news: u64) {
    let told = shim.reported_bypasses.fetch_or(news, Ordering::Relaxed);
    let is_past = Bypass::of_word(news).any(Bypass::is_past_the_shim);
    // A process without a slot takes one only for a bypass that an operator should know.
    if let Some(slot) = if is_past { shim.slot() } else { shim.claimed() } {
        slot.tell_bypasses(told | news);
    }
    for reason in Bypass::of_word(news & !told) {
        let outcome = if reason.is_past_the_shim() { "past the shim" } else { "the driver alone answered" };
        shim.log(format_args!("{}: {outcome}", reason.words()));
    }
}

/// Private tables of the driver that were asked for, by a digest of their id: each is reported once. NVIDIA's own
/// libraries fetch some at every start, so they are no sign of a way past the shim.
static TABLES: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Whether this table was not asked for before, as far as is remembered.
pub(crate) fn is_new_table(id: &[u8; 16]) -> bool {
    let [first, second] = [0, 8]
        .map(|at| id.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |half| u64::from_ne_bytes(*half)));
    let key = first.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(second).max(1);
    for place in &TABLES {
        match place.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(there) if there == key => return false,
            Err(_) => {}
        }
    }
    false
}

/// Whether the driver's file is mapped from its beginning more than once: each namespace has a copy of its own.
fn is_driver_loaded_twice() -> bool {
    let soname = Library::Cuda.soname();
    // A front of the driver has its name, and no functions.
    let is_it = |object: &elf::Object<'_>| object.is_named(soname) && object.symbol(c"cuInit").is_some();
    let Some(base) = objects::find(|object| is_it(object).then(|| object.base())) else {
        return false;
    };
    let Ok(maps) = fs::read(vcuda_region::process::own_file("maps")) else {
        return false;
    };
    let maps = String::from_utf8_lossy(&maps);
    let beginnings = || maps.lines().filter_map(Beginning::parse);
    let driver = beginnings().find(|one| one.address == base);
    driver.is_some_and(|driver| beginnings().filter(|one| one.file == driver.file).count() > 1)
}

/// A mapping of a file's beginning.
struct Beginning<'a> {
    address: usize,
    /// Device and inode.
    file: (&'a str, &'a str),
}

impl<'a> Beginning<'a> {
    /// The mapping in a line of `/proc/PID/maps`: range, permissions, offset, device, inode (proc(5)).
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (start, _) = words.next()?.split_once('-')?;
        let offset = words.nth(1)?;
        let file = (words.next()?, words.next()?);
        let is_beginning = offset.bytes().all(|digit| digit == b'0') && file.1 != "0";
        is_beginning.then_some(Self { address: usize::from_str_radix(start, 16).ok()?, file })
    }
}
