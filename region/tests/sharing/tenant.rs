//! A tenant with one process that launches as fast as it may.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use vcuda_limiter::busy;
use vcuda_limiter::controller::{LOOK_BACK_WORDS, Scale, Throttle, Verdict, View, word_at};
use vcuda_limiter::predict::{Key, Part, Table};
use vcuda_limiter::token_bucket::{Meter, Pace, TokenBucket};
use vcuda_quota::DeviceConfig;

use super::{Kernels, STEP_NS};

/// Time that one launch costs the host, and delay with which a finished event is seen (ns).
const LAUNCH_NS: u64 = 2_500;
const SETTLE_NS: u64 = 100_000;

pub(super) struct TimingEvent {
    /// Kernels done when it is reached.
    pub(super) after: u64,
    count: u32,
    predicted_ns: u64,
    /// The stream was idle: the event is reached when the context runs next, and the next segment starts then.
    pub(super) start_ns: Option<u64>,
}

impl TimingEvent {
    pub(super) const NOT_YET: Option<u64> = Some(0);
}

pub(super) struct Tenant {
    kernels: Kernels,
    pub(super) pace: Pace,
    config: DeviceConfig,
    bucket: Box<TokenBucket>,
    meter: Meter,
    throttle: Throttle,
    table: Box<Table>,
    pub(super) scale: Scale,
    pub(super) queue: VecDeque<u64>,
    launched: u64,
    pub(super) done: u64,
    pub(super) ends: VecDeque<(u64, u64)>,
    pub(super) events: VecDeque<TimingEvent>,
    unmeasured: (u32, u64),
    settled_ns: u64,
    entered: (u64, u64),
    host_free_ns: u64,
    settle_at_ns: u64,
    pub(super) service_ns: u64,
}

impl Tenant {
    pub(super) fn new(cap_permille: u32, kernels: Kernels, now_ns: u64) -> Self {
        let config = DeviceConfig::new(u64::MAX, cap_permille);
        let pace = Pace {
            epoch_ns: now_ns,
            credit_ns: 0,
            rate_permille: cap_permille,
            scale_permille: 1000,
            window_ns: 2_000_000,
            metered: true,
            contended: false,
        };
        Self {
            kernels,
            pace,
            config,
            bucket: Box::default(),
            meter: Meter::default(),
            throttle: Throttle::default(),
            table: Box::default(),
            scale: Scale::default(),
            queue: VecDeque::new(),
            launched: 0,
            done: 0,
            ends: VecDeque::new(),
            events: VecDeque::new(),
            unmeasured: (0, 0),
            settled_ns: 0,
            entered: (0, 0),
            host_free_ns: now_ns,
            settle_at_ns: now_ns,
            service_ns: 0,
        }
    }

    fn view(&self, now_ns: u64) -> View {
        View::new(self.pace, self.config, now_ns, now_ns)
    }

    fn record_event(&mut self) {
        let (count, predicted_ns) = std::mem::take(&mut self.unmeasured);
        if count > 0 {
            self.events.push_back(TimingEvent {
                after: self.launched,
                count,
                predicted_ns,
                start_ns: None,
            });
        }
    }

    /// Launches until `now_ns`, as far as it may.
    pub(super) fn launch(&mut self, now_ns: u64) {
        let key = Key::function(0x1000);
        while self.host_free_ns <= now_ns {
            let predicted = self.table.predict(key, key);
            let view = self.view(now_ns);
            if predicted.samples == 0 && self.launched >= 4 {
                // Nothing is known of the kernel yet: no more of it before the first event.
                self.record_event();
                return;
            }
            if !self.meter.spend(predicted.cost_ns) {
                let (ns, launches) = (
                    self.meter.in_flight_ns(),
                    u64::from(self.meter.in_flight_launches()).saturating_sub(1),
                );
                let full = launches > 0 && (ns > view.window_ns || launches >= 512);
                if full || self.throttle.verdict(&self.bucket, &view, now_ns) != Verdict::Go {
                    self.meter.refund(predicted.cost_ns);
                    self.record_event();
                    return;
                }
                self.meter.take(&self.bucket, predicted.cost_ns);
            }
            if self.queue.is_empty() && self.events.is_empty() && self.unmeasured.0 == 0 {
                self.events.push_back(TimingEvent {
                    after: self.launched,
                    count: 0,
                    predicted_ns: 0,
                    start_ns: TimingEvent::NOT_YET,
                });
            }
            self.queue.push_back((self.kernels)());
            self.launched += 1;
            self.host_free_ns = self.host_free_ns.max(now_ns - STEP_NS) + LAUNCH_NS;
            self.unmeasured = (self.unmeasured.0 + 1, self.unmeasured.1 + predicted.cost_ns);
            if predicted.cost_ns >= 200_000
                || self.unmeasured.1 >= view.segment_ns
                || self.unmeasured.0 >= 128
            {
                self.record_event();
            }
        }
    }

    /// Settles the events that were reached, and enters the running segment in the busy map.
    pub(super) fn settle(&mut self, now_ns: u64) {
        if now_ns < self.settle_at_ns {
            return;
        }
        self.settle_at_ns = now_ns + SETTLE_NS;
        let view = self.view(now_ns);
        while self
            .events
            .front()
            .is_some_and(|event| event.after <= self.done && event.start_ns != TimingEvent::NOT_YET)
        {
            let event = self.events.pop_front().unwrap();
            let mut reached_ns = self.settled_ns;
            while self
                .ends
                .front()
                .is_some_and(|(kernel, _)| *kernel <= event.after)
            {
                reached_ns = self.ends.pop_front().unwrap().1;
            }
            if let Some(start_ns) = event.start_ns {
                self.settled_ns = start_ns.max(reached_ns);
                continue;
            }
            let charged_ns = self.entered.1 + self.charge(&view, reached_ns);
            self.bucket.settle(event.predicted_ns, charged_ns, 1000);
            self.meter.finish(event.predicted_ns, event.count);
            let took_ns = view.scaled(reached_ns - self.settled_ns);
            let key = Key::function(0x1000);
            let known = self.table.predict(key, key);
            let part = Part {
                index: known.index,
                count: u16::try_from(event.count).unwrap(),
            };
            self.table
                .learn(&[part], known.cost_ns * u64::from(event.count), took_ns);
            self.settled_ns = reached_ns;
            self.entered = (reached_ns, 0);
        }
        let runs = self.events.front().is_some_and(|event| event.start_ns.is_none());
        if runs && now_ns > self.entered.0.max(self.settled_ns) + 500_000 {
            let charged_ns = self.charge(&view, now_ns);
            self.entered = (now_ns, self.entered.1 + charged_ns);
        }
    }

    fn charge(&self, view: &View, to_ns: u64) -> u64 {
        let from_ns = self.entered.0.max(self.settled_ns);
        let elapsed_ns = to_ns.saturating_sub(from_ns);
        view.scaled(busy::mark(&self.bucket.busy, from_ns, to_ns).charge_ns(elapsed_ns))
    }

    pub(super) fn busy_words(&self, now_ns: u64) -> Vec<u64> {
        let last = word_at(now_ns - 3_000_000);
        let word = |word: u64| {
            let (index, _) = busy::place(busy::WORDS, word);
            busy::bins_of(self.bucket.busy[index].load(Ordering::Relaxed), busy::WORDS, word)
        };
        (last - LOOK_BACK_WORDS..last).map(word).collect()
    }
}
