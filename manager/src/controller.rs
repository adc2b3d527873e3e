//! Arbitration of GPU time ([`crate::arbiter`]), in a thread of its own. After the manager's end shims see that the heartbeat is missing
//! and use their own limits.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::arbiter::{Evidence, Runner, Step};

use crate::background::{Background, Stop};

/// Minimum time between two calls of the listener (ns).
const NEWS_NS: u64 = 500_000_000;

/// The arbitrating thread for a root, which runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Controller {
    /// Time of the arbiter's last step (`CLOCK_MONOTONIC`, ns); 0 before the first.
    beat_ns: Arc<AtomicU64>,
    remembers_debts: Arc<AtomicBool>,
    _thread: Background,
}

impl Controller {
    /// Starts the thread. It calls `news` after a tenant has begun to use its GPU or was refused memory, at most twice a second.
    pub(crate) fn start(root: &Path, evidence: Evidence, news: Box<dyn Fn() + Send>) -> io::Result<Self> {
        let runner = Runner::new(root)?.with_evidence(evidence);
        let waker = runner.waker();
        let (beat_ns, remembers_debts) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let listener = StepListener {
            beat_ns: Arc::clone(&beat_ns),
            remembers_debts: Arc::clone(&remembers_debts),
            news,
            news_ns: 0,
            has_news: false,
        };
        let wake = Box::new(move || waker.wake());
        let thread =
            Background::with_wake("controller", wake, move |stop| arbitrate(&runner, stop, listener))?;
        Ok(Self { beat_ns, remembers_debts, _thread: thread })
    }

    /// The shared heartbeat, for an owner that must not keep the controller alive.
    pub(crate) fn beat(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.beat_ns)
    }

    /// Whether a tenant that is gone still owes GPU time to a successor of its name.
    pub(crate) fn remembers_debts(&self) -> bool {
        self.remembers_debts.load(Ordering::Relaxed)
    }

    /// Time of the last arbitration (`CLOCK_MONOTONIC`, ns), for the watchdog. 0 before the first.
    pub(crate) fn beat_ns(&self) -> u64 {
        self.beat_ns.load(Ordering::Relaxed)
    }
}

/// Forwards the arbiter's steps to the watchdog and the listener.
struct StepListener {
    beat_ns: Arc<AtomicU64>,
    remembers_debts: Arc<AtomicBool>,
    news: Box<dyn Fn() + Send>,
    /// Time of the last call of the listener (ns).
    news_ns: u64,
    has_news: bool,
}

impl StepListener {
    fn on_step(&mut self, step: Step) {
        self.beat_ns.store(step.now_ns, Ordering::Relaxed);
        self.remembers_debts.store(step.remembers_debts, Ordering::Relaxed);
        self.has_news |= step.is_news;
        if self.has_news && step.now_ns >= self.news_ns.saturating_add(NEWS_NS) {
            (self.has_news, self.news_ns) = (false, step.now_ns);
            (self.news)();
        }
    }
}

fn arbitrate(runner: &Runner, stop: &Stop, mut listener: StepListener) {
    runner.run(&mut |step: Step| {
        listener.on_step(step);
        match stop.is_asked() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
}
