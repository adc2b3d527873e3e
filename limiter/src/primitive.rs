//! Atomics that are `core`'s, or loom's when a model is checked; in tests each access can be the last one.
//!
//! The limiter and `vcuda-region` both compile this file, so that the accesses of each are counted in its own tests.
#![allow(dead_code, unused_imports, reason = "each of the two crates uses a part")]

#[cfg(not(loom))]
use core::sync::atomic as inner;
#[cfg(loom)]
use loom::sync::atomic as inner;

#[cfg(not(test))]
pub(crate) use inner::{AtomicI64, AtomicU32, AtomicU64};
pub(crate) use inner::{Ordering, fence};

#[cfg(test)]
pub(crate) use counted::{AtomicI64, AtomicU32, AtomicU64};

/// One turn of a loop that waits for a thread of another process.
#[cfg(not(loom))]
#[inline]
pub(crate) fn pause(turn: u32) {
    if turn % 64 == 63 {
        std::thread::yield_now();
    } else {
        core::hint::spin_loop();
    }
}
#[cfg(loom)]
pub(crate) fn pause(_turn: u32) {
    loom::thread::yield_now();
}

/// Atomics that count their accesses, so that a test can let a party die or stand still before any of them.
#[cfg(test)]
#[allow(
    unreachable_pub,
    reason = "public records of one of the two crates have fields of these types"
)]
pub(crate) mod counted {
    use super::inner;
    use core::cell::Cell;
    use inner::Ordering;

    #[cfg(loom)]
    loom::thread_local! { static LEFT: Cell<Option<u32>> = Cell::new(None); }
    #[cfg(not(loom))]
    std::thread_local! { static LEFT: Cell<Option<u32>> = const { Cell::new(None) }; }

    #[cfg(loom)]
    std::thread_local! {
        /// Loom tries another order of two accesses of a word only if no other access of it lies between them: a thread
        /// that loads a word and then writes it hides the loads of others before. With an exchange on a word beside it
        /// before each access, which conflicts with every other, all orders are tried, but some of them then order the
        /// accesses around them too. So each model is run both ways.
        static ALL_CONFLICT: Cell<bool> = const { Cell::new(false) };
    }

    /// Runs `check` under loom, once with accesses as they are and once with all of them in conflict.
    #[cfg(loom)]
    pub(crate) fn model(preemptions: usize, check: impl Fn() + Clone + Sync + Send + 'static) {
        for all_conflict in [false, true] {
            ALL_CONFLICT.set(all_conflict);
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(preemptions);
            builder.max_branches = 50_000;
            builder.check(check.clone());
            ALL_CONFLICT.set(false);
        }
    }

    /// What unwinds out of the access that must not happen any more.
    pub(crate) struct StoodStill;

    /// Runs `party`, which stands still for ever after `accesses` of them. `None` if it did.
    pub(crate) fn standing_still_after<T>(accesses: u32, party: impl FnOnce() -> T) -> Option<T> {
        LEFT.with(|left| left.set(Some(accesses)));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(party));
        LEFT.with(|left| left.set(None));
        match outcome {
            Ok(value) => Some(value),
            Err(payload) if payload.is::<StoodStill>() => None,
            Err(payload) => std::panic::resume_unwind(payload),
        }
    }

    /// Whether this access happens. The first that does not unwinds; those of destructors on the way have no effect.
    fn access() -> bool {
        LEFT.with(|left| match left.get() {
            Some(0) if std::thread::panicking() => false,
            Some(0) => std::panic::resume_unwind(Box::new(StoodStill)),
            Some(more) => {
                left.set(Some(more - 1));
                true
            }
            None => true,
        })
    }

    macro_rules! counted {
        ($name:ident, $value:ty) => {
            #[repr(C)]
            #[derive(Debug, Default)]
            pub struct $name(inner::$name, #[cfg(loom)] inner::AtomicU32);

            #[allow(dead_code, reason = "each width has all operations, used or not")]
            impl $name {
                fn conflict(&self) {
                    #[cfg(loom)]
                    if ALL_CONFLICT.get() {
                        self.1.fetch_add(1, Ordering::Relaxed);
                    }
                }

                pub(crate) fn new(value: $value) -> Self {
                    Self(
                        inner::$name::new(value),
                        #[cfg(loom)]
                        inner::AtomicU32::new(0),
                    )
                }
                pub fn load(&self, order: Ordering) -> $value {
                    access();
                    self.conflict();
                    self.0.load(order)
                }
                pub fn store(&self, value: $value, order: Ordering) {
                    if !access() {
                        return;
                    }
                    self.conflict();
                    self.0.store(value, order);
                    // Loom takes a sequentially consistent access for acquire and release only; it knows the fence.
                    #[cfg(loom)]
                    if order == Ordering::SeqCst {
                        inner::fence(order);
                    }
                }
                pub fn swap(&self, value: $value, order: Ordering) -> $value {
                    if !access() {
                        return self.0.load(Ordering::Relaxed);
                    }
                    self.conflict();
                    self.0.swap(value, order)
                }
                pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                    if !access() {
                        return self.0.load(Ordering::Relaxed);
                    }
                    self.conflict();
                    self.0.fetch_add(value, order)
                }
                pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                    if !access() {
                        return self.0.load(Ordering::Relaxed);
                    }
                    self.conflict();
                    self.0.fetch_sub(value, order)
                }
                pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                    if !access() {
                        return self.0.load(Ordering::Relaxed);
                    }
                    self.conflict();
                    self.0.fetch_max(value, order)
                }
                pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                    if !access() {
                        return self.0.load(Ordering::Relaxed);
                    }
                    self.conflict();
                    self.0.fetch_or(value, order)
                }
                pub fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    if !access() {
                        return Ok(current);
                    }
                    self.conflict();
                    self.0.compare_exchange(current, new, success, failure)
                }
                pub fn compare_exchange_weak(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    if !access() {
                        return Ok(current);
                    }
                    self.conflict();
                    self.0.compare_exchange_weak(current, new, success, failure)
                }
            }
        };
    }

    counted!(AtomicU32, u32);
    counted!(AtomicU64, u64);
    counted!(AtomicI64, i64);
}
