//! The one [`Shim`] of the process: found, or built by the first call that needs it.

use core::ffi::CStr;
use core::sync::atomic::Ordering;
use std::path::Path;

use vcuda_region::clock;
use vcuda_region::directory;
use vcuda_region::limits::Limits;
use vcuda_region::slots::Usage;

use super::{MemorySide, Region, Shim};
use crate::driver::{Bypass, objects};
use crate::runtime::config::Config;
use crate::runtime::fork;
use crate::runtime::heap;
use crate::runtime::log;
use crate::runtime::shim::devices;
use crate::runtime::suspend;
use crate::runtime::threads::SignalsBlocked;

/// Values of the word (see [`fork::word`]) that are no pointer to a [`Shim`].
const UNBUILT: usize = 0;
const BUILDING: usize = 1;
const PASSES: usize = 2;

/// Whether no limit applies to this process, as far as is known.
#[inline]
pub(crate) fn passes() -> bool {
    fork::word().load(Ordering::Relaxed) == PASSES
}

/// The state, built by the first call with the memory side that `memory` makes. `?` leaves a handler's call to the driver if
/// no limit applies.
///
/// # Errors
/// [`Bypass::NoLimit`]: the process is not managed.
#[inline]
pub(crate) fn managed(memory: fn() -> &'static dyn MemorySide) -> Result<&'static Shim, Bypass> {
    // Pairs with the store in `build`.
    match fork::word().load(Ordering::Acquire) {
        PASSES => Err(Bypass::NoLimit),
        UNBUILT | BUILDING => build(memory).ok_or(Bypass::NoLimit),
        pointer => Ok(at(pointer)),
    }
}

/// The state, if it has been built. Builds nothing.
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

/// Builds the state, or waits for the thread that does. The wait takes no lock that a fork could leave held: a child
/// finds the word 0. The building thread runs no signal handler meanwhile, which would wait for its own thread.
#[cold]
fn build(memory: fn() -> &'static dyn MemorySide) -> Option<&'static Shim> {
    // CUDA does not work in such a child unless the driver says that it does, and nothing is counted until then. The
    // state would have to be built with a heap that may be locked for ever.
    if fork::is_raw_child() && !devices::is_driver_initialised() {
        return None;
    }
    fork::forget_in_children();
    let word = fork::word();
    let _blocked = SignalsBlocked::begin();
    loop {
        match word.compare_exchange(UNBUILT, BUILDING, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => break,
            Err(BUILDING) => std::thread::yield_now(),
            Err(PASSES) => return None,
            Err(pointer) => return Some(at(pointer)),
        }
    }
    clock::follow_host();
    // A panic of the shim prints nothing.
    std::panic::set_hook(Box::new(|_| {}));
    let undo = Undo;
    let shim = find(memory);
    core::mem::forget(undo);
    let value = shim.as_ref().map_or(PASSES, |shim| core::ptr::from_ref::<Shim>(shim) as usize);
    suspend::decide(shim);
    word.store(value, Ordering::Release);
    fork::built();
    shim
}

/// Resets the word if building panics, so that the next call tries again.
struct Undo;

impl Drop for Undo {
    fn drop(&mut self) {
        fork::word().store(UNBUILT, Ordering::Release);
    }
}

/// Finds the limits of this process, and makes its state.
fn find(memory: fn() -> &'static dyn MemorySide) -> Option<&'static Shim> {
    let config = Config::from_environment();
    if objects::is_in_other_namespace() {
        // The program's own copy charges what is taken here, as overhead: two would charge it twice.
        return None;
    }
    let managed = Path::new(directory::MANAGED);
    let region = match directory::resolve(config.directory.as_deref()) {
        Some(directory) => open(&directory, &config),
        None if managed.is_dir() => Err(format!("{} has no limits", managed.display())),
        None => {
            log::line(config.log.as_deref(), format_args!("not managed: every call goes to the driver"));
            return None;
        }
    };
    let shim = Shim::new(config, region, memory());
    describe(shim);
    Some(shim)
}

fn open(directory: &Path, config: &Config) -> Result<Region, String> {
    if !heap::make_reserve() {
        return Err("no memory for its records".to_owned());
    }
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
                shim.log(format_args!("tenant {}: {bytes} bytes on {uuid}", region.limits.name()));
            }
        }
    }
}

/// Starts a detached thread of the shim with this name (15 bytes at most). Returns `false` if the system gives none, or if
/// no state is built.
pub(crate) fn start_thread(name: &'static CStr, body: fn()) -> bool {
    built().is_some_and(|shim| shim.threads.start(name, body))
}
