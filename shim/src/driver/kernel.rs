//! System calls without the C library, for code that runs inside `dlsym`. Another library may define the C library's
//! functions too, and may ask `dlsym` for the real ones when it is called.

use core::arch::asm;
use core::ffi::{CStr, c_long};
use core::mem::MaybeUninit;

/// A system call with up to four arguments; the result, or the negated error (syscall(2)).
///
/// # Safety
/// As the system call of this number asks.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn call(number: c_long, arguments: [usize; 4]) -> c_long {
    let [first, second, third, fourth] = arguments;
    let result: c_long;
    // SAFETY: the kernel's convention on this architecture; it changes the result and these two registers.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// A system call with up to four arguments; the result, or the negated error (syscall(2)).
///
/// # Safety
/// As the system call of this number asks.
#[cfg(target_arch = "aarch64")]
#[inline]
unsafe fn call(number: c_long, arguments: [usize; 4]) -> c_long {
    let [first, second, third, fourth] = arguments;
    let result: c_long;
    // SAFETY: the kernel's convention on this architecture; it changes the result alone.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") first => result,
            in("x1") second,
            in("x2") third,
            in("x3") fourth,
            options(nostack),
        );
    }
    result
}

/// Lets another thread run (sched_yield(2)).
pub(crate) fn yield_now() {
    // SAFETY: takes nothing.
    unsafe { call(libc::SYS_sched_yield, [0; 4]) };
}

/// Sleeps for `ns`, less than a second, or until a signal (nanosleep(2)).
pub(crate) fn nap(ns: c_long) {
    let nap = libc::timespec { tv_sec: 0, tv_nsec: ns };
    // SAFETY: a valid time; what is left of an interrupted nap is not asked for.
    unsafe { call(libc::SYS_nanosleep, [(&raw const nap) as usize, 0, 0, 0]) };
}

/// The whole words of a file's beginning, as far as `buffer` has room. Empty if the file cannot be opened or read.
pub(crate) fn read_file<'b>(path: &CStr, buffer: &'b mut [MaybeUninit<usize>]) -> &'b [usize] {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC).cast_unsigned() as usize;
    let at = (libc::AT_FDCWD as isize).cast_unsigned();
    // SAFETY: the path ends in a null.
    let opened = unsafe { call(libc::SYS_openat, [at, path.as_ptr() as usize, flags, 0]) };
    let Ok(file) = usize::try_from(opened) else {
        return &[];
    };
    let (start, bytes) = (buffer.as_mut_ptr() as usize, size_of_val(buffer));
    // SAFETY: the buffer is as long as said, and ours to write.
    let read = unsafe { call(libc::SYS_read, [file, start, bytes, 0]) };
    // SAFETY: opened above, used no more.
    unsafe { call(libc::SYS_close, [file, 0, 0, 0]) };
    let words = usize::try_from(read).unwrap_or(0) / size_of::<usize>();
    // SAFETY: the kernel has filled this many words, at most as many as there are.
    unsafe { core::slice::from_raw_parts(buffer.as_ptr().cast(), words) }
}
