//! Initialisation and device handles.

use once_cell::sync::OnceCell;
use std::ffi::c_uint;
use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use vcuda_driver_api::nvml::nvmlDevice_t;
use vcuda_driver_api::{NvmlError, nvmlReturn_t};
use vcuda_machine::{Faults, FaultsWatch, GpuConfig, MAX_GPUS, Machine, MachineError};

/// The machine as this process sees it.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The process that opened it: a child of `fork` opens it again.
    process: u32,
    pub(crate) machine: Machine,
    /// Where it lies; none: in memory.
    directory: Option<PathBuf>,
    /// Nanoseconds from the machine's clock to the time since 1970, which NVML's timestamps count.
    epoch_ns: u64,
}

/// Interval at which a hanging function looks whether it still hangs.
const HANG: std::time::Duration = std::time::Duration::from_millis(10);

/// Counted initialisations; a child of `fork` keeps the count. No lock: a child could find it taken for ever.
static USERS: AtomicU32 = AtomicU32::new(0);
/// GPUs that were not there, or had no device file, at the first initialisation, a bit each.
static ABSENT: AtomicU32 = AtomicU32::new(0);
/// The machine, opened once per process and never closed: closing the lock file would drop the locks of the
/// simulated driver in the same process.
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
    // Another thread may have been faster: then its machine is used and this one is let go, whose lock file is the
    // same descriptor.
    match OPENED.compare_exchange(known, opened, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            // SAFETY: just published; never freed from here on.
            Ok(unsafe { &*opened })
        }
        Err(faster) => {
            // SAFETY: the box just made, which no other code has seen.
            drop(unsafe { Box::from_raw(opened) });
            // SAFETY: a leaked box that another thread of this process has published.
            Ok(unsafe { &*faster })
        }
    }
}

impl Opened {
    fn of(machine: Machine, directory: Option<PathBuf>) -> *mut Opened {
        let epoch_ns = epoch_ns().saturating_sub(machine.now_ns());
        Box::into_raw(Box::new(Opened {
            process: std::process::id(),
            machine,
            directory,
            epoch_ns,
        }))
    }

    /// A moment of the machine's clock (ns) as NVML gives it: microseconds since 1970.
    pub(crate) fn timestamp_us(&self, machine_ns: u64) -> u64 {
        (self.epoch_ns + machine_ns) / 1000
    }

    /// The moment of the machine's clock (ns) up to which a caller has seen everything.
    pub(crate) fn seen_ns(&self, timestamp_us: u64) -> u64 {
        // A timestamp has lost its last digits: what ended within its microsecond has been seen.
        timestamp_us
            .saturating_add(1)
            .saturating_mul(1000)
            .saturating_sub(self.epoch_ns + 1)
    }

    /// A watch of the faults' file, if the machine has one and the system has an inotify instance left.
    pub(crate) fn watch_faults(&self) -> Option<FaultsWatch> {
        FaultsWatch::new(self.directory.as_deref()?).ok()
    }

    /// Faults of the GPUs until now. While the driver hangs, this does not return.
    ///
    /// # Errors
    /// `NVML_ERROR_UNKNOWN` for a file that cannot be read, which the standard error tells more of.
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

    /// The GPUs that were there when NVML was initialised, in NVML's order, which is the machine's.
    pub(crate) fn devices(&'static self) -> impl Iterator<Item = Device> {
        let absent = ABSENT.load(Ordering::Acquire);
        self.machine
            .config()
            .gpus
            .iter()
            .enumerate()
            .filter(move |(index, _)| absent & 1 << index == 0)
            .map(move |(index, config)| Device {
                opened: self,
                index,
                config,
            })
    }
}

/// Makes this process use `machine`, as if it lay in `directory`.
#[cfg(test)]
pub(crate) fn install(machine: Machine, directory: PathBuf) {
    OPENED.store(Opened::of(machine, Some(directory)), Ordering::Release);
}

