//! Start, end, and waits of threads and processes.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use libc::{
    c_int, idtype_t, nfds_t, pid_t, pollfd, pthread_attr_t, pthread_t, rusage, siginfo_t, sigset_t, timespec,
};
use vcuda_clock::{Table, Thread, Waited, kernel};

use crate::part::{Part, begin_thread, end_process, end_thread, part};
use crate::signal::signal_self;
use crate::time::{ns_of, small};

/// Interval at which a wait for descriptors polls them (ns, virtual).
const ASK_NS: u64 = 5_000_000;
/// Size of a signal set as the kernel expects it (bytes).
const SIGNALS_BYTES: usize = 8;

/// A signed number as a register value for the kernel.
#[expect(clippy::cast_sign_loss, reason = "a register has no sign")]
fn register(number: c_int) -> usize {
    number as usize
}

type Body = extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Body, *mut c_void) -> c_int;
type Kill = unsafe extern "C" fn(pthread_t, c_int) -> c_int;
type Join = unsafe extern "C" fn(pthread_t, *mut *mut c_void) -> c_int;

/// Address of libc's own function of this name, cached in `cell`.
fn next(name: &CStr, cell: &AtomicUsize) -> usize {
    let known = cell.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // SAFETY: a terminated name.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }.expose_provenance();
    cell.store(found, Ordering::Relaxed);
    found
}

fn real_create() -> Create {
    static CELL: AtomicUsize = AtomicUsize::new(0);
    let address = core::ptr::with_exposed_provenance::<()>(next(c"pthread_create", &CELL));
    // SAFETY: libc has this function, of this type.
    unsafe { core::mem::transmute::<*const (), Create>(address) }
}

fn real_join() -> Join {
    static CELL: AtomicUsize = AtomicUsize::new(0);
    let address = core::ptr::with_exposed_provenance::<()>(next(c"pthread_join", &CELL));
    // SAFETY: libc has this function, of this type.
    unsafe { core::mem::transmute::<*const (), Join>(address) }
}

fn real_kill() -> Kill {
    static CELL: AtomicUsize = AtomicUsize::new(0);
    let address = core::ptr::with_exposed_provenance::<()>(next(c"pthread_kill", &CELL));
    // SAFETY: libc has this function, of this type.
    unsafe { core::mem::transmute::<*const (), Kill>(address) }
}

/// Start function of a new thread, and its identity.
struct Start {
    body: Body,
    argument: *mut c_void,
    table: &'static Table,
    thread: Thread,
}

extern "C" fn run(start: *mut c_void) -> *mut c_void {
    // SAFETY: made by `pthread_create` below for this thread alone.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    let Start { body, argument, table, thread } = *start;
    begin_thread(table, thread);
    note_end();
    body(argument)
}

/// Registers [`end_thread`] to be called when the calling thread ends.
fn note_end() {
    static KEY: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn ended(_: *mut c_void) {
        end_thread();
    }
    let mut key = KEY.load(Ordering::Acquire);
    if key == 0 {
        let mut made = 0;
        // SAFETY: the destructor stays loaded as long as the process.
        unsafe { libc::pthread_key_create(&raw mut made, Some(ended)) };
        // Only the thread that has the turn gets here.
        key = made as usize + 1;
        KEY.store(key, Ordering::Release);
    }
    let key = libc::pthread_key_t::try_from(key - 1).unwrap_or(0);
    // SAFETY: a key of ours; the value only has to differ from null.
    unsafe { libc::pthread_setspecific(key, (&raw const KEY).cast()) };
}

/// pthread_create(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    id: *mut pthread_t,
    attributes: *const pthread_attr_t,
    body: Body,
    argument: *mut c_void,
) -> c_int {
    let Part::Takes(table, _) = part() else {
        // SAFETY: the caller's promise.
        return unsafe { real_create()(id, attributes, body, argument) };
    };
    let Some(thread) = table.enter(std::process::id()) else {
        return libc::EAGAIN;
    };
    let start = Box::into_raw(Box::new(Start { body, argument, table, thread }));
    // SAFETY: the caller's promise; the thread takes `start` over.
    let status = unsafe { real_create()(id, attributes, run, start.cast()) };
    if status == 0 {
        // SAFETY: written by libc.
        table.call(thread, unsafe { *id });
    } else {
        // SAFETY: no thread took it.
        drop(unsafe { Box::from_raw(start) });
        table.leave(thread);
    }
    status
}

