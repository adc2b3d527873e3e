//! What `cuInit` makes: this process's place on the simulated machine.
//!
//! Everything else lives in tables beside its type (`context::CONTEXTS`, `module::MODULES`, ...).

use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use vcuda_driver_api::{CUerror, CUresult};
use vcuda_machine::{Client, Machine, MachineError};

use crate::device::Device;

/// This process on the machine.
#[derive(Debug)]
pub(crate) struct Process {
    /// The machine of `VCUDA_SIM`.
    pub(crate) machine: Machine,
    /// This process's presence on it.
    pub(crate) client: Client,
    /// What `CUDA_VISIBLE_DEVICES` lets it see, by ordinal.
    pub(crate) devices: Vec<Device>,
}

/// Null until `cuInit` has succeeded, and again in a child after `fork`. Never freed: threads and exit
/// handlers of the application may call until the very end.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(core::ptr::null_mut());
/// Set in a child that was forked after `cuInit`.
static FORKED: AtomicBool = AtomicBool::new(false);
static INITIALISING: Mutex<()> = Mutex::new(());

/// The initialised process.
///
/// # Errors
/// `CUDA_ERROR_NOT_INITIALIZED` before `cuInit`, and in a child forked after it (CUDA does not survive
/// `fork`; the code is what driver 550 was seen to return).
#[inline]
pub(crate) fn process() -> Result<&'static Process, CUerror> {
    let process = PROCESS.load(Ordering::Acquire);
    // SAFETY: null, or a leaked box published by `initialise` with release ordering.
    unsafe { process.as_ref() }.ok_or(CUerror::NOT_INITIALIZED)
}

/// `cuInit`'s work; a second call finds it done.
///
/// # Errors
/// `CUDA_ERROR_NO_DEVICE` without a visible GPU, `CUDA_ERROR_NOT_INITIALIZED` in a forked child,
/// `CUDA_ERROR_SYSTEM_NOT_READY` where the machine's directory cannot be used (assumed).
pub(crate) fn initialise() -> CUresult {
    let _one_at_a_time = INITIALISING.lock();
    if FORKED.load(Ordering::Relaxed) {
        return Err(CUerror::NOT_INITIALIZED);
    }
    if process().is_ok() {
        return Ok(());
    }
    let machine = machine()?.clone();
    let devices = crate::device::visible(&machine);
    if devices.is_empty() {
        return Err(CUerror::NO_DEVICE);
    }
    let client = machine.attach(std::process::id(), &own_name()).map_err(refused)?;
    // SAFETY: the handler only stores to atomics, which is allowed in a forked child.
    unsafe { libc::pthread_atfork(None, None, Some(forget_in_child)) };
    let process = Box::leak(Box::new(Process {
        machine,
        client,
        devices,
    }));
    PROCESS.store(process, Ordering::Release);
    Ok(())
}

/// The machine, opened at the first call that needs to know it.
fn machine() -> Result<&'static Machine, CUerror> {
    static MACHINE: OnceCell<Machine> = OnceCell::new();
    MACHINE.get_or_try_init(|| Machine::open_or_create(&vcuda_machine::machine_directory()).map_err(refused))
}

/// What `cuDriverGetVersion` says, before `cuInit` too; the default's where the machine cannot be used.
pub(crate) fn cuda_version() -> i32 {
    let version = machine().map(|machine| machine.config().cuda_version);
    version
        .ok()
        .and_then(|version| i32::try_from(version).ok())
        .unwrap_or(12040)
}

/// A real driver that cannot work says why in the kernel's log; this one on the standard error, once.
#[expect(
    clippy::print_stderr,
    reason = "the remedy is in the message, and there is no other place for it"
)]
fn refused(error: MachineError) -> CUerror {
    eprintln!("simulated CUDA driver: {error}");
    CUerror::SYSTEM_NOT_READY
}

/// This process's name, as the kernel knows it.
fn own_name() -> String {
    std::fs::read("/proc/self/comm")
        .map(|name| String::from_utf8_lossy(&name).trim().to_owned())
        .unwrap_or_default()
}

/// Runs in a child after `fork`.
extern "C" fn forget_in_child() {
    if !PROCESS.swap(core::ptr::null_mut(), Ordering::Relaxed).is_null() {
        FORKED.store(true, Ordering::Relaxed);
    }
}
