//! Plays a case in virtual time, and keeps the simulator's exact record of it.

use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::Ordering;

use tempfile::TempDir;
use vcuda_benches::lab::{Lab, Load};
use vcuda_limiter::busy;
use vcuda_region::DeviceIndex;
use vcuda_region::slots::Usage;
use vcuda_tests::{Door, app, skip};

use crate::schedule_fuzz::case::{Case, Event};

pub(crate) const MS: u64 = 1_000_000;
/// Most GPUs of a case.
pub(crate) const GPUS: usize = 2;
/// Between two looks at the record (virtual ms).
const LOOK_MS: u64 = 200;
/// Between two claims of a tenant (virtual ns).
const CLAIM_NS: u64 = 10 * MS;
/// Time in which a tenant begins (virtual ns).
const BEGINS_NS: u64 = 100 * MS;
/// Small contexts: a case makes many, and anew.
const MACHINE: &str = "context_bytes = \"4MiB\"\n";
const GPU: &str = "[[gpus]]\nmemory_bytes = \"80GiB\"\n";
/// The honest neighbour: kernels of 1 ms, eight at a time.
const HONEST: &str = "1 4 | L3,9,1000,8 S3";

/// The record up to one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    /// Virtual time since the case began (ns).
    pub(crate) at_ns: u64,
    /// Service of the tenant, dead processes included, on each GPU, and of its neighbour (ns).
    pub(crate) tenant_ns: [u64; GPUS],
    pub(crate) neighbour_ns: u64,
    /// Time that switches between contexts took (ns).
    pub(crate) switched_ns: u64,
    /// The cap from here to the next look (percent).
    pub(crate) cap: u32,
}

/// A case that is being played.
struct Stage<'c> {
    case: &'c Case,
    lab: Lab,
    cap: u32,
    /// Busy contexts that the tenant claims to have.
    claimed: u32,
    /// The tenant's number, and the process that each script is now, with whether an event has stopped it.
    tenant: usize,
    processes: Vec<Option<(usize, bool)>>,
    start_ns: u64,
    looks: Vec<Look>,
    /// Where ranks find each other.
    folder: TempDir,
}

/// The record of a case.
///
/// # Errors
/// A process ends by itself, or the world stands still.
pub(crate) fn play(case: &Case) -> Result<Vec<Look>, String> {
    let mut stage = Stage::new(case).map_err(|error| format!("{error:#}"))?;
    stage.run().map_err(|error| format!("{error:#}"))?;
    Ok(stage.looks)
}

/// Offset of the clocks of a script's process (s): of each of them 0 where time namespaces are not permitted.
fn offset_s(case: &Case, script: usize) -> i64 {
    static ARE_PERMITTED: LazyLock<bool> = LazyLock::new(|| {
        let tried = Command::new("unshare").args(["--time", "--monotonic", "7", "true"]).status();
        let are_permitted = tried.is_ok_and(|status| status.success());
        if !are_permitted {
            skip("time namespaces: unshare --time is not permitted or not known here");
        }
        are_permitted
    });
    if script.is_multiple_of(2) && case.offset_s != 0 && *ARE_PERMITTED { case.offset_s } else { 0 }
}

type Done = Result<(), Box<dyn std::error::Error + Send + Sync>>;

impl<'c> Stage<'c> {
    fn new(case: &'c Case) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let mut lab =
            Lab::new(&app("schedule", Door::Dlsym), &(MACHINE.to_owned() + &GPU.repeat(case.gpus)))?;
        if let Some(percent) = case.neighbour {
            lab.start(Load { quota: &["--cores", &percent.to_string()], program: &[HONEST], processes: 1 })?;
            lab.run_for(500 * MS)?;
        }
        let start_ns = lab.now_ns();
        let scripts: Vec<String> = case.scripts.iter().map(ToString::to_string).collect();
        let cap = case.cap.to_string();
        let (first, others) = scripts.split_first().ok_or("no process")?;
        let folder = tempfile::tempdir()?;
        let place = folder.path().display().to_string();
        lab.shift(offset_s(case, 0));
        let tenant =
            lab.start(Load { quota: &["--cores", &cap], program: &[first, &place], processes: 1 })?;
        let mut processes = vec![Some((0, false))];
        for (number, script) in (1..).zip(others) {
            lab.shift(offset_s(case, number));
            processes.push(Some((lab.join(tenant, &["--cores", &cap], &[script, &place])?, false)));
        }
        let ranks = case.scripts.iter().filter(|script| script.has_meetings()).count();
        while std::fs::read_dir(&folder)?.count() < ranks {
            lab.run_for(MS)?;
            lab.are_alive()?;
        }
        std::fs::write(folder.path().join("go"), "")?;
        Ok(Stage {
            case,
            cap: case.cap,
            claimed: 0,
            lab,
            tenant,
            processes,
            start_ns,
            looks: Vec::new(),
            folder,
        })
    }

