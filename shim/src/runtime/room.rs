//! Waiting for memory that the quota allows and the GPU lacks. With overcommit the manager suspends other tenants meanwhile
//! ([`vcuda_region::room`], docs/suspend.md).
//!
//! The whole handler runs again, not only the call of the driver: one that fails leaves nothing behind. Between two attempts
//! the thread is outside of the driver, so that its own tenant can be suspended too.

use core::time::Duration;

use vcuda_driver_api::Status;
use vcuda_region::clock::now_ns;
use vcuda_region::room::{ASK_AGAIN_NS, OFFER_STALE_NS, USUAL_WAIT_MS, bit};

use crate::driver::real::DriverStatus;
use crate::driver::{Call, Handled};
use crate::runtime::shim::{self, Region, Shim};
use crate::runtime::{capture, limits};

/// Runs a handler under the guards that `enter` makes. If it `may_wait` and the driver had no memory within the quota, it
/// runs again while the manager makes room.
#[inline(always)]
pub(crate) fn handled<E: Copy, Guards>(
    call: &Call<'_, Result<(), E>>,
    may_wait: bool,
    enter: impl Fn() -> Guards,
    handler: impl Fn() -> Handled<E>,
) -> Result<(), E>
where
    Result<(), E>: DriverStatus + Status,
{
    let guards = enter();
    let outcome = handler();
    match outcome {
        Err(stop) if may_wait && call.lacks_room(stop) => {
            drop(guards);
            retried(call, &enter, &handler, outcome)
        }
        _ => call.conclude(outcome),
    }
}

/// Runs a handler again until there is room, or until the wait is over.
#[cold]
#[inline(never)]
fn retried<E: Copy, Guards>(
    call: &Call<'_, Result<(), E>>,
    enter: &dyn Fn() -> Guards,
    handler: &dyn Fn() -> Handled<E>,
    first: Handled<E>,
) -> Result<(), E>
where
    Result<(), E>: DriverStatus + Status,
{
    let mut outcome = first;
    let Some(wait) = Wait::begin() else {
        return call.conclude(outcome);
    };
    while wait.pause() {
        call.begin_again();
        let _guards = enter();
        outcome = handler();
        match outcome {
            Err(stop) if call.lacks_room(stop) => {}
            _ => return call.conclude(outcome),
        }
    }
    call.conclude(outcome)
}

/// A wait for room. Dropping it takes the request back.
struct Wait {
    shim: &'static Shim,
    region: &'static Region,
    /// The devices on which room is wanted, a bit each.
    devices: u32,
    until_ns: u64,
}

impl Wait {
    /// A wait that begins now; `None` if no manager makes room, or if the thread may not wait (I5).
    fn begin() -> Option<Self> {
        let shim = shim::built()?;
        let region = shim.region()?;
        if capture::any_open() {
            return None;
        }
        let now_ns = now_ns();
        limits::follow(region, now_ns);
        let offered_ns = region.limits.room_offered_ns();
        if offered_ns == 0 || now_ns.saturating_sub(offered_ns) > OFFER_STALE_NS {
            return None;
        }
        let wait_ms = region.limits.memory_wait_ms().unwrap_or(USUAL_WAIT_MS);
        Some(Self {
            shim,
            region,
            devices: wanted_devices(shim, region),
            until_ns: now_ns.saturating_add(u64::from(wait_ms) * 1_000_000),
        })
    }

    /// Asks for room, and waits a moment. Returns `false` if the time is over, which is counted.
    fn pause(&self) -> bool {
        if now_ns() >= self.until_ns {
            self.region.usage.count_room_denied();
            self.shim.log(format_args!(
                "denied: within the quota, but the GPU has no room, and none was made in time; see `vcuda smi`"
            ));
            return false;
        }
        self.region.usage.ask_for_room(self.devices);
        std::thread::sleep(Duration::from_nanos(ASK_AGAIN_NS));
        true
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.region.usage.stop_asking_for_room();
    }
}

/// The device of the calling thread's context; without one, each that the tenant has.
fn wanted_devices(shim: &'static Shim, region: &Region) -> u32 {
    let current = shim.current_device().and_then(|device| device.grant);
    match current {
        Some((_, index)) => bit(index),
        None => region
            .limits
            .devices()
            .fold(0, |bits, (index, _)| bits | bit(index)),
    }
}
