//! `limits` that is cut under processes that may not call `process_vm_readv`, as under older container runtimes. They read the
//! mapped file itself.

use std::fs::OpenOptions;
use std::io;
use std::mem::offset_of;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::Command;
use std::time::Duration;

use vcuda_tests::{Commanded, Door, Fixture, MIB, Tenant, app, eventually, succeeded};

use super::{CONTEXT, QUOTA, SMALL_CONTEXTS};

/// Has the kernel refuse `process_vm_readv` to the command's process (seccomp(2)).
fn forbid_copies(command: &mut Command) -> &mut Command {
    // SAFETY: the child calls only prctl.
    unsafe { command.pre_exec(filter) }
}

fn filter() -> io::Result<()> {
    let line = |code: u32, jump_if_false, k| libc::sock_filter {
        code: u16::try_from(code).unwrap_or(0),
        jt: 0,
        jf: jump_if_false,
        k,
    };
    let number = u32::try_from(offset_of!(libc::seccomp_data, nr)).unwrap_or(0);
    let forbidden = u32::try_from(libc::SYS_process_vm_readv).unwrap_or(0);
    let refusal = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    let mut lines = [
        line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, number),
        line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, forbidden),
        line(libc::BPF_RET | libc::BPF_K, 0, refusal),
        line(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: lines.as_mut_ptr() };
    // SAFETY: no pointers.
    let is_kept = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0;
    // SAFETY: a program of this length, which the kernel copies.
    let is_set = is_kept
        && unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) } == 0;
    if is_set { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn start(tenant: &Tenant<'_>) -> Commanded {
    Commanded::start(forbid_copies(&mut tenant.command(app("obey", Door::Dlsym))))
}

#[test]
fn limits_that_are_cut_end_processes_that_cannot_copy_them() {
    let fixture = Fixture::with_config(SMALL_CONTEXTS);
    let [victim, bystander] = ["victim", "bystander"].map(|name| fixture.keep(name, &QUOTA));
    let mut inside = [start(&victim), start(&victim)];
    let mut outside = start(&bystander);
    // A whole file is followed as usual.
    let set = fixture.vcuda(["set", "victim", "--memory", "128MiB"]).output();
    succeeded(&set.unwrap());
    eventually("the new limit", Duration::from_secs(2), || inside[0].info().1 == 128 * MIB);
    inside[0].fills_to_the_byte();
    let limits = victim.directory().join("limits");
    OpenOptions::new().write(true).open(limits).unwrap().set_len(0).unwrap();
    for process in &mut inside {
        eventually("it ends", Duration::from_secs(2), || process.alloc(1).is_none());
        assert_eq!(process.0.finish().signal(), Some(libc::SIGBUS));
    }
    outside.fills_to_the_byte();
    eventually("their memory is free", Duration::from_secs(1), || fixture.used_bytes() == CONTEXT);
}
