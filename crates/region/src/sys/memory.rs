//! Memory of processes, read by the kernel: what is not there is an error and no fault.

use std::io;

use super::thread_id;

/// Copies `size` bytes of this process's memory. If they cannot be read, as beyond the end of a mapped file, that is
/// an error and no fault.
///
/// # Safety
/// `to` is valid for writing `size` bytes.
///
/// # Errors
/// Fails if not all of them can be read, or if the kernel, or a filter of system calls, lacks the call
/// (process_vm_readv(2)).
pub(crate) unsafe fn copy_own(from: *const u8, to: *mut u8, size: usize) -> io::Result<()> {
    // The thread's number, not the process's: once the main thread has ended, the kernel finds no memory under that
    // one.
    let me = thread_id();
    // SAFETY: the caller's word.
    unsafe { copy_of(me, from, to, size) }
}

/// `size` bytes of another process's memory from `address` on.
///
/// # Errors
/// As [`copy_own`]; and without the rights of ptrace(2) over the process.
pub(crate) fn memory_of(pid: libc::pid_t, address: usize, size: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; size];
    // SAFETY: `bytes` has this size.
    unsafe { copy_of(pid, core::ptr::without_provenance(address), bytes.as_mut_ptr(), size) }?;
    Ok(bytes)
}

/// # Safety
/// `to` is valid for writing `size` bytes.
unsafe fn copy_of(pid: libc::pid_t, from: *const u8, to: *mut u8, size: usize) -> io::Result<()> {
    let (from, to) = (
        libc::iovec { iov_base: from.cast_mut().cast(), iov_len: size },
        libc::iovec { iov_base: to.cast(), iov_len: size },
    );
    // SAFETY: the caller's word that `to` may be written; the kernel itself checks that `from` may be read.
    let copied = unsafe { libc::process_vm_readv(pid, &raw const to, 1, &raw const from, 1, 0) };
    match usize::try_from(copied) {
        Ok(copied) if copied == size => Ok(()),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}
