//! The shim's state, built at the first use of a GPU, and what it does when there are no limits (I11).
//!
//! A process is *managed* if `/etc/vcuda` is a directory or `VCUDA_DIR` is set. A managed process whose limits are
//! missing or damaged gets no GPU memory. A process that is not managed is left alone.

use core::fmt::Arguments;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use vcuda_driver_api::prelude::CUcontext;
use vcuda_region::limits::Limits;
use vcuda_region::process::{Identity, ProcessView};
use vcuda_region::slots::{RELEASED_AFTER_NS, Slot, Usage};
use vcuda_region::{DeviceIndex, clock, directory};

use crate::compute;
use crate::compute::Launches;
use crate::driver::Bypass;
use crate::hooks::green::Greens;
use crate::memory::allocations::Allocations;
use crate::memory::exported::Exported;
use crate::memory::graph_memory::Executables;
use crate::memory::mappings::Mappings;
use crate::memory::overhead::Overhead;
use crate::memory::pool_accounts::PoolAccounts;
use crate::runtime::bypass;
use crate::runtime::capture;
use crate::runtime::config::Config;
use crate::runtime::devices::{self, Device, Devices};
use crate::runtime::fork;
use crate::runtime::log;
use crate::runtime::registration::Haste;
use crate::runtime::threads::Threads;
use crate::runtime::worker;

/// Values of the word (see [`fork::word`]) that are no pointer to a [`Shim`].
const UNBUILT: usize = 0;
const BUILDING: usize = 1;
const PASSES: usize = 2;

/// How old may be what an answer about memory rests on (I8: the dead count for a second at most).
const LOOK_EVERY_NS: u64 = 250_000_000;
/// How old may be what is known of `limits` when memory is asked for and nobody said that they have changed.
const FOLLOW_EVERY_NS: u64 = 10_000_000;

/// The state of a managed process.
#[derive(Debug)]
pub(crate) struct Shim {
    /// What the environment says.
    pub(crate) config: Config,
    /// What is allocated.
    pub(crate) allocations: Allocations,
    /// Physical memory that the application maps itself.
    pub(crate) mappings: Mappings,
    /// Memory that was given away as descriptors.
    pub(crate) exported: Exported,
    /// What the driver holds for pools and graphs.
    pub(crate) pool_accounts: PoolAccounts,
    /// The executable graphs that allocate memory.
    pub(crate) graphs: Executables,
    /// The contexts that this process made, and where.
    pub(crate) contexts: Mutex<HashMap<CUcontext, &'static Device>>,
    /// Green contexts.
    pub(crate) greens: Mutex<Greens>,
    /// What the driver itself takes.
    pub(crate) overhead: Overhead,
    /// Our own threads.
    pub(crate) threads: Threads,
    /// How launches are metered; made at the first one that is.
    pub(crate) launches: OnceCell<Option<Launches>>,
    identity: OnceCell<Identity>,
    looked_ns: AtomicU64,
    /// When the driver has released what processes had that were seen to be dead (ns); 0: of none.
    released_ns: AtomicU64,
    look_again_ns: AtomicU64,
    /// The bits of the bypasses that were told of this process ([`bypass::tell`]).
    pub(crate) told_bypasses: AtomicU64,
    devices: Devices,
    region: Result<Region, String>,
    slot: OnceCell<Slot<'static>>,
}

/// The container's two files.
#[derive(Debug)]
pub(crate) struct Region {
    /// What it may use.
    pub(crate) limits: Limits,
    /// What it uses.
    pub(crate) usage: &'static Usage,
    pub(crate) directory: PathBuf,
    memory_ceiling_bytes: u64,
}

impl Region {
    /// The limit of a device in bytes, lowered by the environment; 0 if the limits are damaged.
    #[inline]
    pub(crate) fn memory_limit_bytes(&self, device: DeviceIndex) -> u64 {
        self.limits
            .memory_limit_bytes(device)
            .unwrap_or(0)
            .min(self.memory_ceiling_bytes)
    }

