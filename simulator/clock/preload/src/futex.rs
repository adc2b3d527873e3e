//! Replacement of `syscall`: futexes in virtual time; all other calls go to the kernel.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::io::Read as _;

use libc::{c_int, c_long, clockid_t, timespec};
use vcuda_clock::{FutexKey, Table, Thread, Waited, kernel};

use crate::part::{Part, part};
use crate::signal::signal_self;
use crate::time::{answer, ns_of, table_ns, timespec_of};

/// syscall(2). Arguments beyond those of the call have undefined values, and are passed on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    if number == libc::SYS_futex {
        let result = match part() {
            Part::Takes(table, thread) => futex(table, thread, a, b, c, d, f),
            Part::LooksOn(table) => {
                wake_those_inside(table, a, b, c, f);
                really_wait(table, a, b, c, d, f)
            }
            Part::None => None,
        };
        if let Some(result) = result {
            return answer(result) as c_long;
        }
    }
    // SAFETY: the caller's promise.
    answer(unsafe { kernel::call(number, [a, b, c, d, e, f]) }) as c_long
}

/// A wait until a time, of a thread that only reads virtual time: it lasts as long in real time. `None` for other calls.
fn really_wait(
    table: &'static Table,
    word: usize,
    operation: usize,
    value: usize,
    time: usize,
    mask: usize,
) -> Option<isize> {
    let asked = c_int::try_from(operation & 0xffff_ffff).ok()?;
    let is_any = mask & 0xffff_ffff == u32::MAX as usize;
    if asked & libc::FUTEX_CMD_MASK != libc::FUTEX_WAIT_BITSET || !is_any {
        return None;
    }
    let until_ns = table_ns(table, clock_of(asked), ns_at(time)?);
    // Its time is a duration.
    let wait = libc::FUTEX_WAIT | asked & libc::FUTEX_PRIVATE_FLAG;
    let left = timespec_of(until_ns.saturating_sub(table.now_ns()));
    let arguments = [word, usize::try_from(wait).ok()?, value, (&raw const left).addr(), 0, 0];
    // SAFETY: the caller's own word; `left` outlives the call, which only reads it.
    Some(unsafe { kernel::call(libc::SYS_futex, arguments) })
}

/// Wakes the waiters in virtual time, too, for a thread that only reads it.
fn wake_those_inside(table: &'static Table, word: usize, operation: usize, value: usize, mask: usize) {
    let Ok(operation) = c_int::try_from(operation & 0xffff_ffff) else {
        return;
    };
    let mask = match operation & libc::FUTEX_CMD_MASK {
        libc::FUTEX_WAKE => u32::MAX as usize,
        libc::FUTEX_WAKE_BITSET => mask & 0xffff_ffff,
        _ => return,
    };
    let (mask, count) = (u32::try_from(mask), u32::try_from(value & 0xffff_ffff));
    // The process itself has no waiters there.
    if let (0, Ok(mask), Ok(count)) = (operation & libc::FUTEX_PRIVATE_FLAG, mask, count)
        && let Some((file, place)) = file_at(word / PAGE * PAGE)
    {
        table.wake_from_outside(key_in(file, place, word), mask, count);
    }
}

/// Clock that a wait goes by.
fn clock_of(operation: c_int) -> clockid_t {
    if operation & libc::FUTEX_CLOCK_REALTIME == 0 { libc::CLOCK_MONOTONIC } else { libc::CLOCK_REALTIME }
}

/// Answers a futex call in virtual time (futex(2)); `None` for operations that no program here uses.
fn futex(
    table: &'static Table,
    thread: Thread,
    word: usize,
    operation: usize,
    value: usize,
    time: usize,
    mask: usize,
) -> Option<isize> {
    let operation = c_int::try_from(operation & 0xffff_ffff).ok()?;
    let value = u32::try_from(value & 0xffff_ffff).ok()?;
    let key = || key_of(word, operation & libc::FUTEX_PRIVATE_FLAG != 0);
    let everyone = u32::MAX;
    let mask = u32::try_from(mask & 0xffff_ffff).ok()?;
    match operation & libc::FUTEX_CMD_MASK {
        libc::FUTEX_WAIT => {
            let until_ns = ns_at(time).map(|ns| table.now_ns().saturating_add(ns));
            Some(wait(table, thread, word, key(), value, everyone, until_ns))
        }
        libc::FUTEX_WAIT_BITSET => {
            let until_ns = ns_at(time).map(|ns| table_ns(table, clock_of(operation), ns));
            Some(wait(table, thread, word, key(), value, mask, until_ns))
        }
        libc::FUTEX_WAKE => isize::try_from(table.wake(thread, key(), everyone, value)).ok(),
        libc::FUTEX_WAKE_BITSET => isize::try_from(table.wake(thread, key(), mask, value)).ok(),
        _ => None,
    }
}