/// Waits for an event outside of virtual time, if the calling thread takes part in it.
fn outside<R>(wait: impl FnOnce() -> R) -> R {
    match part() {
        Part::Takes(table, thread) => table.outside(thread, wait),
        _ => wait(),
    }
}

/// pthread_join(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_join(id: pthread_t, value: *mut *mut c_void) -> c_int {
    if let Part::Takes(table, thread) = part() {
        table.await_end(thread, std::process::id(), id);
    }
    // SAFETY: the caller's promise.
    unsafe { real_join()(id, value) }
}

/// wait4(2)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wait4(pid: pid_t, status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t {
    let arguments = [register(pid), status.addr(), register(options), usage.addr(), 0, 0];
    // SAFETY: the caller's promise.
    outside(|| small(unsafe { kernel::call(libc::SYS_wait4, arguments) }))
}

/// waitpid(2)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waitpid(pid: pid_t, status: *mut c_int, options: c_int) -> pid_t {
    // SAFETY: the caller's promise.
    unsafe { wait4(pid, status, options, core::ptr::null_mut()) }
}

/// waitid(2)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waitid(
    kind: idtype_t,
    id: libc::id_t,
    found: *mut siginfo_t,
    options: c_int,
) -> c_int {
    let arguments = [kind as usize, id as usize, found.addr(), register(options), 0, 0];
    // SAFETY: the caller's promise.
    outside(|| small(unsafe { kernel::call(libc::SYS_waitid, arguments) }))
}

/// poll(2). A call that does not wait takes no time.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(descriptors: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int {
    let arguments = [descriptors.addr(), usize::try_from(count).unwrap_or(0), register(timeout_ms), 0, 0, 0];
    // SAFETY: the caller's promise.
    let ask = || small(unsafe { kernel::call(libc::SYS_poll, arguments) });
    if timeout_ms == 0 { ask() } else { outside(ask) }
}

/// ppoll(2). A wait sleeps in virtual time, and polls each [`ASK_NS`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    descriptors: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    signals: *const sigset_t,
) -> c_int {
    let ask = |timeout: *const timespec| {
        let count = usize::try_from(count).unwrap_or(0);
        let arguments = [descriptors.addr(), count, timeout.addr(), signals.addr(), SIGNALS_BYTES, 0];
        // SAFETY: the caller's promise; the kernel may write the time that is left into a copy of the timeout.
        small(unsafe { kernel::call(libc::SYS_ppoll, arguments) })
    };
    // SAFETY: the caller's promise.
    let Some(wait) = (unsafe { timeout.as_ref() }).copied() else {
        return outside(|| ask(timeout));
    };
    let Part::Takes(table, thread) = part() else {
        return ask(&raw const wait);
    };
    let end_ns = table.now_ns().saturating_add(ns_of(&wait));
    loop {
        let at_once = timespec { tv_sec: 0, tv_nsec: 0 };
        let found = ask(&raw const at_once);
        let now_ns = table.now_ns();
        if found != 0 || now_ns >= end_ns {
            return found;
        }
        if let Waited::Interrupted(signal) =
            table.sleep_until(thread, end_ns.min(now_ns.saturating_add(ASK_NS)))
        {
            signal_self(signal as usize, 0);
            return small(-(libc::EINTR as isize));
        }
    }
}

/// raise(3). A stop signal is announced to virtual time first.
#[unsafe(no_mangle)]
pub extern "C" fn raise(signal: c_int) -> c_int {
    let own = std::process::id();
    if let (Part::Takes(table, thread), libc::SIGSTOP) = (part(), signal) {
        let mut sent = Ok(());
        table.stop_self(thread, own, || sent = kernel::signal(own, signal));
        return c_int::from(sent.is_err());
    }
    small(signal_self(register(signal), 0))
}

/// pthread_kill(3) of a thread of this process. In virtual time the signal comes as the thread waits, or at its next wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_kill(id: pthread_t, signal: c_int) -> c_int {
    if let (Part::Takes(table, thread), Ok(number)) = (part(), u32::try_from(signal)) {
        let is_known = table.interrupt(thread, std::process::id(), id, number);
        return if is_known { 0 } else { libc::ESRCH };
    }
    // SAFETY: the caller's promise.
    unsafe { real_kill()(id, signal) }
}

/// _exit(2)
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    end_process();
    loop {
        // SAFETY: ends the process.
        unsafe { kernel::call(libc::SYS_exit_group, [register(status), 0, 0, 0, 0, 0]) };
    }
}

/// _Exit(3)
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(status: c_int) -> ! {
    _exit(status)
}
