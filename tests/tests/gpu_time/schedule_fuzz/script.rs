//! Script of one process, as `tests/apps/schedule.c` reads it, and how much GPU time of it may be in flight at a time.

use std::fmt;
use std::str::FromStr;

/// Launches that may be paid as predicted before one of them was measured (docs/limits.md, "GPU time").
const UNMEASURED_MAX: u64 = 512;

/// One step of a thread: a letter of `tests/apps/schedule.c`, and its numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) what: char,
    pub(crate) numbers: Vec<u64>,
}

impl Step {
    pub(crate) fn new(what: char, numbers: &[u64]) -> Self {
        Step { what, numbers: numbers.to_vec() }
    }

    fn number(&self, position: usize) -> u64 {
        self.numbers.get(position).copied().unwrap_or(1)
    }

    /// Launches of the step.
    fn launches(&self) -> u64 {
        match self.what {
            'L' | 'I' | 'J' => self.number(3),
            'G' | 'E' | 'M' => 1,
            _ => 0,
        }
    }

    /// GPU time of one kernel (ns), and how many there are, if it launches any.
    pub(crate) fn kernels(&self) -> Option<(u64, u64)> {
        matches!(self.what, 'L' | 'I' | 'J' | 'G' | 'M').then(|| (self.number(2) * 1000, self.number(3)))
    }
}

/// Work of a process: contexts, streams of each, and its threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) contexts: u64,
    pub(crate) streams: u64,
    pub(crate) threads: Vec<Vec<Step>>,
}

impl Script {
    /// Whether it has kernels that wait for those of other ranks.
    pub(crate) fn has_meetings(&self) -> bool {
        self.threads.iter().flatten().any(|step| step.what == 'M')
    }

    /// GPU time of its longest launch (ns): of a kernel, of a graph, or of a capture.
    pub(crate) fn longest_ns(&self) -> u64 {
        self.longest_of_threads().max().unwrap_or(0)
    }

    /// GPU time of the launches that may go at the same moment (ns): the longest one; of each thread the longest, where signal handlers
    /// launch: the launches that waited before the interrupted one then go without turns (`step_aside` in the shim's `admission.rs`).
    pub(crate) fn at_once_ns(&self) -> u64 {
        let has_signals = self.threads.iter().flatten().any(|step| matches!(step.what, 'I' | 'J'));
        if has_signals { self.longest_of_threads().sum() } else { self.longest_ns() }
    }

    fn longest_of_threads(&self) -> impl Iterator<Item = u64> {
        let of_thread = |steps: &Vec<Step>| {
            let (mut longest_ns, mut captured_ns) = (0, None);
            for step in steps {
                let (kernel_ns, count) = step.kernels().unwrap_or_default();
                match step.what {
                    'B' => captured_ns = Some(0),
                    'E' => longest_ns = longest_ns.max(captured_ns.take().unwrap_or(0)),
                    'G' => longest_ns = longest_ns.max(kernel_ns * count),
                    _ => longest_ns = longest_ns.max(kernel_ns),
                }
                captured_ns = captured_ns.map(|sum: u64| sum + kernel_ns * count);
            }
            longest_ns
        };
        self.threads.iter().map(of_thread)
    }

    /// GPU time of the launches of a round whose time cannot be predicted (ns): another one of the same kind, by its grid's power of
    /// two, takes at least twice as long or half as long.
    pub(crate) fn unpredictable_ns(&self) -> u64 {
        let kernels = || self.threads.iter().flatten().filter(|step| matches!(step.what, 'L' | 'I' | 'J'));
        let kind = |step: &Step| step.number(1).ilog2();
        let is_other = |step: &Step, other: &Step| {
            let (us, other_us) = (step.number(2), other.number(2));
            kind(step) == kind(other) && us.max(other_us) >= 2 * us.min(other_us)
        };
        let unpredictable = kernels().filter(|step| kernels().any(|other| is_other(step, other)));
        let times = unpredictable.filter_map(Step::kernels);
        times.map(|(ns, count)| ns * count).sum()
    }

    /// GPU time that may wait behind flags and host functions at a time (ns): of each thread what follows one of them, and a round of what
    /// goes to a stream that has one, or that waits for such a stream: all do once something is launched on a legacy stream. Of kernels
    /// whose time cannot be predicted it is all that a thread launches before one was measured, if it does not wait for those streams
    /// (docs/limits.md, "GPU time").
    pub(crate) fn gated_ns(&self) -> u64 {
        let steps = || self.threads.iter().flatten();
        let is_gate = |step: &Step| matches!(step.what, 'V' | 'H');
        let is_launch = |step: &Step| step.kernels().is_some();
        let is_legacy = |step: &Step| step.number(0).is_multiple_of(self.streams);
        let has_legacy = steps().any(|step| is_launch(step) && is_legacy(step));
        let gates: Vec<u64> = steps().filter(|step| is_gate(step)).map(|step| step.number(0)).collect();
        if gates.is_empty() {
            return 0;
        }
        let varies = self.unpredictable_ns() > 0;
        let of_thread = |steps: &Vec<Step>| {
            let mut is_behind = false;
            let waits = steps.iter().filter(|step| {
                is_behind |= is_gate(step);
                is_behind || has_legacy || gates.contains(&step.number(0))
            });
            let kernels = waits.filter_map(Step::kernels);
            let round_ns = kernels.map(|(ns, count)| ns * count).sum::<u64>();
            let drains = |step: &Step| match step.what {
                'D' => true,
                'S' => gates.contains(&step.number(0)),
                // Without sleeping, not for so long.
                'Q' => step.number(1) > 0 && gates.contains(&step.number(0)),
                _ => false,
            };
            // Rounds go on while the first kernel waits, each paid as predicted.
            let goes_on = varies && is_behind && !steps.iter().any(drains);
            let launches: u64 = steps.iter().map(Step::launches).sum();
            if goes_on { round_ns * (UNMEASURED_MAX / launches.max(1)).max(1) } else { round_ns }
        };
        self.threads.iter().map(of_thread).sum()
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.numbers.iter().map(u64::to_string).collect();
        write!(f, "{}{}", self.what, numbers.join(","))
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.contexts, self.streams)?;
        for steps in &self.threads {
            write!(f, " |")?;
            steps.iter().try_for_each(|step| write!(f, " {step}"))?;
        }
        Ok(())
    }
}

impl FromStr for Script {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |word: &str| format!("what is {word:?}?");
        let mut parts = text.split('|');
        let counts = parts.next().unwrap_or_default();
        let (contexts, streams) = counts.trim().split_once(' ').ok_or_else(|| wrong(counts))?;
        let number = |word: &str| word.trim().parse().map_err(|_| wrong(word));
        let step = |word: &str| {
            let what = word.chars().next().ok_or_else(|| wrong(word))?;
            let rest = word.get(1..).ok_or_else(|| wrong(word))?;
            let numbers = rest.split(',').filter(|number| !number.is_empty());
            let numbers = numbers.map(number).collect::<Result<_, _>>()?;
            Ok(Step { what, numbers })
        };
        let threads = parts.map(|steps| steps.split_whitespace().map(step).collect());
        Ok(Script {
            contexts: number(contexts)?,
            streams: number(streams)?,
            threads: threads.collect::<Result<_, String>>()?,
        })
    }
}
