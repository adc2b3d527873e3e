//! Waiting for memory that the quota allows and the GPU lacks. With overcommit the manager suspends other tenants meanwhile
//! ([`vcuda_region::room`], docs/suspend.md).
//!
//! The whole hook runs again, not only the call of the driver: one that fails leaves nothing behind. Between two attempts the
//! thread is outside of the driver, so that its own tenant can be suspended too.

use core::cell::Cell;
use core::time::Duration;

use vcuda_region::clock::now_ns;
use vcuda_region::room::{ASK_AGAIN_NS, OFFER_STALE_NS, USUAL_WAIT_MS, bit};

use crate::driver::Shield;
use crate::runtime::region::Region;
use crate::runtime::shim::{self, Shim};
use crate::runtime::{capture, limits};

thread_local! {
    /// Whether the last attempt found no room; `None` if the thread does not wait.
    static LACKED_ROOM: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Calls a hooked function again, whose first `answer` was that the driver has no memory within the quota, while the manager
/// makes room. An attempt that finds none either gets here, too, and returns at once.
#[cold]
#[inline(never)]
pub(crate) fn again<R>(mut answer: R, attempt: impl Fn() -> R) -> R {
    if LACKED_ROOM.get().is_some() {
        LACKED_ROOM.set(Some(true));
        return answer;
    }
    // A thread that was cancelled in its sleep would leave by frames that cannot be left so.
    let _shield = Shield::raise();
    let mut until_ns = NOT_BEGUN;
    while pause(&mut until_ns) {
        LACKED_ROOM.set(Some(false));
        answer = attempt();
        if LACKED_ROOM.replace(None) != Some(true) {
            break;
        }
    }
    answer
}

/// Ends the wait that a thread has left by a jump.
pub(crate) fn give_back() {
    LACKED_ROOM.set(None);
}

/// The end of a wait that has not begun.
const NOT_BEGUN: u64 = 0;

/// Asks for room, and waits a moment. `until_ns` is the end of the wait (`CLOCK_MONOTONIC`), which the first call sets. Returns
/// `false` if there is nothing to wait for, which is counted: no manager makes room, the thread may not wait (I5), or the time
/// is over.
fn pause(until_ns: &mut u64) -> bool {
    let Some((shim, region)) = shim::built().and_then(|shim| Some((shim, shim.region()?))) else {
        return false;
    };
    let now_ns = now_ns();
    if *until_ns == NOT_BEGUN {
        if capture::any_open() || !is_room_made(region, now_ns) {
            count_denied(shim, region);
            return false;
        }
        let wait_ms = region.limits.memory_wait_ms().unwrap_or(USUAL_WAIT_MS);
        *until_ns = now_ns.saturating_add(u64::from(wait_ms) * 1_000_000);
    }
    if now_ns >= *until_ns {
        count_denied(shim, region);
        return false;
    }
    region.usage.ask_for_room(wanted_devices(shim, region));
    std::thread::sleep(Duration::from_nanos(ASK_AGAIN_NS));
    true
}

/// Counts an allocation that the driver refuses for good.
fn count_denied(shim: &Shim, region: &Region) {
    region.usage.count_room_denied();
    shim.log(format_args!(
        "denied: within the quota, but the driver has no room on the GPU or under its own limit; see `vcuda smi`"
    ));
}

/// Whether a manager has offered to make room lately.
fn is_room_made(region: &'static Region, now_ns: u64) -> bool {
    limits::follow(region, now_ns);
    let offered_ns = region.limits.room_offered_ns();
    offered_ns != 0 && now_ns.saturating_sub(offered_ns) <= OFFER_STALE_NS
}

/// The device of the calling thread's context; without one, each that the tenant has.
fn wanted_devices(shim: &'static Shim, region: &Region) -> u32 {
    let current = shim.current_device().and_then(|device| device.grant);
    match current {
        Some((_, index)) => bit(index),
        None => region.limits.devices().fold(0, |bits, (index, _)| bits | bit(index)),
    }
}
