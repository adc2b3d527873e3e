//! The gate and the manager under every order of accesses that the memory model allows.

use super::*;
use crate::primitive::counted;
use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;

/// The words, and whether the process's memory is away.
struct Tenant {
    state: AtomicU32,
    resume_wanted: AtomicU32,
    inside: AtomicU64,
    is_away: AtomicBool,
}

impl Tenant {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: AtomicU32::new(0),
            resume_wanted: AtomicU32::new(0),
            inside: AtomicU64::new(0),
            is_away: AtomicBool::new(false),
        })
    }

    fn gate(&self) -> Gate<'_> {
        Gate::new(&self.state, &self.resume_wanted, &self.inside)
    }

    /// A call of the driver, if the gate lets it pass.
    fn call(&self) -> bool {
        let gate = self.gate();
        if !gate.try_enter() {
            gate.ask_to_resume();
            return false;
        }
        assert!(!self.is_away.load(Ordering::Relaxed), "a call met a driver without memory");
        loom::thread::yield_now();
        assert!(!self.is_away.load(Ordering::Relaxed), "the memory left during a call");
        gate.leave();
        true
    }

    /// What the manager does. Returns whether the memory is away.
    fn suspend(&self) -> bool {
        self.set_state(SuspendState::Suspending);
        if self.inside.load(Ordering::Acquire) != 0 {
            self.set_state(SuspendState::Running);
            return false;
        }
        self.is_away.store(true, Ordering::Relaxed);
        self.set_state(SuspendState::Suspended);
        true
    }

    fn resume(&self) {
        self.is_away.store(false, Ordering::Relaxed);
        self.set_state(SuspendState::Running);
    }

    /// As `SuspensionWords::set_state`.
    fn set_state(&self, state: SuspendState) {
        self.state.store(state.word(), Ordering::Release);
        fence(Ordering::SeqCst);
    }
}

#[test]
fn loom_no_call_is_inside_while_the_memory_is_away() {
    counted::model(3, || {
        let tenant = Tenant::new();
        let threads = [(); 2].map(|()| {
            let tenant = Arc::clone(&tenant);
            loom::thread::spawn(move || tenant.call())
        });
        let is_away = tenant.suspend();
        let passed = threads.map(|thread| thread.join().unwrap());
        if is_away {
            // What turned back has asked, and passes after the resume.
            let has_asked = tenant.resume_wanted.load(Ordering::Acquire) == 1;
            assert_eq!(has_asked, passed.contains(&false));
            tenant.resume();
        }
        assert!(tenant.call());
        assert_eq!(tenant.inside.load(Ordering::Acquire) & THREADS, 0);
    });
}
