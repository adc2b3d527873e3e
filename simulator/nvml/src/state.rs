//! Initialisation and device handles.

use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use std::ffi::c_uint;
use vcuda_driver_api::nvml::nvmlDevice_t;
use vcuda_driver_api::{NvmlError, nvmlReturn_t};
use vcuda_machine::{GpuConfig, MAX_GPUS, Machine, MachineError};

/// The machine as this process sees it.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The process that opened it: a child of `fork` opens it again.
    process: u32,
    pub(crate) machine: Machine,
    /// Nanoseconds from the machine's clock to the time since 1970, which NVML's timestamps count.
    epoch_ns: u64,
}

/// Counted initialisations, and the machine. It is opened once per process and never closed: closing the lock file
/// would drop the locks of the simulated driver in the same process.
static STATE: Mutex<State> = Mutex::new(State {
    users: 0,
    opened: None,
});

struct State {
    users: u32,
    opened: Option<&'static Opened>,
}

impl State {
    fn open(&mut self) -> Result<&'static Opened, NvmlError> {
        let process = std::process::id();
        if let Some(opened) = self.opened.filter(|opened| opened.process == process) {
            return Ok(opened);
        }
        let machine = Machine::open_or_create(&vcuda_machine::machine_directory()).map_err(refused)?;
        let epoch_ns = epoch_ns().saturating_sub(machine.now_ns());
        let opened = &*Box::leak(Box::new(Opened {
            process,
            machine,
            epoch_ns,
        }));
        self.opened = Some(opened);
        Ok(opened)
    }
}

impl Opened {
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

    /// The GPUs, in NVML's order, which is the machine's.
    pub(crate) fn devices(&'static self) -> impl Iterator<Item = Device> {
        self.machine
            .config()
            .gpus
            .iter()
            .enumerate()
            .map(move |(index, config)| Device {
                opened: self,
                index,
                config,
            })
    }
}

/// Makes this process use `machine`, as if its directory had been opened.
#[cfg(test)]
pub(crate) fn install(machine: Machine) {
    let epoch_ns = epoch_ns().saturating_sub(machine.now_ns());
    let opened = Opened {
        process: std::process::id(),
        machine,
        epoch_ns,
    };
    STATE.lock().opened = Some(Box::leak(Box::new(opened)));
}

fn epoch_ns() -> u64 {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since_1970.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// A real library that cannot work leaves the reason in the kernel's log; this one tells the standard error, once.
fn refused(error: MachineError) -> NvmlError {
    static TOLD: OnceCell<()> = OnceCell::new();
    TOLD.get_or_init(|| tell(&error));
    NvmlError::DRIVER_NOT_LOADED
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
    let mut state = STATE.lock();
    state.open()?;
    state.users = state.users.saturating_add(1);
    Ok(())
}

pub(crate) fn shutdown() -> nvmlReturn_t {
    let mut state = STATE.lock();
    state.users = state.users.checked_sub(1).ok_or(NvmlError::UNINITIALIZED)?;
    Ok(())
}

/// The machine, for an initialised caller.
pub(crate) fn opened() -> Result<&'static Opened, NvmlError> {
    let mut state = STATE.lock();
    if state.users == 0 {
        return Err(NvmlError::UNINITIALIZED);
    }
    state.open()
}

/// The machine, for the few functions that need no initialisation.
pub(crate) fn opened_early() -> Result<&'static Opened, NvmlError> {
    STATE.lock().open()
}

/// What every function answers that is not simulated.
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

    /// NVML's index, which is the minor number too.
    pub(crate) fn number(self) -> c_uint {
        c_uint::try_from(self.index).unwrap_or(c_uint::MAX)
    }
}

/// The device of a handle.
///
/// # Errors
/// `NVML_ERROR_UNINITIALIZED`; `NVML_ERROR_INVALID_ARGUMENT` for what is no handle.
pub(crate) fn device(handle: nvmlDevice_t) -> Result<Device, NvmlError> {
    find(|device| device.handle() == handle).map_err(|error| match error {
        NvmlError::NOT_FOUND => NvmlError::INVALID_ARGUMENT,
        other => other,
    })
}

/// The first device that fits.
///
/// # Errors
/// `NVML_ERROR_UNINITIALIZED`; `NVML_ERROR_NOT_FOUND`.
pub(crate) fn find(fits: impl Fn(&Device) -> bool) -> Result<Device, NvmlError> {
    opened()?.devices().find(fits).ok_or(NvmlError::NOT_FOUND)
}
