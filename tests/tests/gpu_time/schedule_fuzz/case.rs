//! One experiment as data: what its processes do, and what is done to them. Its text can be read back, and is what a failure prints.
//!
//! ```text
//! lasts 12000                 how long it is played (virtual ms)
//! cap 30                      the tenant's share (percent)
//! neighbour 70                an honest tenant beside it, with that share
//! process 1 4 | L2,1,1000,8 S2   a process of the tenant: a script of tests/apps/schedule.c
//! at 3000 cap 10              from 3 s on
//! at 4000 stop 0              SIGSTOP to process 0
//! at 4500 resume 0            SIGCONT
//! at 5000 kill 0              SIGKILL
//! at 5100 claim 512           from 5.1 s on its `usage` claims so many busy contexts, and work that is none
//! at 5200 start 0             the same script, as a new process
//! gpus 2                      contexts lie on two GPUs in turn (1)
//! offset 3                    the clocks of every other process of the tenant, of the first one too, are ahead by so much (s)
//! lies                        its `usage` claims 512 busy contexts
//! stays                       a process that stops itself is not continued at the next look
//! ```

use std::fmt;
use std::str::FromStr;

use crate::schedule_fuzz::script::Script;

/// Event of the tenant's life. Processes are numbered by their scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Cap(u32),
    Stop(usize),
    Resume(usize),
    Kill(usize),
    Start(usize),
    Claim(u32),
}

/// The experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Case {
    /// Virtual milliseconds.
    pub(crate) lasts_ms: u64,
    /// Percent.
    pub(crate) cap: u32,
    /// Percent.
    pub(crate) neighbour: Option<u32>,
    pub(crate) gpus: usize,
    /// Seconds.
    pub(crate) offset_s: i64,
    pub(crate) scripts: Vec<Script>,
    /// Milliseconds from the beginning, in order.
    pub(crate) events: Vec<(u64, Event)>,
    pub(crate) stays: bool,
    pub(crate) lies: bool,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "lasts {}\ncap {}", self.lasts_ms, self.cap)?;
        if let Some(percent) = self.neighbour {
            writeln!(f, "neighbour {percent}")?;
        }
        if self.gpus > 1 {
            writeln!(f, "gpus {}", self.gpus)?;
        }
        if self.offset_s != 0 {
            writeln!(f, "offset {}", self.offset_s)?;
        }
        for script in &self.scripts {
            writeln!(f, "process {script}")?;
        }
        for (at_ms, event) in &self.events {
            let (what, number) = match event {
                Event::Cap(percent) => ("cap", u64::from(*percent)),
                Event::Stop(process) => ("stop", *process as u64),
                Event::Resume(process) => ("resume", *process as u64),
                Event::Kill(process) => ("kill", *process as u64),
                Event::Start(process) => ("start", *process as u64),
                Event::Claim(contexts) => ("claim", u64::from(*contexts)),
            };
            writeln!(f, "at {at_ms} {what} {number}")?;
        }
        if self.stays {
            writeln!(f, "stays")?;
        }
        if self.lies {
            writeln!(f, "lies")?;
        }
        Ok(())
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut case = Case {
            lasts_ms: 12_000,
            cap: 0,
            neighbour: None,
            gpus: 1,
            offset_s: 0,
            scripts: Vec::new(),
            events: Vec::new(),
            stays: false,
            lies: false,
        };
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let wrong = |_| format!("what is {line:?}?");
            let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
            match what {
                "lasts" => case.lasts_ms = rest.parse().map_err(wrong)?,
                "cap" => case.cap = rest.parse().map_err(wrong)?,
                "neighbour" => case.neighbour = Some(rest.parse().map_err(wrong)?),
                "gpus" => case.gpus = rest.parse().map_err(wrong)?,
                "offset" => case.offset_s = rest.parse().map_err(wrong)?,
                "process" => case.scripts.push(rest.parse()?),
                "stays" => case.stays = true,
                "lies" => case.lies = true,
                "at" => {
                    let words: Vec<&str> = rest.split(' ').collect();
                    let [at_ms, what, number] = words[..] else {
                        return Err(format!("what is {line:?}?"));
                    };
                    let process = || number.parse().map_err(wrong);
                    let event = match what {
                        "cap" => Event::Cap(number.parse().map_err(wrong)?),
                        "stop" => Event::Stop(process()?),
                        "resume" => Event::Resume(process()?),
                        "kill" => Event::Kill(process()?),
                        "start" => Event::Start(process()?),
                        "claim" => Event::Claim(number.parse().map_err(wrong)?),
                        _ => return Err(format!("what is {line:?}?")),
                    };
                    case.events.push((at_ms.parse().map_err(wrong)?, event));
                }
                _ => return Err(format!("what is {line:?}?")),
            }
        }
        Ok(case)
    }
}
