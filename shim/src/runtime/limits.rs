//! Whether `limits` have changed, and whether launches of this process are metered. Both are asked at each launch.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

#[cfg(doc)]
use vcuda_region::slots::Usage;

use crate::runtime::region::Region;

/// Greatest age of the known limits when memory is requested, if no notice says that they have changed (ns).
const FOLLOW_EVERY_NS: u64 = 10_000_000;

/// A word that never changes, in place of the notice.
static UNCHANGING: AtomicU32 = AtomicU32::new(0);
/// The notice, a word that changes when `limits` may have: [`UNCHANGING`], or [`Usage::limits_notice`].
static NOTICE: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const UNCHANGING).cast_mut());
/// Value of the notice when `limits` were last followed.
static FOLLOWED_AT: AtomicU32 = AtomicU32::new(0);
/// Value of the notice at which no launch was metered; [`NEVER`] if launches are, or nothing is known.
static UNMETERED_AT: AtomicU64 = AtomicU64::new(NEVER);
/// Value of the notice at which hooks that only meter launches may be idle: as [`UNMETERED_AT`], but never if calls pass a gate.
static IDLE_AT: AtomicU64 = AtomicU64::new(NEVER);
/// Value of the notice at which a launch may be paid at once without a gate: the one at which `limits` were followed, or
/// [`NEVER`] if calls pass a gate.
static AT_ONCE_AT: AtomicU64 = AtomicU64::new(0);
/// Set if each call has to pass a gate.
static IS_GATED: AtomicBool = AtomicBool::new(false);
/// A number that is no value of the notice.
const NEVER: u64 = u64::MAX;

/// Current value of the notice.
#[inline]
fn notice() -> u32 {
    // Relaxed: the word was mapped before the process could launch anything, so each thread that sees the new pointer
    // sees the word.
    let word = NOTICE.load(Ordering::Relaxed);
    // SAFETY: a static, or a word of `usage`, which stays mapped for the life of the process and of its children.
    let word = unsafe { &*word };
    word.load(Ordering::Relaxed)
}

/// Whether no launch of this process is metered.
#[inline]
pub(crate) fn is_unmetered() -> bool {
    u64::from(notice()) == UNMETERED_AT.load(Ordering::Relaxed)
}

/// Whether hooks that only meter launches have nothing to do: three loads and a branch.
#[inline]
pub(crate) fn is_idle() -> bool {
    u64::from(notice()) == IDLE_AT.load(Ordering::Relaxed)
}

/// Whether a launch may be paid at once: `limits` are not known to have changed since they were last followed, and the call
/// `has_passed_gate` or has none to pass.
#[inline(always)]
pub(crate) fn may_pay_at_once(has_passed_gate: bool) -> bool {
    if has_passed_gate {
        !have_limits_changed()
    } else {
        u64::from(notice()) == AT_ONCE_AT.load(Ordering::Relaxed)
    }
}

/// Declares that each call has to pass a gate ([`crate::runtime::suspend`]).
pub(crate) fn gate_everything() {
    IS_GATED.store(true, Ordering::SeqCst);
    AT_ONCE_AT.store(NEVER, Ordering::SeqCst);
    IDLE_AT.store(NEVER, Ordering::SeqCst);
}

/// Declares that no launch of this process is ever metered.
pub(crate) fn meter_nothing() {
    if IS_GATED.load(Ordering::SeqCst) {
        return;
    }
    NOTICE.store((&raw const UNCHANGING).cast_mut(), Ordering::Relaxed);
    let never_changes = u64::from(UNCHANGING.load(Ordering::Relaxed));
    UNMETERED_AT.store(never_changes, Ordering::Relaxed);
    IDLE_AT.store(never_changes, Ordering::Relaxed);
}

/// Whether `limits` may have changed since they were last followed. A process that has never followed them does so at
/// its first refresh, allocation or launch.
#[inline]
pub(crate) fn have_limits_changed() -> bool {
    notice() != FOLLOWED_AT.load(Ordering::Relaxed)
}

impl Region {
    /// Takes over the limits if they have changed or might have, before memory is requested.
    #[inline]
    pub(crate) fn follow(&'static self) {
        follow_if_due(self, FOLLOW_EVERY_NS, coarse_ns());
    }
}

/// Follows `limits` if they are older than `age_ns` or have changed.
#[inline]
pub(crate) fn follow_if_due(region: &'static Region, age_ns: u64, now_ns: u64) {
    if have_limits_changed() || region.limits.are_older(age_ns, now_ns) {
        follow(region, now_ns);
    }
}

/// Takes over the current limits, and notes whether launches of this process are metered.
#[cold]
pub(crate) fn follow(region: &'static Region, now_ns: u64) {
    // Read before `limits`: a change after that changes the notice again.
    let word = region.usage.limits_notice();
    let seen = word.load(Ordering::Acquire);
    if !region.limits.follow(now_ns) {
        // Another thread is reading the limits, and only it knows which notice they belong to.
        return;
    }
    let mut devices = region.limits.devices();
    let only = devices.next().filter(|_| devices.next().is_none());
    let is_gated = IS_GATED.load(Ordering::Relaxed);
    let unmetered = only.is_some_and(|(device, _)| !region.limits.is_metered(device));
    let unmetered_at = if unmetered { u64::from(seen) } else { NEVER };
    FOLLOWED_AT.store(seen, Ordering::Relaxed);
    AT_ONCE_AT.store(if is_gated { NEVER } else { u64::from(seen) }, Ordering::Relaxed);
    NOTICE.store(core::ptr::from_ref(word).cast_mut(), Ordering::Relaxed);
    IDLE_AT.store(if is_gated { NEVER } else { unmetered_at }, Ordering::Relaxed);
    UNMETERED_AT.store(unmetered_at, Ordering::Relaxed);
}

/// The time to a few milliseconds, which costs less than the exact one.
#[inline]
pub(crate) fn coarse_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the time here.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    #[expect(clippy::cast_sign_loss, reason = "the monotonic clock is never negative")]
    let (seconds, rest) = (time.tv_sec as u64, time.tv_nsec as u64);
    vcuda_region::clock::to_host_ns(seconds * 1_000_000_000 + rest)
}
