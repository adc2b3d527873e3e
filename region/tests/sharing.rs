//! The limiter's arithmetic against a model of one GPU, in virtual time: contexts in round-robin slices of 2 ms, one stream
//! per container, a host that launches as fast as it may, events that are seen late. The real bucket, busy map, throttle
//! and controller decide. Evidence on a model, not on hardware; what it shows is that the arithmetic adds up.
#![allow(
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::unwrap_used,
    reason = "a model: it stops at the first thing that is not as it should be"
)]

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use vcuda_limiter::busy;
use vcuda_limiter::controller::{
    self, Busy, Contexts, LOOK_BACK_WORDS, Scale, Throttle, Verdict, View, word_at,
};
use vcuda_limiter::predict::{Key, Part, Table};
use vcuda_limiter::token_bucket::{Meter, Pace, TokenBucket};
use vcuda_quota::DeviceConfig;

const SLICE_NS: u64 = 2_000_000;
const SWITCH_NS: u64 = 20_000;
const STEP_NS: u64 = 10_000;
/// What one launch costs the host, and how late a reached mark is seen.
const LAUNCH_NS: u64 = 2_500;
const REAP_NS: u64 = 100_000;

/// Durations of a container's kernels, one after another.
type Kernels = Box<dyn FnMut() -> u64>;

fn all(duration_ns: u64) -> Kernels {
    Box::new(move || duration_ns)
}

/// 8 us to 5 ms, short ones more often.
fn mix(mut seed: u64) -> Kernels {
    Box::new(move || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let x = (seed >> 40) as f64 / (1 << 24) as f64;
        (8_000.0 * 625.0_f64.powf(x * x)).round().clamp(8e3, 5e6) as u64
    })
}

struct Mark {
    /// Kernels done when it is reached.
    after: u64,
    count: u32,
    predicted_ns: u64,
    /// The stream was idle: the mark is reached when the context runs next, and the next segment starts then.
    start_ns: Option<u64>,
}

impl Mark {
    const NOT_YET: Option<u64> = Some(0);
}

struct Container {
    kernels: Kernels,
    pace: Pace,
    config: DeviceConfig,
    bucket: Box<TokenBucket>,
    meter: Meter,
    throttle: Throttle,
    table: Box<Table>,
    scale: Scale,
    queue: VecDeque<u64>,
    launched: u64,
    done: u64,
    ends: VecDeque<(u64, u64)>,
    marks: VecDeque<Mark>,
    unmarked: (u32, u64),
    settled_ns: u64,
    entered: (u64, u64),
    host_free_ns: u64,
    reap_at_ns: u64,
    service_ns: u64,
}

