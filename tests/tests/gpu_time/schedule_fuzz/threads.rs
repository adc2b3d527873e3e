//! The steps of a process's threads, at random.

use fastrand::Rng;

use crate::schedule_fuzz::generate::{LONGEST_US, family};
use crate::schedule_fuzz::script::{Script, Step};

/// Kinds of kernels of each script, and events of a context (`tests/apps/schedule.c`).
const GRIDS: u64 = 6;
const EVENTS: u64 = 4;
/// Work of one step at most (us).
const STEP_US: u64 = 200_000;

/// Script that is being made.
struct Maker<'r> {
    random: &'r mut Rng,
    families: u32,
    durations_us: Vec<u64>,
    contexts: u64,
    streams: u64,
}

/// A script at random, of these families and kernels of `longest_us` at most.
pub(crate) fn script(random: &mut Rng, families: u32, longest_us: u64) -> Script {
    let has = |family: u32| families & family != 0;
    let durations_us = (0..GRIDS).map(|_| log_uniform(random, 5, longest_us)).collect();
    let is_many = has(family::MANY);
    let threads = match (has(family::THREADS), is_many) {
        (true, true) => random.usize(8..17),
        (true, false) => random.usize(2..7),
        _ => 1,
    };
    let mut maker = Maker {
        families,
        durations_us,
        contexts: if has(family::CONTEXTS) { random.u64(2..6) } else { 1 },
        streams: match (has(family::STREAMS), is_many) {
            (true, true) => random.u64(40..100),
            (true, false) => random.u64(4..12),
            _ => 4,
        },
        random,
    };
    let threads = (0..threads).map(|_| maker.thread()).collect();
    Script { contexts: maker.contexts, streams: maker.streams, threads }
}

/// Between two numbers; each order of magnitude as often as another.
pub(crate) fn log_uniform(random: &mut Rng, least: u64, most: u64) -> u64 {
    let (least, most) = ((least as f64).ln(), (most as f64).ln());
    (least + random.f64() * (most - least)).exp() as u64
}