    /// Before memory is asked for: takes over what `limits` say if they have changed, or might have.
    #[inline]
    pub(crate) fn follow(&'static self) {
        compute::follow_if_due(self, FOLLOW_EVERY_NS, coarse_ns());
    }
}

impl Shim {
    fn new(config: Config, region: Result<Region, String>) -> &'static Self {
        Box::leak(Box::new(Self {
            config,
            allocations: Allocations::new(),
            mappings: Mappings::default(),
            exported: Exported::default(),
            pool_accounts: PoolAccounts::default(),
            graphs: Executables::default(),
            contexts: Mutex::default(),
            greens: Mutex::default(),
            overhead: Overhead::default(),
            threads: Threads::default(),
            launches: OnceCell::new(),
            identity: OnceCell::new(),
            looked_ns: AtomicU64::new(0),
            released_ns: AtomicU64::new(0),
            look_again_ns: AtomicU64::new(0),
            told_bypasses: AtomicU64::new(0),
            devices: Devices::new(),
            region,
            slot: OnceCell::new(),
        }))
    }

    /// A process without usable limits.
    #[cfg(test)]
    pub(crate) fn for_tests() -> &'static Self {
        Self::new(Config::default(), Err("a test".to_owned()))
    }

    /// The container's files; nothing if they cannot be used.
    #[inline]
    pub(crate) fn region(&self) -> Option<&Region> {
        self.region.as_ref().ok()
    }

    /// Why this process gets no GPU memory, if its limits are missing or damaged.
    pub(crate) fn closed(&self) -> Option<&str> {
        self.region.as_ref().err().map(String::as_str)
    }

    /// This process's slot, taken when first needed; nothing while none is free.
    #[inline]
    pub(crate) fn slot(&'static self) -> Option<&'static Slot<'static>> {
        match self.slot.get() {
            Some(slot) => Some(slot),
            None => self.claim(),
        }
    }

    #[cold]
    fn claim(&'static self) -> Option<&'static Slot<'static>> {
        let region = self.region()?;
        self.slot
            .get_or_try_init(|| {
                let me = self.identity().ok_or("/proc cannot be read")?;
                let slot = region.usage.claim(me).map_err(|error| error.to_string())?;
                worker::start();
                Ok(slot)
            })
            .map_err(|why: String| self.log(format_args!("no slot: {why}")))
            .ok()
    }

    /// This process's slot, if it has one already.
    pub(crate) fn claimed(&self) -> Option<&Slot<'static>> {
        self.slot.get()
    }

    /// Clears the slots of processes that have died.
    #[cold]
    pub(crate) fn reap(&'static self, view: impl Fn(Identity) -> ProcessView) {
        if let (Some(region), Some(me)) = (self.region(), self.identity()) {
            let due_in_ns = region.usage.reap_dead(&view(*me)).due_in_ns;
            // A brief look does not see all the dead that a thorough one has seen: it takes nothing back.
            if due_in_ns > 0 {
                let due_ns = clock::now_ns() + due_in_ns;
                self.released_ns.store(due_ns, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.identity.get_or_try_init(Identity::current).ok()
    }

    /// Before an answer about memory, or a refusal: ends what descriptors kept and no longer keep, and what the dead had once
    /// the driver has released it.
    #[inline]
    pub(crate) fn settle_released(&'static self, region: &Region) {
        // A thread that captures does not wait (I5).
        let may_wait = !capture::any_open();
        if self.released_ns.load(Ordering::Relaxed) != 0 && may_wait {
            self.await_release();
        }
        self.exported.settle(region.usage, may_wait);
    }

    /// Waits until the driver has released what dead processes had: a moment ([`vcuda_region::slots::RELEASED_AFTER_NS`]) at most.
    #[cold]
    fn await_release(&'static self) {
        let due_ns = self.released_ns.swap(0, Ordering::Relaxed);
        let left_ns = due_ns.saturating_sub(clock::now_ns()).min(RELEASED_AFTER_NS);
        std::thread::sleep(Duration::from_nanos(left_ns));
        // Thoroughly: some of the dead are of PID namespaces that cannot be seen.
        self.reap(ProcessView::new);
    }

    /// Takes over what `limits` say.
    #[cold]
    fn follow(&'static self) {
        if let Some(region) = self.region() {
            compute::follow(region, clock::now_ns());
        }
    }

    /// Before an answer about memory: looks around if nobody in this process has for a while, so that neither the dead
    /// count nor what the driver gave back long ago.
    #[inline]
    pub(crate) fn look_if_due(&'static self) {
        if compute::have_limits_changed() {
            self.follow();
        }
        let now_ns = coarse_ns();
        if now_ns.saturating_sub(self.looked_ns.load(Ordering::Relaxed)) > LOOK_EVERY_NS {
            self.looked_ns.store(now_ns, Ordering::Relaxed);
            self.look_around();
        }
    }

    /// Looks before somebody is refused: thoroughly if that is due, and else for those only that have just ended. A
    /// process that is refused all the time spends a tenth of it here at most: some microseconds for each of its
    /// neighbours, and then ten times as long without a look.
    #[cold]
    pub(crate) fn look(&'static self) {
        bypass::tell(self);
        let looked_ns = self.looked_ns.load(Ordering::Relaxed);
        self.look_if_due();
        let began_ns = clock::now_ns();
        let is_due = began_ns >= self.look_again_ns.load(Ordering::Relaxed);
        if is_due && self.looked_ns.load(Ordering::Relaxed) == looked_ns {
            self.reap(ProcessView::brief);
            let now_ns = clock::now_ns();
            let pause_ns = (10 * (now_ns - began_ns)).min(LOOK_EVERY_NS);
            self.look_again_ns.store(now_ns + pause_ns, Ordering::Relaxed);
        }
    }

    /// Clears the dead, measures the driver's own use.
    #[cold]
    fn look_around(&'static self) {
        bypass::tell_known(self);
        self.follow();
        self.reap(ProcessView::new);
        self.follow_overhead(Haste::Later);
    }

    /// Measures the driver's own use on the devices that this process has used.
    pub(crate) fn follow_overhead(&'static self, haste: Haste) {
        for device in self.devices.used().filter(|device| device.grant.is_some()) {
            self.overhead.follow(device, haste);
        }
    }

    /// The devices that this process has used.
    pub(crate) fn devices(&self) -> &Devices {
        &self.devices
    }

    /// The device of this ordinal; nothing if the driver knows none.
    #[inline]
    pub(crate) fn device(&'static self, ordinal: i32) -> Option<&'static Device> {
        self.devices.get(self, ordinal)
    }

    /// The device of the calling thread's context; nothing without one.
    #[inline]
    pub(crate) fn current_device(&'static self) -> Option<&'static Device> {
        self.devices.of_current(self, devices::current_context())
    }

    /// Says something in the log, if there is one.
    #[cold]
    pub(crate) fn log(&self, words: Arguments<'_>) {
        log::line(self.config.log.as_deref(), words);
    }
}

/// Whether no limit applies to this process, as far as is known already.
#[inline]
pub(crate) fn passes() -> bool {
    fork::word().load(Ordering::Relaxed) == PASSES
}

/// The state, built by the first call; nothing in a process that is not managed.
#[inline]
pub(crate) fn get() -> Option<&'static Shim> {
    managed().ok()
}

/// As [`get`], for handlers: `?` leaves the call to the driver where no limit applies.
///
/// # Errors
/// [`Bypass::NoLimit`]: the process is not managed.
#[inline]
pub(crate) fn managed() -> Result<&'static Shim, Bypass> {
    // Pairs with the store in `build`.
    match fork::word().load(Ordering::Acquire) {
        PASSES => Err(Bypass::NoLimit),
        UNBUILT | BUILDING => build().ok_or(Bypass::NoLimit),
        pointer => Ok(at(pointer)),
    }
}

/// The state, if it has been built; nothing is built for the question.
#[inline]
pub(crate) fn built() -> Option<&'static Shim> {
    match fork::word().load(Ordering::Acquire) {
        PASSES | UNBUILT | BUILDING => None,
        pointer => Some(at(pointer)),
    }
}

fn at(pointer: usize) -> &'static Shim {
    // SAFETY: the word is one of the three constants, or came from a leaked box in `build`.
    unsafe { &*(pointer as *const Shim) }
}