impl Container {
    fn new(cap_permille: u32, kernels: Kernels, now_ns: u64) -> Self {
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
            marks: VecDeque::new(),
            unmarked: (0, 0),
            settled_ns: 0,
            entered: (0, 0),
            host_free_ns: now_ns,
            reap_at_ns: now_ns,
            service_ns: 0,
        }
    }

    fn view(&self, now_ns: u64) -> View {
        View::new(self.pace, self.config, now_ns, now_ns)
    }

    fn mark(&mut self) {
        let (count, predicted_ns) = std::mem::take(&mut self.unmarked);
        if count > 0 {
            self.marks.push_back(Mark {
                after: self.launched,
                count,
                predicted_ns,
                start_ns: None,
            });
        }
    }

    /// Launches until `now_ns`, as far as it may.
    fn host(&mut self, now_ns: u64) {
        let key = Key::function(0x1000);
        while self.host_free_ns <= now_ns {
            let predicted = self.table.predict(key, key);
            let view = self.view(now_ns);
            if predicted.samples == 0 && self.launched >= 4 {
                // Nothing is known of the kernel yet: no more of it before the first mark.
                self.mark();
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
                    self.mark();
                    return;
                }
                self.meter.take(&self.bucket, predicted.cost_ns);
            }
            if self.queue.is_empty() && self.marks.is_empty() && self.unmarked.0 == 0 {
                self.marks.push_back(Mark {
                    after: self.launched,
                    count: 0,
                    predicted_ns: 0,
                    start_ns: Mark::NOT_YET,
                });
            }
            self.queue.push_back((self.kernels)());
            self.launched += 1;
            self.host_free_ns = self.host_free_ns.max(now_ns - STEP_NS) + LAUNCH_NS;
            self.unmarked = (self.unmarked.0 + 1, self.unmarked.1 + predicted.cost_ns);
            if predicted.cost_ns >= 200_000 || self.unmarked.1 >= view.segment_ns || self.unmarked.0 >= 128 {
                self.mark();
            }
        }
    }

    /// Settles the marks that were reached, and enters the running segment in the busy map.
    fn reap(&mut self, now_ns: u64) {
        if now_ns < self.reap_at_ns {
            return;
        }
        self.reap_at_ns = now_ns + REAP_NS;
        let view = self.view(now_ns);
        while self
            .marks
            .front()
            .is_some_and(|mark| mark.after <= self.done && mark.start_ns != Mark::NOT_YET)
        {
            let mark = self.marks.pop_front().unwrap();
            let mut reached_ns = self.settled_ns;
            while self.ends.front().is_some_and(|(kernel, _)| *kernel <= mark.after) {
                reached_ns = self.ends.pop_front().unwrap().1;
            }
            if let Some(start_ns) = mark.start_ns {
                self.settled_ns = start_ns.max(reached_ns);
                continue;
            }
            let charged_ns = self.entered.1 + self.charge(&view, reached_ns);
            self.bucket.settle(mark.predicted_ns, charged_ns, 1000);
            self.meter.finish(mark.predicted_ns, mark.count);
            let took_ns = view.scaled(reached_ns - self.settled_ns);
            let key = Key::function(0x1000);
            let known = self.table.predict(key, key);
            let part = Part {
                index: known.index,
                count: u16::try_from(mark.count).unwrap(),
            };
            self.table
                .learn(&[part], known.cost_ns * u64::from(mark.count), took_ns);
            self.settled_ns = reached_ns;
            self.entered = (reached_ns, 0);
        }
        let runs = self.marks.front().is_some_and(|mark| mark.start_ns.is_none());
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

    fn look(&self, now_ns: u64) -> Vec<u64> {
        let last = word_at(now_ns - 3_000_000);
        let word = |word: u64| {
            let (index, _) = busy::place(busy::WORDS, word);
            busy::bins_of(self.bucket.busy[index].load(Ordering::Relaxed), busy::WORDS, word)
        };
        (last - LOOK_BACK_WORDS..last).map(word).collect()
    }
}

/// The GPU: which context is resident, and what is left of its slice and of the switch to it.
struct Gpu {
    resident: usize,
    slice_ns: u64,
    switch_ns: u64,
}

impl Gpu {
    fn run(&mut self, containers: &mut [Container], from_ns: u64) {
        let mut left_ns = STEP_NS;
        while left_ns > 0 {
            if self.switch_ns > 0 {
                let part = self.switch_ns.min(left_ns);
                (self.switch_ns, left_ns) = (self.switch_ns - part, left_ns - part);
                continue;
            }
            let count = containers.len();
            let mut others = (1..count).map(|step| (self.resident + step) % count);
            let other = others.find(|other| !containers[*other].queue.is_empty());
            let is_idle = containers[self.resident].queue.is_empty();
            if is_idle || self.slice_ns == 0 {
                match other {
                    Some(other) => {
                        *self = Self {
                            resident: other,
                            slice_ns: SLICE_NS,
                            switch_ns: SWITCH_NS,
                        }
                    }
                    None if is_idle => return,
                    None => self.slice_ns = SLICE_NS,
                }
                continue;
            }
            let container = &mut containers[self.resident];
            for mark in container
                .marks
                .iter_mut()
                .take_while(|mark| mark.after <= container.done)
            {
                if mark.start_ns == Mark::NOT_YET {
                    mark.start_ns = Some(from_ns + STEP_NS - left_ns);
                }
            }
            let kernel = container.queue.front_mut().unwrap();
            let part = (*kernel).min(left_ns).min(self.slice_ns);
            *kernel -= part;
            (left_ns, self.slice_ns) = (left_ns - part, self.slice_ns - part);
            container.service_ns += part;
            if *kernel == 0 {
                container.queue.pop_front();
                container.done += 1;
                container
                    .ends
                    .push_back((container.done, from_ns + STEP_NS - left_ns));
            }
        }
    }
}

