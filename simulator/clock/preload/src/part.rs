//! Whether this process takes part in a world, and as which of its threads.

use core::cell::Cell;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use vcuda_clock::{ENV_TABLE, ENV_TABLE_FROZEN, Table, Thread};

/// No thread has looked yet.
const UNKNOWN: u8 = 0;
/// A thread looks.
const LOOKING: u8 = 1;
/// Real time.
const NONE: u8 = 2;
/// Virtual time is read and costs nothing.
const LOOKS_ON: u8 = 3;
const TAKES_PART: u8 = 4;

static ROLE: AtomicU8 = AtomicU8::new(UNKNOWN);
static TABLE: AtomicPtr<Table> = AtomicPtr::new(core::ptr::null_mut());

/// No entry yet: one is made when the thread is first seen.
const NEW: u32 = u32::MAX;
/// The thread has given its entry up, and is about to end.
const ENDED: u32 = u32::MAX - 1;

thread_local! {
    static THREAD: Cell<u32> = const { Cell::new(NEW) };
}

/// Part of the calling thread in a world.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    /// Nothing: real time.
    None,
    /// It reads virtual time.
    LooksOn(&'static Table),
    /// It takes part.
    Takes(&'static Table, Thread),
}

/// Part of the calling thread.
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

/// The calling thread is `thread` from now on, and waits for its turn.
pub(crate) fn begin_thread(table: &'static Table, thread: Thread) {
    THREAD.set(thread.number());
    table.await_turn(thread);
}

/// The calling thread is about to end.
pub(crate) fn end_thread() {
    if let Part::Takes(table, thread) = part() {
        THREAD.set(ENDED);
        table.leave(thread);
    }
}

/// This process is about to end: from here on it only reads the time.
pub(crate) fn end_process() {
    if let Part::Takes(table, _) = part() {
        ROLE.store(LOOKS_ON, Ordering::Release);
        table.end_process(std::process::id());
    }
}

/// In a child after fork(2): it is a thread of its own, and waits for its turn when it is first seen.
extern "C" fn forked() {
    if let Part::Takes(table, _) = part() {
        THREAD.set(table.enter(std::process::id()).map_or(ENDED, Thread::number));
    }
}

extern "C" fn at_exit() {
    end_process();
}

/// Finds out what this process is.
fn begin() -> u8 {
    if ROLE
        .compare_exchange(UNKNOWN, LOOKING, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
    {
        return NONE;
    }
    let (role, table) = match (table_of(ENV_TABLE), table_of(ENV_TABLE_FROZEN)) {
        (Some(table), _) => (TAKES_PART, Some(table)),
        (None, Some(table)) => (LOOKS_ON, Some(table)),
        (None, None) => (NONE, None),
    };
    if let Some(table) = table {
        TABLE.store(core::ptr::from_ref(table).cast_mut(), Ordering::Release);
    }
    ROLE.store(role, Ordering::Release);
    if let (TAKES_PART, Some(table)) = (role, table) {
        // SAFETY: the handler stays loaded as long as the process.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        // SAFETY: as above.
        unsafe { libc::atexit(at_exit) };
        // Who became this program by execve(2) keeps its place, and the turn if it had it.
        let pid = std::process::id();
        if let Some(thread) = table.adopt(pid).or_else(|| table.enter(pid)) {
            begin_thread(table, thread);
        }
    }
    role
}

/// The table that a variable names.
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
