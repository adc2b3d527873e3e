//! Initialisation and device handles.

use once_cell::sync::OnceCell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use vcuda_driver_api::prelude::*;
use vcuda_machine::{Faults, FaultsWatch, GpuConfig, MAX_GPUS, Machine, MachineError};

exports! {
    nvmlInit | nvmlInit_v2 => init;
    // Flags have no effect, as GPUs need no attaching and having none is no error.
    nvmlInitWithFlags => |_| init();
    nvmlShutdown => shutdown;
}

/// The machine as this process sees it.
#[derive(Debug)]
pub(crate) struct Opened {
    /// PID of the opening process: a child of `fork` opens the machine again.
    process: u32,
    pub(crate) machine: Machine,
    /// Directory of the machine; `None`: in memory.
    directory: Option<PathBuf>,
    /// Offset from the machine's clock to the Unix epoch, for NVML's timestamps (ns).
    epoch_ns: u64,
}

/// Interval at which a hanging function checks whether the fault is over.
const HANG: std::time::Duration = std::time::Duration::from_millis(10);

/// Number of initialisations; a child of `fork` keeps it. No lock is used, as a child could inherit it locked.
static USERS: AtomicU32 = AtomicU32::new(0);
/// Bit set of GPUs that were absent, or without device file, at the first initialisation.
static ABSENT: AtomicU32 = AtomicU32::new(0);
/// The machine, opened once per process and never closed, as closing the lock file would drop the locks of the simulated
/// driver in the process.
static OPENED: AtomicPtr<Opened> = AtomicPtr::new(std::ptr::null_mut());

fn open() -> Result<&'static Opened, NvmlError> {
    let process = std::process::id();
    let known = OPENED.load(Ordering::Acquire);
    // SAFETY: null, or a leaked box that was published with release ordering.
    let opened = unsafe { known.as_ref() };
    if let Some(opened) = opened.filter(|opened| opened.process == process) {
        return Ok(opened);
    }
    let directory = vcuda_machine::machine_directory();
    let machine = Machine::open_or_create(&directory).map_err(|error| refused(&error))?;
    let opened = Opened::of(machine, Some(directory));
    // If another thread was faster, its machine is used. This one is dropped; its lock file is the same descriptor.
    match OPENED.compare_exchange(known, opened, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            // SAFETY: just published; never freed from here on.
            Ok(unsafe { &*opened })
        }
        Err(faster) => {
            // SAFETY: the box just made, not published.
            drop(unsafe { Box::from_raw(opened) });
            // SAFETY: a leaked box that another thread of this process has published.
            Ok(unsafe { &*faster })
        }
    }
}

impl Opened {
    fn of(machine: Machine, directory: Option<PathBuf>) -> *mut Opened {
        let epoch_ns = epoch_ns().saturating_sub(machine.now_ns());
        Box::into_raw(Box::new(Opened { process: std::process::id(), machine, directory, epoch_ns }))
    }

    /// A time of the machine's clock (ns) as NVML's microseconds since 1970.
    pub(crate) fn timestamp_us(&self, machine_ns: u64) -> u64 {
        (self.epoch_ns + machine_ns) / 1000
    }

    /// The time of the machine's clock (ns) up to which a caller has seen all samples.
    pub(crate) fn seen_ns(&self, timestamp_us: u64) -> u64 {
        // A timestamp is rounded down, so all samples within its microsecond count as seen.
        timestamp_us.saturating_add(1).saturating_mul(1000).saturating_sub(self.epoch_ns + 1)
    }

    /// A watch of the faults' file, if the machine has one and the system has an inotify instance left.
    pub(crate) fn watch_faults(&self) -> Option<FaultsWatch> {
        FaultsWatch::new(self.directory.as_deref()?).ok()
    }

    /// Present faults of the GPUs. Blocks while the driver hangs. Error: `NVML_ERROR_UNKNOWN` for an unreadable file,
    /// with the reason on stderr.
    pub(crate) fn faults(&self) -> Result<Faults, NvmlError> {
        loop {
            let read = self.directory.as_deref().map(Faults::read);
            let faults = read.unwrap_or_else(|| Ok(Faults::default())).map_err(|error| {
                told_once(&error);
                NvmlError::UNKNOWN
            })?;
            if !faults.hangs {
                return Ok(faults);
            }
            std::thread::sleep(HANG);
        }
    }

    /// GPUs that were present when NVML was initialised, in the machine's order.
    pub(crate) fn devices(&'static self) -> impl Iterator<Item = Device> {
        let absent = ABSENT.load(Ordering::Acquire);
        self.machine
            .config()
            .gpus
            .iter()
            .enumerate()
            .filter(move |(index, _)| absent & 1 << index == 0)
            .map(move |(index, config)| Device { opened: self, index, config })
    }
}

/// Makes this process use `machine`, as if opened from `directory`.
#[cfg(test)]
pub(crate) fn install(machine: Machine, directory: PathBuf) {
    OPENED.store(Opened::of(machine, Some(directory)), Ordering::Release);
}

