//! Participation of this process in a world, and the identity of its threads there.

use core::cell::Cell;
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU8, Ordering};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use vcuda_clock::{ENV_TABLE, ENV_TABLE_FROZEN, Table, Thread};

/// Not determined yet.
const UNKNOWN: u8 = 0;
/// Being determined by a thread.
const LOOKING: u8 = 1;
/// Real time.
const NONE: u8 = 2;
/// Virtual time is read, and reading costs nothing.
const LOOKS_ON: u8 = 3;
const TAKES_PART: u8 = 4;

static ROLE: AtomicU8 = AtomicU8::new(UNKNOWN);
static TABLE: AtomicPtr<Table> = AtomicPtr::new(core::ptr::null_mut());
/// What this process's time namespace adds to its clocks (ns).
static OFFSET_NS: AtomicI64 = AtomicI64::new(0);

/// The thread has no entry yet; one is made at its first call.
const NEW: u32 = u32::MAX;
/// The thread has given up its entry, and is about to end.
const ENDED: u32 = u32::MAX - 1;

thread_local! {
    static THREAD: Cell<u32> = const { Cell::new(NEW) };
}

/// Participation of the calling thread in a world.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    /// None: real time.
    None,
    /// Reads virtual time without taking part.
    LooksOn(&'static Table),
    /// Takes part.
    Takes(&'static Table, Thread),
}

/// Participation of the calling thread.
pub(crate) fn part() -> Part {
    let role = match ROLE.load(Ordering::Acquire) {
        UNKNOWN => begin(),
        role => role,
    };
    // SAFETY: null, or a mapping of a whole table that is never unmapped.
    let table = unsafe { TABLE.load(Ordering::Acquire).as_ref() };
    match (role, table) {
        (LOOKS_ON, Some(table)) => Part::LooksOn(table),
        (TAKES_PART, Some(table)) => match THREAD.get() {
            ENDED => Part::LooksOn(table),
            NEW => match table.enter(std::process::id()) {
                Some(thread) => {
                    begin_thread(table, thread);
                    Part::Takes(table, thread)
                }
                None => Part::LooksOn(table),
            },
            number => Part::Takes(table, Thread::of_number(number)),
        },
        _ => Part::None,
    }
}

/// What this process's time namespace adds to `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME` (ns): the same to both.
pub(crate) fn namespace_offset_ns() -> i64 {
    OFFSET_NS.load(Ordering::Relaxed)
}

/// Finds that offset (time_namespaces(7)), in whole seconds. unshare(2) alone moves only children, and a program that it becomes.
fn find_namespace_offset() {
    let [own, of_children] =
        ["time", "time_for_children"].map(|name| std::fs::read_link(format!("/proc/self/ns/{name}")).ok());
    let text = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let seconds = || text.split_ascii_whitespace().nth(1)?.parse::<i64>().ok();
    if own == of_children {
        OFFSET_NS.store(seconds().unwrap_or(0) * 1_000_000_000, Ordering::Relaxed);
    }
}

/// Registers the calling thread as `thread`, and waits for its turn.
pub(crate) fn begin_thread(table: &'static Table, thread: Thread) {
    THREAD.set(thread.number());
    table.await_turn(thread);
}

/// Removes the calling thread, which is about to end.
pub(crate) fn end_thread() {
    if let Part::Takes(table, thread) = part() {
        THREAD.set(ENDED);
        table.leave(thread);
    }
}

/// Removes this process, which is about to end and only reads the time from here on.
pub(crate) fn end_process() {
    if let Part::Takes(table, _) = part() {
        ROLE.store(LOOKS_ON, Ordering::Release);
        table.end_process(std::process::id());
    }
}

/// Runs in a child of fork(2): it is a new thread, and waits for its turn at its first call.
extern "C" fn forked() {
    if let Part::Takes(table, _) = part() {
        THREAD.set(table.enter(std::process::id()).map_or(ENDED, Thread::number));
    }
}

extern "C" fn at_exit() {
    end_process();
}

/// Determines the participation of this process.
fn begin() -> u8 {
    if ROLE.compare_exchange(UNKNOWN, LOOKING, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return NONE;
    }
    let (role, table) = match (table_of(ENV_TABLE), table_of(ENV_TABLE_FROZEN)) {
        (Some(table), _) => (TAKES_PART, Some(table)),
        (None, Some(table)) => (LOOKS_ON, Some(table)),
        (None, None) => (NONE, None),
    };
    if let Some(table) = table {
        find_namespace_offset();
        TABLE.store(core::ptr::from_ref(table).cast_mut(), Ordering::Release);
    }
    ROLE.store(role, Ordering::Release);
    if let (TAKES_PART, Some(table)) = (role, table) {
        // SAFETY: the handler stays loaded as long as the process.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        // SAFETY: as above.
        unsafe { libc::atexit(at_exit) };
        // A thread keeps its entry, and its turn, across execve(2).
        let pid = std::process::id();
        if let Some(thread) = table.adopt(pid).or_else(|| table.enter(pid)) {
            begin_thread(table, thread);
        }
    }
    role
}

/// The table that an environment variable names.
fn table_of(variable: &str) -> Option<&'static Table> {
    let path = std::env::var_os(variable)?;
    Table::open(Path::new(OsStr::from_bytes(path.as_bytes())))
}

extern "C" fn at_load() {
    part();
}

/// Called by the loader before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;
