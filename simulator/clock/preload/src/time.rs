//! libc's clocks, sleeping and yielding in virtual time.

use libc::{c_int, c_uint, clockid_t, time_t, timespec, timeval, useconds_t};
use vcuda_clock::{Table, Thread, Waited, kernel};

use crate::part::{Part, namespace_offset_ns, part};
use crate::signal::signal_self;

const SECOND_NS: u64 = 1_000_000_000;

/// Converts the kernel's answer to libc's: sets errno and returns -1 for an error (syscall(2)).
pub(crate) fn answer(kernel: isize) -> isize {
    if !(-4095..0).contains(&kernel) {
        return kernel;
    }
    // SAFETY: the calling thread's own variable.
    let error = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *error = c_int::try_from(-kernel).unwrap_or(libc::EINVAL) };
    -1
}

pub(crate) fn small(kernel: isize) -> c_int {
    c_int::try_from(answer(kernel)).unwrap_or(-1)
}

pub(crate) fn ns_of(time: &timespec) -> u64 {
    u64::try_from(time.tv_sec).unwrap_or(0) * SECOND_NS + u64::try_from(time.tv_nsec).unwrap_or(0)
}

pub(crate) fn timespec_of(ns: u64) -> timespec {
    timespec {
        tv_sec: time_t::try_from(ns / SECOND_NS).unwrap_or(time_t::MAX),
        tv_nsec: i64::try_from(ns % SECOND_NS).unwrap_or(0),
    }
}

/// Virtual time; a thread that takes part pays for reading it.
pub(crate) fn look(part: Part) -> Option<(&'static Table, u64)> {
    match part {
        Part::None => None,
        Part::LooksOn(table) => Some((table, table.now_ns())),
        Part::Takes(table, thread) => Some((table, table.spend(thread, table.costs().look_ns))),
    }
}

/// The virtual time of a clock (ns); `None` for a clock that is not virtual.
fn virtual_ns(clock: clockid_t) -> Option<u64> {
    match clock {
        libc::CLOCK_MONOTONIC
        | libc::CLOCK_MONOTONIC_RAW
        | libc::CLOCK_MONOTONIC_COARSE
        | libc::CLOCK_BOOTTIME
        | libc::CLOCK_REALTIME
        | libc::CLOCK_REALTIME_COARSE => {
            let (table, now_ns) = look(part())?;
            Some(now_ns.saturating_add_signed(ahead_ns(table, clock)))
        }
        _ => None,
    }
}

/// By how much a clock of this process is ahead of virtual time (ns).
fn ahead_ns(table: &Table, clock: clockid_t) -> i64 {
    match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => {
            i64::try_from(table.since_1970_ns()).unwrap_or(i64::MAX)
        }
        _ => namespace_offset_ns(),
    }
}

/// The virtual time at which a clock of this process shows `ns` (ns).
pub(crate) fn table_ns(table: &Table, clock: clockid_t, ns: u64) -> u64 {
    ns.saturating_add_signed(-ahead_ns(table, clock))
}

fn really(number: i64, arguments: [usize; 4]) -> c_int {
    let [a, b, c, d] = arguments;
    // SAFETY: the caller's own arguments, to the call that it asked for.
    small(unsafe { kernel::call(number, [a, b, c, d, 0, 0]) })
}

/// clock_gettime(2)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    let Some(ns) = virtual_ns(clock) else {
        return really(libc::SYS_clock_gettime, [clock.unsigned_abs() as usize, time.addr(), 0, 0]);
    };
    // SAFETY: the caller's promise.
    unsafe { time.write(timespec_of(ns)) };
    0
}

/// gettimeofday(2)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(time: *mut timeval, zone: usize) -> c_int {
    let Some(ns) = virtual_ns(libc::CLOCK_REALTIME) else {
        return really(libc::SYS_gettimeofday, [time.addr(), zone, 0, 0]);
    };
    let parts = timespec_of(ns);
    // SAFETY: the caller's promise.
    unsafe {
        time.write(timeval { tv_sec: parts.tv_sec, tv_usec: parts.tv_nsec / 1000 });
    }
    0
}

/// time(2)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(to: *mut time_t) -> time_t {
    let mut now = timespec_of(0);
    // SAFETY: `now` can be written.
    unsafe { clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    if !to.is_null() {
        // SAFETY: the caller's promise.
        unsafe { to.write(now.tv_sec) };
    }
    now.tv_sec
}

/// Sleeps in virtual time. Returns 0, or EINTR after a signal, with the time that is left.
fn nap(table: &'static Table, thread: Thread, until_ns: u64) -> (c_int, u64) {
    match table.sleep_until(thread, until_ns) {
        Waited::Interrupted(signal) => {
            let left_ns = until_ns.saturating_sub(table.now_ns());
            signal_self(signal as usize, 0);
            (libc::EINTR, left_ns)
        }
        _ => (0, 0),
    }
}

/// Writes the time that is left (ns) where the caller wants it, if it does.
///
/// # Safety
/// `left` is null, or can be written.
unsafe fn tell_left(left: *mut timespec, left_ns: u64) {
    if !left.is_null() {
        // SAFETY: the caller's promise.
        unsafe { left.write(timespec_of(left_ns)) };
    }
}

/// nanosleep(2)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int {
    let Part::Takes(table, thread) = part() else {
        return really(libc::SYS_nanosleep, [time.addr(), left.addr(), 0, 0]);
    };
    // SAFETY: the caller's promise.
    let until_ns = table.now_ns().saturating_add(ns_of(unsafe { &*time }));
    let (error, left_ns) = nap(table, thread, until_ns);
    if error == 0 {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { tell_left(left, left_ns) };
    small(-(error as isize))
}

/// clock_nanosleep(2), which returns the error instead of setting errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    let Part::Takes(table, thread) = part() else {
        let (clock, flags) = (clock.unsigned_abs() as usize, flags.unsigned_abs() as usize);
        let arguments = [clock, flags, time.addr(), left.addr(), 0, 0];
        // SAFETY: the caller's own arguments, to the call that it asked for.
        let answer = unsafe { kernel::call(libc::SYS_clock_nanosleep, arguments) };
        return c_int::try_from(-answer).unwrap_or(libc::EINVAL);
    };
    // SAFETY: the caller's promise.
    let ns = ns_of(unsafe { &*time });
    if flags & libc::TIMER_ABSTIME != 0 {
        return nap(table, thread, table_ns(table, clock, ns)).0;
    }
    let (error, left_ns) = nap(table, thread, table.now_ns().saturating_add(ns));
    if error != 0 {
        // SAFETY: the caller's promise.
        unsafe { tell_left(left, left_ns) };
    }
    error
}

/// usleep(3)
#[unsafe(no_mangle)]
pub extern "C" fn usleep(us: useconds_t) -> c_int {
    let time = timespec_of(u64::from(us) * 1000);
    // SAFETY: `time` can be read; what is left is not asked for.
    unsafe { nanosleep(&raw const time, core::ptr::null_mut()) }
}

/// sleep(3)
#[unsafe(no_mangle)]
pub extern "C" fn sleep(seconds: c_uint) -> c_uint {
    let time = timespec_of(u64::from(seconds) * SECOND_NS);
    // SAFETY: `time` can be read; what is left is not asked for.
    unsafe { nanosleep(&raw const time, core::ptr::null_mut()) };
    0
}

/// sched_yield(2)
#[unsafe(no_mangle)]
pub extern "C" fn sched_yield() -> c_int {
    let Part::Takes(table, thread) = part() else {
        return really(libc::SYS_sched_yield, [0; 4]);
    };
    table.spend(thread, table.costs().yield_ns);
    0
}
