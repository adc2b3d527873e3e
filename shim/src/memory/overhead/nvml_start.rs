//! The start of NVML in this process, on a thread of its own.
//!
//! `nvmlInit` may take seconds while many processes start (libcudacxx issue 222: 1.6 to 12 s for 200 at once). The call
//! that makes the first context starts the thread and then waits a bounded time. If NVML is not ready by then, the
//! context is charged from another source ([`super`]), and corrected when NVML is ready. NVML is never shut down.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::Overhead;
use crate::driver::{ObjectList, objects, real};
use crate::runtime::futex;
use crate::runtime::shim;
use crate::runtime::shim::devices::Device;
use vcuda_region::clock::now_ns;

/// Longest wait of a call for NVML's start (ns).
const WAIT_MAX_NS: u64 = 250_000_000;
/// Longest wait if the manager tells, or the size of a context is known (ns): NVML will hardly say anything else.
const SHORT_WAIT_NS: u64 = 20_000_000;

/// NVML is not needed yet.
const UNUSED: u32 = 0;
/// A thread is starting NVML.
const STARTING: u32 = 1;
/// NVML is ready.
const READY: u32 = 2;
/// NVML cannot be had.
const ABSENT: u32 = 3;

/// State of NVML's start.
#[derive(Debug, Default)]
pub(super) struct Nvml {
    /// [`UNUSED`], [`STARTING`], [`READY`] or [`ABSENT`].
    state: AtomicU32,
    /// Set if a context was charged before NVML was ready.
    is_late: AtomicBool,
}

impl Nvml {
    /// Whether NVML is ready. Waits up to `wait_ns` for a start under way.
    pub(super) fn is_ready(&self, wait_ns: u64) -> bool {
        let mut until_ns = 0;
        loop {
            match self.state.load(Ordering::SeqCst) {
                STARTING => {}
                state => return state == READY,
            }
            let now_ns = now_ns();
            if until_ns == 0 {
                until_ns = now_ns.saturating_add(wait_ns);
            }
            if now_ns >= until_ns {
                return false;
            }
            futex::wait(&self.state, STARTING, until_ns - now_ns);
        }
    }

    /// Whether NVML's start is under way.
    pub(super) fn is_starting(&self) -> bool {
        self.state.load(Ordering::SeqCst) == STARTING
    }

    /// Makes the calling thread the one that starts NVML. Returns `false` if it is not the first to ask.
    fn claim_start(&self) -> bool {
        let claimed = self.state.compare_exchange(UNUSED, STARTING, Ordering::SeqCst, Ordering::SeqCst);
        claimed.is_ok()
    }

    /// Notes the outcome of a start, and wakes the threads that wait for it.
    fn set(&self, state: u32) {
        self.state.store(state, Ordering::SeqCst);
        futex::wake_all(&self.state);
    }
}

impl Overhead {
    /// Has a thread start NVML, unless that was done. If no thread can be had, the next context tries again.
    pub(super) fn start_nvml(&'static self) {
        if !self.nvml.claim_start() {
            return;
        }
        if !load() {
            self.nvml.set(ABSENT);
            return;
        }
        // Libraries clean up when the process ends, which must not meet a start. Registered after NVML was loaded, this
        // runs before NVML's own handlers.
        // SAFETY: the handler takes nothing and returns nothing.
        unsafe { libc::atexit(at_exit) };
        if !shim::start_thread(c"vcuda-nvml", run) {
            self.nvml.set(UNUSED);
        }
    }

    /// Waits for NVML's start before a context is made on the device, if NVML could take another process for this one.
    /// That can be found out only before the first context ([`Self::detect_foreign_pid`]).
    pub(super) fn await_nvml_before(&'static self, device: &'static Device) {
        if !self.nvml.is_starting() || self.sees_all(device) {
            return;
        }
        let wait_ns = if self.is_manager_telling(device) { SHORT_WAIT_NS } else { WAIT_MAX_NS };
        if !self.nvml.is_ready(wait_ns) {
            self.distrust_nvml(device);
        }
    }

    /// Waits for NVML's start after a context was made on the device, unless the manager tells what it took.
    /// `expected_bytes`: the known size of a context, or 0.
    pub(super) fn await_nvml_after(&'static self, device: &'static Device, expected_bytes: u64) {
        if !self.nvml.is_starting() || self.is_manager_telling(device) {
            return;
        }
        let wait_ns = if expected_bytes == 0 { WAIT_MAX_NS } else { SHORT_WAIT_NS };
        self.nvml.is_ready(wait_ns);
    }

    /// Notes that a context was charged while NVML was starting: once NVML is ready, the charge is corrected.
    pub(super) fn correct_when_ready(&'static self) {
        self.nvml.is_late.store(true, Ordering::SeqCst);
        // Sequentially consistent, as in `run`: one of the two sees what the other has done.
        if !self.nvml.is_starting() {
            self.watch.note_event();
        }
    }
}

fn run() {
    let Some(shim) = shim::built() else { return };
    let overhead = &shim.accounts().overhead;
    let is_started = {
        // A child would find NVML half started.
        let _forks_wait = ObjectList::begin();
        // SAFETY: NVML counts its users: the application's own start and shutdown keep their meaning.
        unsafe { real::nvmlInit_v2() }.is_ok()
    };
    overhead.nvml.set(if is_started { READY } else { ABSENT });
    if is_started && overhead.nvml.is_late.load(Ordering::SeqCst) {
        overhead.watch.note_event();
    }
}

extern "C" fn at_exit() {
    // A forked child has no such thread, and finds nothing built.
    if let Some(shim) = shim::built() {
        shim.accounts().overhead.nvml.is_ready(WAIT_MAX_NS);
    }
}

/// Loads NVML's library, which the application may not have done. The CUDA driver is in use already.
fn load() -> bool {
    type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    const NVML: &CStr = real::Library::Nvml.soname();
    let Some(address) = objects::libc_symbol(c"dlopen") else {
        return false;
    };
    // SAFETY: dlopen(3) has this type.
    let dlopen: Dlopen = unsafe { core::mem::transmute(address) };
    // SAFETY: a C string.
    !unsafe { dlopen(NVML.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) }.is_null()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_under_way_is_waited_for_as_long_as_said() {
        let nvml: &'static Nvml = Box::leak(Box::default());
        assert!(!nvml.is_ready(0));
        assert!(nvml.claim_start() && !nvml.claim_start());
        let began_ns = now_ns();
        assert!(!nvml.is_ready(20_000_000));
        assert!(now_ns() - began_ns >= 20_000_000);
        std::thread::scope(|scope| {
            let waiting =
                std::thread::Builder::new().spawn_scoped(scope, || nvml.is_ready(u64::MAX)).unwrap();
            nvml.set(READY);
            assert!(waiting.join().unwrap());
        });
    }
}
