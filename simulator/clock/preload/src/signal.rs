//! A signal to the calling thread.

use vcuda_clock::kernel;

/// Sends the calling thread a signal, whose handler has run on return (rt_tgsigqueueinfo(2)). `word`: the address of the futex on which
/// the thread was about to sleep, 0 for any other wait; the handler finds it in `si_value`. Returns the kernel's answer.
pub(crate) fn signal_self(signal: usize, word: usize) -> isize {
    // SAFETY: no arguments.
    let number = unsafe { kernel::call(libc::SYS_gettid, [0; 6]) };
    let process = std::process::id();
    let told = Told {
        signal: i32::try_from(signal).unwrap_or(0),
        error: 0,
        code: libc::SI_QUEUE,
        padding: 0,
        process,
        user: 0,
        word,
        rest: [0; 12],
    };
    let arguments =
        [process as usize, number.unsigned_abs(), signal, (&raw const told).expose_provenance(), 0, 0];
    // SAFETY: a structure of the kernel's size, which the call only reads.
    unsafe { kernel::call(libc::SYS_rt_tgsigqueueinfo, arguments) }
}

/// `siginfo_t` of a signal with a value (sigaction(2)): 128 bytes.
#[repr(C)]
struct Told {
    signal: i32,
    error: i32,
    code: i32,
    padding: i32,
    process: u32,
    user: u32,
    word: usize,
    rest: [usize; 12],
}