/// Builds the state, or waits for the thread that does. That takes no lock that a fork could leave held: a child finds
/// the word 0. A signal handler that comes here on the building thread is inside a hook and went straight to the driver.
#[cold]
fn build() -> Option<&'static Shim> {
    // CUDA does not live on in such a child, and nothing is to be counted until the driver says that it does. State would
    // have to be built with a heap that may be locked for ever.
    if fork::is_raw_child() && !devices::is_driver_initialised() {
        return None;
    }
    fork::forget_in_children();
    let word = fork::word();
    loop {
        match word.compare_exchange(UNBUILT, BUILDING, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => break,
            Err(BUILDING) => std::thread::yield_now(),
            Err(PASSES) => return None,
            Err(pointer) => return Some(at(pointer)),
        }
    }
    // A panic of ours prints nothing.
    std::panic::set_hook(Box::new(|_| {}));
    let undo = Undo;
    let shim = find();
    core::mem::forget(undo);
    let value = shim
        .as_ref()
        .map_or(PASSES, |shim| core::ptr::from_ref::<Shim>(shim) as usize);
    word.store(value, Ordering::Release);
    fork::built();
    shim
}

/// Should building panic, the next call tries again.
struct Undo;

impl Drop for Undo {
    fn drop(&mut self) {
        fork::word().store(UNBUILT, Ordering::Release);
    }
}

