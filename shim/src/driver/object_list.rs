//! Forks and walks over the loaded objects. `dl_iterate_phdr` holds a lock of the loader that glibc does not reset in a
//! forked child (only `dl_load_lock` is). A child forked while another thread walks would wait for ever at its first
//! walk. So a fork waits for walks to end, and a walk for a fork.
//!
//! Both waits are bounded. They reach the bound if a thread waits for itself: a signal handler that forks during a
//! walk, or the application's fork handler that asks for a symbol. They also reach it if the shim's start of NVML takes
//! longer, which counts as a walk.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::kernel;

/// Number of threads that walk.
static WALKING: AtomicUsize = AtomicUsize::new(0);
/// Number of threads that fork.
static FORKING: AtomicUsize = AtomicUsize::new(0);

/// Naps before a wait is given up: about a fifth of a second.
const NAPS: u32 = 2000;
const NAP_NS: i64 = 50_000;

/// A guard: while it lives, the thread walks, or does other work during which no child may be forked.
#[derive(Debug)]
pub(crate) struct ObjectList(());

impl ObjectList {
    pub(crate) fn begin() -> Self {
        let is_clear = || FORKING.load(Ordering::SeqCst) == 0;
        loop {
            WALKING.fetch_add(1, Ordering::SeqCst);
            // Sequentially consistent with `before_fork`: one of the two sees the other.
            if is_clear() {
                return Self(());
            }
            WALKING.fetch_sub(1, Ordering::SeqCst);
            if !wait_until(is_clear) {
                WALKING.fetch_add(1, Ordering::SeqCst);
                return Self(());
            }
        }
    }
}

impl Drop for ObjectList {
    fn drop(&mut self) {
        WALKING.fetch_sub(1, Ordering::SeqCst);
    }
}

extern "C" fn before_fork() {
    FORKING.fetch_add(1, Ordering::SeqCst);
    wait_until(|| WALKING.load(Ordering::SeqCst) == 0);
}

extern "C" fn in_parent() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

/// Resets the count: the child has one thread, which does not walk.
extern "C" fn in_child() {
    FORKING.store(0, Ordering::SeqCst);
    WALKING.store(0, Ordering::SeqCst);
    crate::runtime::fork::in_child();
}

/// Waits until `holds` is true. Returns whether it was in time.
fn wait_until(holds: impl Fn() -> bool) -> bool {
    for turn in 0..NAPS {
        if holds() {
            return true;
        }
        if turn < 100 {
            kernel::yield_now();
        } else {
            kernel::nap(NAP_NS);
        }
    }
    false
}

/// Runs when the library is loaded: at the first walk the process may already be within a fork handler, from where
/// older C libraries cannot register one.
extern "C" fn register() {
    // SAFETY: the three functions touch three words and nothing else, and live as long as the library, which stays.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static REGISTER: extern "C" fn() = register;