impl Maker<'_> {
    fn has(&self, family: u32) -> bool {
        self.families & family != 0
    }

    fn stream(&mut self) -> u64 {
        let context = self.random.u64(..self.contexts);
        let number = if self.has(family::STREAMS) || self.random.u8(..4) == 0 {
            self.random.u64(..self.streams)
        } else {
            3
        };
        context * self.streams + number
    }

    fn created_stream(&mut self) -> u64 {
        self.random.u64(..self.contexts) * self.streams + self.random.u64(2..self.streams)
    }

    fn event(&mut self) -> u64 {
        self.random.u64(..self.contexts * EVENTS)
    }

    /// A kind of kernel: grid and time (us).
    fn kernel(&mut self) -> [u64; 2] {
        let grid = self.random.usize(..self.durations_us.len());
        let us = if self.has(family::VARIES) {
            self.durations_us[self.random.usize(..self.durations_us.len())]
        } else {
            self.durations_us[grid]
        };
        // The limiter tells grids apart by the power of two.
        [1 << grid, us]
    }

    fn launches(&mut self, stream: u64) -> Step {
        let [grid, us] = self.kernel();
        let most = (STEP_US / us).clamp(1, 200);
        let count = log_uniform(self.random, 1, most + 1);
        Step::new('L', &[stream, grid, us, count])
    }

    fn thread(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        for _ in 0..self.random.usize(1..7) {
            self.add(&mut steps);
        }
        let stream = self.stream();
        steps.push(self.launches(stream));
        match self.random.u8(..8) {
            0..4 => steps.push(Step::new('S', &[stream])),
            4 => steps.push(Step::new('D', &[])),
            5 => {
                let pause_us = self.random.u64(20..500);
                steps.push(Step::new('Q', &[stream, pause_us]));
            }
            // On and on, without waiting for anything.
            _ => {}
        }
        steps
    }

    fn add(&mut self, steps: &mut Vec<Step>) {
        let stream = self.stream();
        match self.random.u8(..12) {
            0..3 => steps.push(self.launches(stream)),
            3 if self.has(family::POLLS) => {
                let event = self.event();
                if self.random.bool() {
                    steps.push(Step::new('Q', &[stream, 0]));
                } else {
                    steps.push(Step::new('R', &[stream, event]));
                    steps.push(Step::new('O', &[event, 0]));
                }
            }
            3 => steps.push(Step::new('S', &[stream])),
            4 => steps.push(Step::new('P', &[log_uniform(self.random, 10, 20_000)])),
            5 if self.has(family::GRAPHS) => {
                let [grid, us] = self.kernel();
                let most = (LONGEST_US[3] / us).clamp(1, 50);
                let count = self.random.u64(1..=most);
                steps.push(Step::new('G', &[stream, grid, us, count]));
            }
            6 if self.has(family::CAPTURES)
                && (!self.has(family::THREADS) || self.has(family::BESIDE_CAPTURES)) =>
            {
                self.capture(steps);
            }
            7 if self.has(family::EVENTS) => self.waits(steps),
            8 if self.has(family::HOST) => self.gate(steps),
            9 if self.has(family::RENEWALS) => self.renewal(steps),
            10 if self.has(family::CONTEXTS) => {
                let context = self.random.u64(..self.contexts);
                steps.push(Step::new('X', &[context]));
            }
            9 | 10 if self.has(family::SIGNALS) && !self.has(family::HOST) => {
                let mut launches = self.launches(stream);
                launches.what = if self.random.bool() { 'I' } else { 'J' };
                steps.push(launches);
            }
            11 if self.has(family::LONG_ENDS) => steps.push(Step::new('T', &[])),
            11 => steps.push(Step::new('D', &[])),
            _ => steps.push(self.launches(stream)),
        }
    }

    /// A graph, captured and thrown away, of at most `LONGEST_US`; work elsewhere meanwhile.
    fn capture(&mut self, steps: &mut Vec<Step>) {
        let captured = self.created_stream();
        let mode = self.random.u64(..3);
        steps.push(Step::new('B', &[captured, mode]));
        let [grid, us] = self.kernel();
        let most = (LONGEST_US[3] / us).clamp(1, 50);
        let count = self.random.u64(1..=most);
        steps.push(Step::new('L', &[captured, grid, us, count]));
        if self.has(family::BESIDE_CAPTURES) {
            let other = self.created_stream();
            if other != captured {
                steps.push(self.launches(other));
            }
        }
        steps.push(Step::new('E', &[captured]));
    }

    fn waits(&mut self, steps: &mut Vec<Step>) {
        let (from, to, event) = (self.stream(), self.stream(), self.event());
        steps.push(Step::new('R', &[from, event]));
        steps.push(match self.random.u8(..3) {
            0 => Step::new('Y', &[event]),
            _ => Step::new('W', &[to, event]),
        });
    }

    /// A stream waits for a flag or for host functions, has work behind, and the flag comes.
    fn gate(&mut self, steps: &mut Vec<Step>) {
        let stream = self.created_stream();
        let flag = self.random.u64(..64);
        let is_flag = self.random.bool();
        if is_flag {
            steps.push(Step::new('V', &[stream, flag]));
        }
        for _ in 0..self.random.u32(u32::from(!is_flag)..3) {
            let us = log_uniform(self.random, 1, 20_000);
            steps.push(Step::new('H', &[stream, us]));
        }
        steps.push(self.launches(stream));
        if is_flag {
            steps.push(Step::new('U', &[flag]));
        }
    }

    fn renewal(&mut self, steps: &mut Vec<Step>) {
        // Others may use what one thread makes anew: a program does that at its own risk, a fuzzer does not.
        let is_sole = !self.has(family::THREADS);
        if self.contexts > 1 && is_sole && self.random.u8(..4) == 0 {
            let context = self.random.u64(1..self.contexts);
            steps.push(Step::new('C', &[context]));
        } else if is_sole {
            let stream = self.created_stream();
            steps.push(Step::new('N', &[stream]));
        }
    }
}