fn wait(
    table: &'static Table,
    thread: Thread,
    word: usize,
    key: FutexKey,
    value: u32,
    mask: u32,
    until_ns: Option<u64>,
) -> isize {
    let word = core::ptr::with_exposed_provenance::<AtomicU32>(word);
    // SAFETY: a waiter keeps the word mapped until it is woken.
    let is_changed = || unsafe { &*word }.load(Ordering::SeqCst) != value;
    match table.wait_on(thread, key, mask, until_ns, is_changed) {
        Waited::Woken => 0,
        Waited::Changed => -(libc::EAGAIN as isize),
        Waited::TimedOut => -(libc::ETIMEDOUT as isize),
        Waited::Interrupted(signal) => {
            signal_self(signal as usize, word.addr());
            -(libc::EINTR as isize)
        }
    }
}

/// The time at an address (ns); `None` for a null pointer.
fn ns_at(address: usize) -> Option<u64> {
    let time = core::ptr::with_exposed_provenance::<timespec>(address);
    // SAFETY: null, or a time that the caller lets the kernel read.
    unsafe { time.as_ref() }.map(ns_of)
}

const PAGE: usize = 4096;
/// Cache of pages whose file is known: page number, file, offset. Only accessed by the thread that has the turn.
static KNOWN: [[AtomicU64; 3]; 16] = [const { [const { AtomicU64::new(0) }; 3] }; 16];

/// Key of the word across processes. A page that has a futex keeps its mapping.
fn key_of(word: usize, is_private: bool) -> FutexKey {
    let private = FutexKey { space: u64::from(std::process::id()), place: word as u64 };
    if is_private {
        return private;
    }
    let page = word / PAGE;
    #[expect(clippy::indexing_slicing, reason = "taken modulo the length")]
    let [known_page, file, place] = &KNOWN[page % KNOWN.len()];
    if known_page.load(Ordering::Relaxed) != page as u64 {
        let (found_file, found_place) = file_at(page * PAGE).unwrap_or((0, 0));
        file.store(found_file, Ordering::Relaxed);
        place.store(found_place, Ordering::Relaxed);
        known_page.store(page as u64, Ordering::Relaxed);
    }
    match file.load(Ordering::Relaxed) {
        0 => private,
        file => key_in(file, place.load(Ordering::Relaxed), word),
    }
}

/// Key of a word in a page that lies at `place` in `file`.
fn key_in(file: u64, place: u64, word: usize) -> FutexKey {
    FutexKey { space: file | 1 << 63, place: place + (word % PAGE) as u64 }
}

/// The file of a shared mapping at an address, and the offset in it (proc_pid_maps(5)).
fn file_at(address: usize) -> Option<(u64, u64)> {
    let mut maps = String::new();
    std::fs::File::open("/proc/self/maps").ok()?.read_to_string(&mut maps).ok()?;
    maps.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let from = usize::from_str_radix(from, 16).ok()?;
        let to = usize::from_str_radix(to, 16).ok()?;
        let is_shared = words.next()?.ends_with('s');
        let offset = u64::from_str_radix(words.next()?, 16).ok()?;
        let (major, minor) = words.next()?.split_once(':')?;
        let device = u64::from_str_radix(major, 16).ok()? << 8 | u64::from_str_radix(minor, 16).ok()?;
        let inode: u64 = words.next()?.parse().ok()?;
        let is_it = (from..to).contains(&address) && is_shared && inode != 0;
        is_it.then(|| ((device << 40) ^ inode, offset + (address - from) as u64))
    })
}
