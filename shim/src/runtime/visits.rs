//! Calls of the shim on streams that other threads may be about to destroy or to capture. Such a thread first announces
//! that, then waits until no such call is under way.

use core::sync::atomic::{AtomicU32, Ordering};

/// Calls under way.
static UNDER_WAY: AtomicU32 = AtomicU32::new(0);
/// Number of checks after which [`wait_for_all`] gives up: a fork may have left the thread of such a call behind.
const MOST_LOOKS: u32 = 10_000;

/// Does `work`, which first checks (`SeqCst`) whether its streams may still be used.
pub(crate) fn visit(work: impl FnOnce()) {
    UNDER_WAY.fetch_add(1, Ordering::SeqCst);
    work();
    UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
}

/// Waits until no [`visit`] is under way. The caller has announced (`SeqCst`) that a stream may not be used from now
/// on. Either the visit sees that, or it is seen here.
pub(crate) fn wait_for_all() {
    for _ in 0..MOST_LOOKS {
        if UNDER_WAY.load(Ordering::SeqCst) == 0 {
            return;
        }
        std::thread::yield_now();
    }
}
