//! This process on the simulated machine, as set up by `cuInit`.
//!
//! All other state is in tables beside its type (`context::CONTEXTS`, `module::MODULES`, ...).

use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use vcuda_driver_api::cuda::CUdevice;
use vcuda_driver_api::{CUerror, CUresult};
use vcuda_machine::{Client, Config, DriverProfile, Machine, MachineError};

use crate::base::thread::start_quietly;
use crate::object::device::Device;

/// This process on the machine.
#[derive(Debug)]
pub(crate) struct Process {
    /// The machine of `VCUDA_SIM`.
    pub(crate) machine: Machine,
    /// This process as a client of the machine.
    pub(crate) client: Client,
    /// Devices visible by `CUDA_VISIBLE_DEVICES`, by ordinal.
    pub(crate) devices: Vec<Device>,
}

/// State that a child must not inherit: a page that the kernel zeroes in it (`MADV_WIPEONFORK`, madvise(2)), after `fork`
/// and after a raw `clone`, where locks of the parent's other threads would stay locked.
#[repr(C, align(65536))]
#[derive(Debug)]
struct Page {
    /// Null until `cuInit` has succeeded. Never freed, as threads and exit handlers of the application may call until the
    /// very end.
    process: AtomicPtr<Process>,
    /// Whether this process has begun a `cuInit`.
    has_begun: AtomicBool,
}

static PAGE: Page =
    Page { process: AtomicPtr::new(core::ptr::null_mut()), has_begun: AtomicBool::new(false) };
/// Whether this process, or one that it was forked from, has begun a `cuInit` that did not fail.
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
/// Name of the thread that moves the process's state (`cuCheckpointProcessGetRestoreThreadId`).
pub(crate) const CHECKPOINT_THREAD: &str = "cuda-checkpoint";
static INITIALISING: Mutex<()> = Mutex::new(());

/// The initialised process. Errors: `CUDA_ERROR_NOT_INITIALIZED` before `cuInit`, and in a child forked after it (CUDA
/// does not survive `fork`; the code is what driver 550 was seen to return).
#[inline]
pub(crate) fn process() -> Result<&'static Process, CUerror> {
    let process = PAGE.process.load(Ordering::Acquire);
    // SAFETY: null, or a leaked box published by `initialise` with release ordering.
    unsafe { process.as_ref() }.ok_or(CUerror::NOT_INITIALIZED)
}

/// The work of `cuInit`; a second call has no effect. `prepare` reads the machine's configuration before the process
/// becomes visible to calls. Error: `CUDA_ERROR_NO_DEVICE` without a visible GPU. `CUDA_ERROR_NOT_INITIALIZED` in a
/// forked child, even of a process in its `cuInit`, and `CUDA_ERROR_SYSTEM_NOT_READY` if the machine's directory cannot
/// be used (docs/hardware.md, "start of the driver").
pub(crate) fn initialise(prepare: fn(&Config) -> Result<(), MachineError>) -> CUresult {
    if is_forked() {
        return Err(CUerror::NOT_INITIALIZED);
    }
    // Stored before the lock is taken, as a child could inherit it locked.
    begin(true);
    let _one_at_a_time = INITIALISING.lock();
    begin(true);
    if process().is_ok() {
        return Ok(());
    }
    join(prepare).inspect_err(|_| begin(false))
}

/// Whether this process was forked from one that has begun a `cuInit`.
pub(crate) fn is_forked() -> bool {
    HAS_BEGUN.load(Ordering::Acquire) && !PAGE.has_begun.load(Ordering::Acquire)
}

/// Stores the page's word first, so that this process never takes itself for a child.
fn begin(has_begun: bool) {
    if has_begun {
        forget_in_children();
        PAGE.has_begun.store(true, Ordering::Release);
        HAS_BEGUN.store(true, Ordering::Release);
    } else {
        HAS_BEGUN.store(false, Ordering::Release);
        PAGE.has_begun.store(false, Ordering::Release);
    }
}

fn join(prepare: fn(&Config) -> Result<(), MachineError>) -> CUresult {
    let machine = machine()?.clone();
    prepare(machine.config()).map_err(refused)?;
    let devices = crate::object::device::visible(&machine);
    if devices.is_empty() {
        return Err(CUerror::NO_DEVICE);
    }
    let client = machine.attach(std::process::id(), &own_name()).map_err(refused)?;
    let process: &'static Process = Box::leak(Box::new(Process { machine, client, devices }));
    if process.machine.config().driver.checkpoint_bytes_per_us > 0 {
        let serve = || process.client.serve_checkpoints(&vcuda_machine::machine_directory());
        start_quietly(CHECKPOINT_THREAD, serve).map_err(|_| CUerror::OUT_OF_MEMORY)?;
    }
    PAGE.process.store(core::ptr::from_ref(process).cast_mut(), Ordering::Release);
    Ok(())
}

/// Makes the kernel zero the page in children.
fn forget_in_children() {
    static ASKED: AtomicBool = AtomicBool::new(false);
    if ASKED.swap(true, Ordering::Relaxed) {
        return;
    }
    let page = (&raw const PAGE).cast_mut();
    // SAFETY: the page is wholly ours, private (.bss), and what it holds may become zero in a child.
    let refused = unsafe { libc::madvise(page.cast(), size_of::<Page>(), libc::MADV_WIPEONFORK) } != 0;
    if refused {
        // SAFETY: the handler only stores to atomics, which is allowed in a forked child.
        unsafe { libc::pthread_atfork(None, None, Some(forget)) };
    }
}

/// Runs in a child after `fork` where the kernel cannot wipe pages.
extern "C" fn forget() {
    PAGE.process.store(core::ptr::null_mut(), Ordering::Relaxed);
    PAGE.has_begun.store(false, Ordering::Relaxed);
}

/// The machine, opened at the first call. Error: `CUDA_ERROR_SYSTEM_NOT_READY` if its directory cannot be used.
pub(crate) fn machine() -> Result<&'static Machine, CUerror> {
    static MACHINE: OnceCell<Machine> = OnceCell::new();
    MACHINE.get_or_try_init(|| Machine::open_or_create(&vcuda_machine::machine_directory()).map_err(refused))
}

/// Behaviour of the profile's driver, available before `cuInit`. Error: `CUDA_ERROR_SYSTEM_NOT_READY` if the machine's
/// directory cannot be used (docs/hardware.md, "start of the driver").
pub(crate) fn driver() -> Result<&'static DriverProfile, CUerror> {
    Ok(&machine()?.config().driver)
}

/// Result of `cuDriverGetVersion`, available before `cuInit`; the default if the machine cannot be used.
pub(crate) fn cuda_version() -> i32 {
    let version = machine().map(|machine| machine.config().cuda_version);
    version.ok().and_then(|version| i32::try_from(version).ok()).unwrap_or(13000)
}

/// Error for a machine that cannot be used. The reason goes to stderr once; a real driver's would be in the kernel's log.
#[expect(clippy::print_stderr, reason = "the remedy is in the message, and there is no other place for it")]
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

pub(crate) fn device(ordinal: CUdevice) -> Result<&'static Device, CUerror> {
    let devices = &process()?.devices;
    usize::try_from(ordinal).ok().and_then(|index| devices.get(index)).ok_or(CUerror::INVALID_DEVICE)
}
