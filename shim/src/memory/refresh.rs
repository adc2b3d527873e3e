//! Refreshes what changes without a call of this process: dead processes, limits, the driver's own use. If due, it is
//! done before an answer about memory and before a refusal.

use core::sync::atomic::Ordering;
use core::time::Duration;

use vcuda_region::clock;
use vcuda_region::process::ProcessView;
use vcuda_region::slots::RELEASED_AFTER_NS;

use crate::runtime::bypass;
use crate::runtime::capture;
use crate::runtime::limits;
use crate::runtime::limits::coarse_ns;
use crate::runtime::region::Region;
use crate::runtime::registration::Haste;
use crate::runtime::shim::Shim;
use crate::runtime::suspend;

/// Greatest age of what an answer about memory rests on (ns). I8: dead processes count for a second at most.
const MAX_AGE_NS: u64 = 250_000_000;

impl Shim {
    /// Ends exported memory whose descriptors are closed, and memory of dead processes that the driver has released.
    /// Called before an answer about memory, and before a refusal.
    #[inline]
    pub(crate) fn settle_released(&'static self, region: &Region) {
        if self.released_ns.load(Ordering::Relaxed) != 0 || region.usage.has_ever_shared() {
            self.settle_released_now(region);
        }
    }

    #[inline(never)]
    fn settle_released_now(&'static self, region: &Region) {
        // A thread that captures does not wait (I5).
        let may_wait = !capture::any_open();
        if self.released_ns.load(Ordering::Relaxed) != 0 && may_wait {
            self.await_release();
        }
        self.accounts().exported.settle(region.usage, may_wait);
    }

    /// Waits until the driver has released the memory of dead processes: [`vcuda_region::slots::RELEASED_AFTER_NS`]
    /// at most.
    #[cold]
    fn await_release(&'static self) {
        let due_ns = self.released_ns.swap(0, Ordering::Relaxed);
        let left_ns = due_ns.saturating_sub(clock::now_ns()).min(RELEASED_AFTER_NS);
        std::thread::sleep(Duration::from_nanos(left_ns));
        // With a thorough view: some of the dead may be of PID namespaces that cannot be seen.
        self.reap(ProcessView::new);
    }

    /// Takes over the current limits.
    #[cold]
    fn follow_limits(&'static self) {
        if let Some(region) = self.region() {
            limits::follow(region, clock::now_ns());
        }
    }

    /// Refreshes before an answer about memory, if no thread of this process has done so for a while. So neither dead
    /// processes count, nor memory that the driver gave back long ago.
    #[inline]
    pub(crate) fn refresh_if_due(&'static self) {
        if limits::have_limits_changed() {
            self.follow_limits();
        }
        let now_ns = coarse_ns();
        if now_ns.saturating_sub(self.refreshed_ns.load(Ordering::Relaxed)) > MAX_AGE_NS {
            self.refreshed_ns.store(now_ns, Ordering::Relaxed);
            self.refresh();
        }
    }

    /// Refreshes before a refusal: fully if that is due, else only for processes that have just ended. A process that
    /// is refused all the time spends at most a tenth of its time here. A refresh takes some microseconds for each
    /// other process, and the next one comes after ten times as long.
    #[cold]
    pub(crate) fn refresh_before_refusal(&'static self) {
        bypass::report(self);
        let refreshed_ns = self.refreshed_ns.load(Ordering::Relaxed);
        self.refresh_if_due();
        let began_ns = clock::now_ns();
        let is_due = began_ns >= self.next_refresh_ns.load(Ordering::Relaxed);
        if is_due && self.refreshed_ns.load(Ordering::Relaxed) == refreshed_ns {
            self.reap(ProcessView::brief);
            let now_ns = clock::now_ns();
            let pause_ns = (10 * (now_ns - began_ns)).min(MAX_AGE_NS);
            self.next_refresh_ns.store(now_ns + pause_ns, Ordering::Relaxed);
        }
    }

    /// Clears the slots of dead processes, and measures the driver's own use.
    #[cold]
    fn refresh(&'static self) {
        bypass::report_known(self);
        self.follow_limits();
        self.reap(ProcessView::new);
        self.remeasure_overhead(Haste::Later);
    }

    /// Measures the driver's own use on the devices that this process has used. While the tenant's memory is away, what was
    /// measured before stays.
    pub(crate) fn remeasure_overhead(&'static self, haste: Haste) {
        let Some(_inside) = suspend::try_enter() else {
            return;
        };
        let overhead = &self.accounts().overhead;
        for device in self.devices().used().filter(|device| device.grant.is_some()) {
            overhead.remeasure(device, haste);
        }
    }
}
