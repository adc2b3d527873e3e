//! A signal to the calling thread.

use vcuda_clock::kernel;

/// Sends the calling thread a signal, whose handler has run on return (tgkill(2)). Returns the kernel's answer.
pub(crate) fn signal_self(signal: usize) -> isize {
    // SAFETY: no arguments.
    let number = unsafe { kernel::call(libc::SYS_gettid, [0; 6]) };
    let arguments = [std::process::id() as usize, number.unsigned_abs(), signal, 0, 0, 0];
    // SAFETY: no pointers.
    unsafe { kernel::call(libc::SYS_tgkill, arguments) }
}