fn epoch_ns() -> u64 {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since_1970.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// A real library that cannot work leaves the reason in the kernel's log; this one tells the standard error, once.
fn refused(error: &MachineError) -> NvmlError {
    told_once(error);
    NvmlError::DRIVER_NOT_LOADED
}

fn told_once(error: &MachineError) {
    static TOLD: OnceCell<()> = OnceCell::new();
    TOLD.get_or_init(|| tell(error));
}

#[expect(
    clippy::print_stderr,
    reason = "the remedy is in the message, and there is no other place for it"
)]
fn tell(error: &MachineError) {
    eprintln!("simulated NVML: {error}");
}

/// `nvmlInit`, `nvmlInit_v2`.
pub(crate) fn init() -> nvmlReturn_t {
    init_with_flags(0)
}

/// Flags change nothing here: the machine's GPUs need no attaching, and none is an error.
pub(crate) fn init_with_flags(_flags: c_uint) -> nvmlReturn_t {
    let opened = open()?;
    let faults = opened.faults()?;
    if faults.driver_gone {
        return Err(NvmlError::DRIVER_NOT_LOADED);
    }
    opened.machine.start_nvml();
    // Which GPUs there are is found out by the first initialisation and stays until the last shutdown
    // (docs/hardware.md, "NVML while a GPU is lost").
    if USERS.load(Ordering::Acquire) == 0 {
        let gpus = opened.machine.config().gpus.iter().enumerate();
        let absent =
            gpus.filter(|(index, gpu)| faults.absent.contains(&gpu.uuid) || !opened.machine.has_node(*index));
        ABSENT.store(
            absent.fold(0, |set, (index, _)| set | 1 << index),
            Ordering::Release,
        );
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

/// The machine, for the few functions that need no initialisation.
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

/// Handles are addresses in here, so that no small number is one by accident.
static HANDLES: [u64; MAX_GPUS] = [0; MAX_GPUS];

impl Device {
    pub(crate) fn handle(self) -> nvmlDevice_t {
        nvmlDevice_t(HANDLES.as_ptr().addr() + self.index * size_of::<u64>())
    }

    /// NVML's index: its place among those that are there.
    pub(crate) fn number(self) -> c_uint {
        let before = self.opened.devices().filter(|other| other.index < self.index);
        c_uint::try_from(before.count()).unwrap_or(c_uint::MAX)
    }

    /// Itself.
    ///
    /// # Errors
    /// `NVML_ERROR_GPU_IS_LOST` for one that has fallen off the bus, as NVIDIA documents for nearly every function that
    /// takes a device or hands one out.
    pub(crate) fn unless_lost(self) -> Result<Device, NvmlError> {
        let faults = self.opened.faults()?;
        // A driver that was taken away by force leaves no device that answers (docs/hardware.md, "NVML while a GPU is
        // lost").
        if faults.driver_gone || faults.lost.contains(&self.config.uuid) {
            Err(NvmlError::GPU_IS_LOST)
        } else {
            Ok(self)
        }
    }
}

/// The device of a handle.
///
/// # Errors
/// `NVML_ERROR_UNINITIALIZED`; `NVML_ERROR_INVALID_ARGUMENT` for what is no handle; `NVML_ERROR_GPU_IS_LOST`.
pub(crate) fn device(handle: nvmlDevice_t) -> Result<Device, NvmlError> {
    let found = find(|device| device.handle() == handle).map_err(|error| match error {
        NvmlError::NOT_FOUND => NvmlError::INVALID_ARGUMENT,
        other => other,
    });
    found?.unless_lost()
}

/// The first device that fits.
///
/// # Errors
/// `NVML_ERROR_UNINITIALIZED`; `NVML_ERROR_NOT_FOUND`.
pub(crate) fn find(fits: impl Fn(&Device) -> bool) -> Result<Device, NvmlError> {
    opened()?.devices().find(fits).ok_or(NvmlError::NOT_FOUND)
}
