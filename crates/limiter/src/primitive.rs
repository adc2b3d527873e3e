//! Atomics of `core`, or of loom if a model is checked. In tests they count accesses, so that a thread can stop at any of them.
//!
//! The limiter and `vcuda-region` both compile this file, so that each counts the accesses in its own tests.
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

/// Spin hint of a loop that waits for a thread of another process.
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

/// Atomics that count their accesses, so that a test can stop or kill a party before any of them.
#[cfg(test)]
#[allow(unreachable_pub, reason = "public records of one of the two crates have fields of these types")]
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
        /// Whether each access first does an exchange on a common word. Loom tries another order of two accesses of a word only if
        /// no other access of the word is between them. So a thread that loads a word and then writes it hides earlier loads of
        /// others. With the exchange, which conflicts with all others, loom tries all orders; but the exchange also orders the
        /// accesses around it. So each model runs both ways.
        static ALL_CONFLICT: Cell<bool> = const { Cell::new(false) };
    }

    /// Runs `check` under loom twice: without and with a conflict between all accesses.
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

    /// Payload of the panic that ends a party before its next access.
    pub(crate) struct StoodStill;

    /// Runs `party`, which stops for ever after `accesses` accesses. Returns `None` if it has stopped.
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

    /// Whether this access happens. The first that does not happen unwinds; later ones, of destructors, have no effect.
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
                    // Loom treats a sequentially consistent access as acquire and release only, but supports the fence.
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