/// The time to a few milliseconds, which costs less than the exact one.
#[inline]
fn coarse_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes the time here.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    #[expect(clippy::cast_sign_loss, reason = "the monotonic clock is never negative")]
    let (seconds, rest) = (time.tv_sec as u64, time.tv_nsec as u64);
    seconds * 1_000_000_000 + rest
}

/// Finds the limits that apply.
fn find() -> Option<&'static Shim> {
    let config = Config::from_environment();
    let managed = Path::new(directory::MANAGED);
    let region = match directory::resolve(config.directory.as_deref()) {
        Some(directory) => open(&directory, &config),
        None if managed.is_dir() => Err(format!("{} has no limits", managed.display())),
        None => {
            log::line(
                config.log.as_deref(),
                format_args!("not managed: every call goes to the driver"),
            );
            return None;
        }
    };
    let shim = Shim::new(config, region);
    describe(shim);
    Some(shim)
}

fn open(directory: &Path, config: &Config) -> Result<Region, String> {
    let limits = Limits::open(directory).map_err(|error| error.to_string())?;
    let usage = Usage::open(directory).map_err(|error| error.to_string())?;
    Ok(Region {
        limits,
        usage: Box::leak(Box::new(usage)),
        directory: directory.to_owned(),
        memory_ceiling_bytes: config.memory_limit_bytes.unwrap_or(u64::MAX),
    })
}

fn describe(shim: &Shim) {
    for name in &shim.config.rejected {
        shim.log(format_args!("{name} is no size or percentage: ignored"));
    }
    match &shim.region {
        Err(why) => shim.log(format_args!("no GPU memory: {why}")),
        Ok(region) => {
            for (index, uuid) in region.limits.devices() {
                let bytes = region.memory_limit_bytes(index);
                shim.log(format_args!(
                    "tenant {}: {bytes} bytes on {uuid}",
                    region.limits.name()
                ));
            }
        }
    }
}