/// Runs the containers for `seconds` after a second of warm-up; the share of each, in percent.
fn shares(caps: &[u32], kernels: Vec<Kernels>, seconds: u64) -> Vec<f64> {
    let begin_ns = 1_000_000_000;
    let mut containers: Vec<Container> = caps
        .iter()
        .zip(kernels)
        .map(|(cap, kernels)| Container::new(*cap, kernels, begin_ns))
        .collect();
    let mut gpu = Gpu {
        resident: 0,
        slice_ns: SLICE_NS,
        switch_ns: 0,
    };
    let (warm_ns, end_ns) = (begin_ns + 1_000_000_000, begin_ns + (seconds + 1) * 1_000_000_000);
    let mut before = Vec::new();
    let mut now_ns = begin_ns;
    while now_ns < end_ns {
        if now_ns == warm_ns {
            before = containers.iter().map(|container| container.service_ns).collect();
        }
        gpu.run(&mut containers, now_ns);
        now_ns += STEP_NS;
        for container in &mut containers {
            container.reap(now_ns);
            container.host(now_ns);
        }
        if now_ns % controller::CONTENDED_NS == 0 {
            arbitrate(&mut containers, now_ns);
        }
    }
    let share = |(container, before): (&Container, &u64)| {
        (container.service_ns - before) as f64 / (seconds * 10_000_000) as f64
    };
    containers.iter().zip(&before).map(share).collect()
}

fn arbitrate(containers: &mut [Container], now_ns: u64) {
    let look = |container: &Container| Busy {
        map: container.look(now_ns),
        contexts: Contexts::default(),
    };
    let busy: Vec<Busy> = containers.iter().map(look).collect();
    let demands = busy.iter().filter(|one| one.map.iter().any(|bins| *bins != 0));
    let compete = demands.count() > 1;
    for (container, overlap) in containers.iter_mut().zip(controller::overlaps(&busy)) {
        container.scale.follow(overlap);
        container.pace.scale_permille = container.scale.permille();
        container.pace.contended = compete;
    }
}

#[track_caller]
fn near(got: &[f64], caps: &[u32], points: f64) {
    for (got, cap) in got.iter().zip(caps) {
        let cap = f64::from(*cap) / 10.0;
        assert!((got - cap).abs() <= points, "{got:.2} % instead of {cap} %");
    }
}

#[test]
fn one_container_alone_gets_its_cap() {
    for cap in [100, 500, 900] {
        for kernels in [all(10_000), all(20_000_000), mix(1)] {
            near(&shares(&[cap], vec![kernels], 2), &[cap], 1.0);
        }
    }
}

#[test]
fn two_that_leave_some_idle_get_their_caps() {
    for duration in [10_000, 1_000_000, 20_000_000] {
        near(
            &shares(&[300, 600], vec![all(duration), all(duration)], 3),
            &[300, 600],
            1.5,
        );
    }
    near(&shares(&[300, 600], vec![mix(1), mix(2)], 2), &[300, 600], 1.5);
}

#[test]
fn two_that_want_all_of_it_share_it() {
    for duration in [10_000, 1_000_000, 20_000_000] {
        near(
            &shares(&[300, 700], vec![all(duration), all(duration)], 3),
            &[300, 700],
            2.0,
        );
    }
    near(&shares(&[300, 700], vec![mix(1), mix(2)], 2), &[300, 700], 2.0);
}

#[test]
fn long_and_short_kernels_side_by_side() {
    near(
        &shares(&[300, 600], vec![all(10_000), all(20_000_000)], 3),
        &[300, 600],
        1.5,
    );
    near(
        &shares(&[300, 600], vec![all(20_000_000), all(10_000)], 3),
        &[300, 600],
        1.5,
    );
}

#[test]
fn four_share_as_two_do() {
    let caps = [100, 200, 300, 350];
    near(&shares(&caps, (1..5).map(mix).collect(), 2), &caps, 2.5);
    near(
        &shares(&caps, (1..5).map(|_| all(1_000_000)).collect(), 3),
        &caps,
        1.5,
    );
}