fn epoch_ns() -> u64 {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since_1970.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Error for a machine that cannot be used. The reason goes to stderr once; a real library's would be in the kernel's log.
fn refused(error: &MachineError) -> NvmlError {
    told_once(error);
    NvmlError::DRIVER_NOT_LOADED
}

fn told_once(error: &MachineError) {
    static TOLD: OnceCell<()> = OnceCell::new();
    TOLD.get_or_init(|| tell(error));
}

#[expect(clippy::print_stderr, reason = "the remedy is in the message, and there is no other place for it")]
pub(crate) fn tell(error: &dyn std::error::Error) {
    eprintln!("simulated NVML: {error}");
}

pub(crate) fn init() -> nvmlReturn_t {
    let opened = open()?;
    let faults = opened.faults()?;
    if faults.driver_gone {
        return Err(NvmlError::DRIVER_NOT_LOADED);
    }
    opened.machine.start_nvml();
    // The first initialisation determines which GPUs are present, until the last shutdown (docs/hardware.md, "NVML while a
    // GPU is lost").
    if USERS.load(Ordering::Acquire) == 0 {
        let gpus = opened.machine.config().gpus.iter().enumerate();
        let absent =
            gpus.filter(|(index, gpu)| faults.absent.contains(&gpu.uuid) || !opened.machine.has_node(*index));
        ABSENT.store(absent.fold(0, |set, (index, _)| set | 1 << index), Ordering::Release);
    }
    change_users(|users| Some(users.saturating_add(1)))
}

pub(crate) fn shutdown() -> nvmlReturn_t {
    change_users(|users| users.checked_sub(1))
}

fn change_users(change: impl Fn(u32) -> Option<u32>) -> nvmlReturn_t {
    USERS
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, change)
        .map(drop)
        .map_err(|_| NvmlError::UNINITIALIZED)
}

/// The machine, for an initialised caller.
pub(crate) fn opened() -> Result<&'static Opened, NvmlError> {
    if USERS.load(Ordering::Acquire) == 0 {
        return Err(NvmlError::UNINITIALIZED);
    }
    open()
}

/// The machine, for functions that need no initialisation.
pub(crate) fn opened_early() -> Result<&'static Opened, NvmlError> {
    open()
}

/// Answer of every function that is not simulated.
pub(crate) fn not_supported() -> nvmlReturn_t {
    opened()?;
    Err(NvmlError::NOT_SUPPORTED)
}

/// A GPU that a caller named.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Device {
    pub(crate) opened: &'static Opened,
    pub(crate) index: usize,
    pub(crate) config: &'static GpuConfig,
}

/// Memory whose addresses serve as handles, so that small numbers are invalid.
static HANDLES: [u64; MAX_GPUS] = [0; MAX_GPUS];

impl Device {
    pub(crate) fn handle(self) -> nvmlDevice_t {
        nvmlDevice_t(HANDLES.as_ptr().addr() + self.index * size_of::<u64>())
    }

    /// NVML's index: the position among the present devices.
    pub(crate) fn number(self) -> c_uint {
        let before = self.opened.devices().filter(|other| other.index < self.index);
        c_uint::try_from(before.count()).unwrap_or(c_uint::MAX)
    }

    /// The device itself. Error: `NVML_ERROR_GPU_IS_LOST` if it has fallen off the bus, as NVIDIA documents for nearly
    /// every function that takes or returns a device.
    pub(crate) fn unless_lost(self) -> Result<Device, NvmlError> {
        let faults = self.opened.faults()?;
        // After a forced removal of the driver no device answers (docs/hardware.md, "NVML while a GPU is lost").
        if faults.driver_gone || faults.lost.contains(&self.config.uuid) {
            Err(NvmlError::GPU_IS_LOST)
        } else {
            Ok(self)
        }
    }
}

/// The device of a handle. Errors: `NVML_ERROR_UNINITIALIZED`; `NVML_ERROR_INVALID_ARGUMENT` for an invalid handle;
/// `NVML_ERROR_GPU_IS_LOST`.
pub(crate) fn device(handle: nvmlDevice_t) -> Result<Device, NvmlError> {
    let found = find(|device| device.handle() == handle).map_err(|error| match error {
        NvmlError::NOT_FOUND => NvmlError::INVALID_ARGUMENT,
        other => other,
    });
    found?.unless_lost()
}

/// Writes a value that is the same for all devices.
pub(crate) fn constant<T>(handle: nvmlDevice_t, target: *mut T, value: T) -> nvmlReturn_t {
    device(handle)?;
    crate::answer::put(target, value)
}

/// The first device that satisfies `fits`.
pub(crate) fn find(fits: impl Fn(&Device) -> bool) -> Result<Device, NvmlError> {
    opened()?.devices().find(fits).ok_or(NvmlError::NOT_FOUND)
}