    fn run(&mut self) -> Done {
        let mut events = self.case.events.iter().peekable();
        self.look()?;
        for at_ms in (LOOK_MS..=self.case.lasts_ms).step_by(usize::try_from(LOOK_MS)?) {
            while let Some((when_ms, event)) = events.next_if(|(when_ms, _)| *when_ms < at_ms) {
                self.run_until(*when_ms)?;
                self.look()?;
                self.happen(*event)?;
            }
            self.run_until(at_ms)?;
            self.look()?;
            if self.case.lies {
                self.lie()?;
            }
            self.lab.are_alive()?;
            self.resume_those_who_stopped_themselves()?;
        }
        Ok(())
    }

    /// Claims 512 contexts that were busy since the last look. (Claims of work in the busy map are the audit's, by NVML's figures.)
    fn lie(&self) -> Done {
        // A tenant all of whose processes were killed is gone, until one begins anew.
        if let Ok(usage) = Usage::open(&self.lab.directory(self.tenant)?) {
            let bucket = usage.bucket(DeviceIndex::new(0).ok_or("no device")?);
            bucket.contexts_ns.fetch_add(512 * LOOK_MS * MS, Ordering::Relaxed);
        }
        Ok(())
    }

    fn run_until(&self, at_ms: u64) -> Done {
        loop {
            let left_ns = (self.start_ns + at_ms * MS).saturating_sub(self.lab.now_ns());
            if self.claimed == 0 || left_ns == 0 {
                return Ok(self.lab.run_for(left_ns)?);
            }
            self.claim()?;
            self.lab.run_for(left_ns.min(CLAIM_NS))?;
        }
    }

    /// Claims that contexts were busy since the last claim, and work in the busy map. (That a manager reports this, `lies` tests.)
    fn claim(&self) -> Done {
        if let Ok(usage) = Usage::open(&self.lab.directory(self.tenant)?) {
            let bucket = usage.bucket(DeviceIndex::new(0).ok_or("no device")?);
            let now_ns = self.lab.now_ns();
            let _ = busy::mark(&bucket.busy, now_ns.saturating_sub(CLAIM_NS), now_ns + 2 * CLAIM_NS);
            bucket.charge(1);
            bucket.measured_ns.fetch_add(CLAIM_NS, Ordering::Relaxed);
            bucket.contexts_ns.fetch_add(u64::from(self.claimed) * CLAIM_NS, Ordering::Relaxed);
        }
        Ok(())
    }

    fn look(&mut self) -> Done {
        let (service, switched_ns) = self.lab.record_ns()?;
        let sum = |tenant: usize| service.get(tenant).map_or(0, |all| all.iter().sum());
        self.looks.push(Look {
            at_ns: self.lab.now_ns() - self.start_ns,
            // A tenant on two GPUs has no neighbour.
            tenant_ns: if self.case.gpus > 1 { self.lab.busy_ns()? } else { [sum(self.tenant), 0] },
            neighbour_ns: if self.case.neighbour.is_some() { sum(0) } else { 0 },
            switched_ns,
            cap: self.cap,
        });
        Ok(())
    }

    /// An event for a process that is not there, or stands where the event would bring it, is none.
    fn happen(&mut self, event: Event) -> Done {
        match event {
            Event::Cap(percent) => {
                self.lab.set(self.tenant, &["--cores", &percent.to_string()])?;
                self.cap = percent;
                if let Some(look) = self.looks.last_mut() {
                    look.cap = percent;
                }
            }
            Event::Claim(contexts) => self.claimed = contexts,
            Event::Stop(script) => {
                if let Some((process, by_event)) = self.processes.get_mut(script).and_then(Option::as_mut)
                    && !self.lab.is_stopped(self.tenant, *process)?
                {
                    self.lab.stop(self.tenant, *process)?;
                    *by_event = true;
                }
            }
            Event::Resume(script) => {
                if let Some((process, by_event)) = self.processes.get_mut(script).and_then(Option::as_mut)
                    && std::mem::take(by_event)
                {
                    self.lab.resume(self.tenant, *process)?;
                }
            }
            Event::Kill(script) => {
                if let Some((process, _)) = self.processes.get_mut(script).and_then(Option::take) {
                    self.lab.kill(self.tenant, process)?;
                }
            }
            Event::Start(script) => {
                let is_alone = self.processes.iter().all(Option::is_none);
                let what = self.case.scripts.get(script).map(ToString::to_string);
                if let (Some(what), Some(place)) = (what, self.processes.get_mut(script))
                    && place.is_none()
                {
                    let cap = self.cap.to_string();
                    self.lab.shift(offset_s(self.case, script));
                    let folder = self.folder.path().display().to_string();
                    let process = self.lab.join(self.tenant, &["--cores", &cap], &[&what, &folder])?;
                    *place = Some((process, false));
                    if is_alone {
                        // It makes the tenant anew, once the dead ones' memory is released. A cap set before would be theirs.
                        self.lab.run_for(BEGINS_NS)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn resume_those_who_stopped_themselves(&self) -> Done {
        for (process, by_event) in self.processes.iter().flatten() {
            if !by_event && !self.case.stays && self.lab.is_stopped(self.tenant, *process)? {
                self.lab.resume(self.tenant, *process)?;
            }
        }
        Ok(())
    }
}
