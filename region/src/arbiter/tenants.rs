//! The tenants as the arbiter knows them: their two files, kept open, and what each was last told.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{CALM_NS, Finding, Found};
use crate::account::Pace;
use crate::controller::{Activity, Busy, Contender, Contexts, Got, RECENT_NS, Scale, Settlement};
use crate::limits::{LimitsWriter, Policy, Priority};
use crate::observer::Observer;
use crate::{DeviceIndex, GpuUuid, MAX_DEVICES, busy};

/// How often a tenant's `limits` are read again and the beat written there (ns).
const BEAT_NS: u64 = 95_000_000;
/// The scale is written when it has changed by this much (thousandths), and at once if by that much.
const SCALE_STEP: (u32, u32) = (2, 20);
/// What was charged too much or too little is settled when it has come to this much (ns), and at once if to that much.
const DUE_STEP_NS: (u64, u64) = (20_000, 400_000);
/// Between two times that small changes are written (ns).
const WRITE_NS: u64 = 38_000_000;

/// Words of the busy map that tell of the recent time.
const RECENT_WORDS: usize = (RECENT_NS / (busy::BIN_NS * busy::BINS_PER_WORD)) as usize;

/// One whose files cannot be read: it has no demand.
pub(super) const ABSENT: Contender = Contender {
    policy: Policy::Fixed,
    guarantee_permille: 0,
    cap_permille: 1,
    weight: 1,
    priority: Priority::Low,
    demand_permille: 0,
};

/// A tenant's files, opened once.
#[derive(Debug)]
pub(super) struct Tenant {
    path: PathBuf,
    /// Device and inode of `limits`: a later run of the same name has another file.
    file: (u64, u64),
    writer: LimitsWriter,
    observer: Observer,
    /// When the beat was last written, and whether the files were sound then.
    beaten_ns: u64,
    is_sound: bool,
    devices: [State; MAX_DEVICES],
}

/// What the arbiter remembers of a tenant on one GPU.
#[derive(Debug, Default)]
struct State {
    scale: Scale,
    contexts: Contexts,
    settlement: Settlement,
    contended_until_ns: u64,
    /// When its pace was last written (ns).
    written_ns: u64,
    /// It demanded nothing at the last look, and the word that changes when it begins was this.
    idle_at: Option<i64>,
}

/// All tenants of this user.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    tenants: Vec<Tenant>,
    listed: usize,
}

impl Tenants {
    /// Opens who is new and forgets who is gone. One that cannot be opened, as it is being made or removed or is damaged,
    /// is tried again.
    pub(super) fn refresh(&mut self, listed: Vec<(String, PathBuf)>, now_ns: u64) {
        self.listed = listed.len();
        self.tenants
            .retain(|tenant| file_of(&tenant.path) == Some(tenant.file));
        for (_, path) in listed {
            if !self.tenants.iter().any(|tenant| tenant.path == path) {
                self.tenants.extend(Tenant::open(path, now_ns));
            }
        }
    }

    /// There is more than one.
    pub(super) fn are_several(&self) -> bool {
        self.listed > 1
    }

    /// No tenant is left, none that could not be opened either.
    pub(super) fn is_empty(&self) -> bool {
        self.listed == 0
    }

    /// Whether one that was idle at the last look has begun, or a quota was changed since. Cheap: a word or two of each.
    pub(super) fn have_stirred(&self) -> bool {
        self.tenants.iter().any(Tenant::has_stirred)
    }

    /// Whether at the last look one demanded something and another did not, that may begin beside it any time.
    pub(super) fn may_meet(&self) -> bool {
        let mut seen = [false; 2];
        for tenant in &self.tenants {
            for (device, _) in tenant.writer.limits().devices() {
                let is_idle = tenant.state(device).is_some_and(|state| state.idle_at.is_some());
                let [busy, idle] = &mut seen;
                *(if is_idle { idle } else { busy }) = true;
            }
        }
        seen == [true, true]
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Tenant> {
        self.tenants.iter_mut()
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut Tenant> {
        self.tenants.get_mut(at)
    }
}

/// The part of these words' time that is marked as busy (thousandths).
fn busy_permille(map: &[u64]) -> u32 {
    let busy: u64 = map.iter().map(|bins| u64::from(bins.count_ones())).sum();
    let all = map.len() as u64 * busy::BINS_PER_WORD;
    u32::try_from(busy * 1000 / all.max(1)).unwrap_or(1000)
}

fn file_of(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path.join("limits")).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

impl Tenant {
    fn open(path: PathBuf, now_ns: u64) -> Option<Self> {
        let file = file_of(&path)?;
        let writer = LimitsWriter::open(&path).ok()?;
        let observer = Observer::open(&path).ok()?;
        let mut devices: [State; MAX_DEVICES] = core::array::from_fn(|_| State::default());
        // An arbiter before this one knew more.
        for ((device, _), state) in writer.limits().devices().zip(&mut devices) {
            if let Ok(pace) = writer.limits().pace(device)
                && pace.contended
            {
                state.scale = Scale::from_permille(pace.scale_permille);
                state.contended_until_ns = now_ns + CALM_NS;
            }
        }
        Some(Self {
            path,
            file,
            writer,
            observer,
            beaten_ns: 0,
            is_sound: false,
            devices,
        })
    }

    fn state(&self, device: DeviceIndex) -> Option<&State> {
        self.devices.get(device.get())
    }

    fn has_stirred(&self) -> bool {
        let mut devices = self.writer.limits().devices();
        let begins = |device| {
            let idle_at = self.state(device).and_then(|state| state.idle_at);
            idle_at.is_some_and(|level_ns| self.observer.level_ns(device).is_ok_and(|now| now != level_ns))
        };
        self.writer.is_outdated() || devices.any(|(device, _)| begins(device))
    }

    /// The GPUs that it was given.
    pub(super) fn devices(&self) -> Vec<(DeviceIndex, GpuUuid)> {
        self.writer.limits().devices().collect()
    }

    /// Now and then says that the arbiter is at work, and reads what `vcuda set` has changed, at once if it has. Whether
    /// the tenant's files can be used: one whose files were damaged is left alone until they are sound.
    pub(super) fn beat(&mut self, now_ns: u64) -> bool {
        if now_ns >= self.beaten_ns.saturating_add(BEAT_NS) || self.writer.is_outdated() {
            self.is_sound = self.writer.refresh().is_ok() && self.writer.beat(now_ns).is_ok();
            self.beaten_ns = now_ns;
        }
        self.is_sound
    }

    /// When the tenant says that it was busy on `device`, from word `first` of its busy map up to `last`, and what it
    /// demands. Nothing if its files cannot be read.
    pub(super) fn look(
        &mut self,
        device: DeviceIndex,
        first: u64,
        last: u64,
        now_ns: u64,
    ) -> Option<(Busy, Contender)> {
        let limits = self.writer.limits();
        let (config, pace) = (limits.config(device).ok()?, limits.pace(device).ok()?);
        let account = self.observer.account(device).ok()?;
        let map = self.observer.busy(device, first, last).ok()?;
        let recent = map.len().saturating_sub(RECENT_WORDS);
        let activity = Activity {
            busy_permille: busy_permille(&map),
            recent_permille: busy_permille(map.get(recent..).unwrap_or_default()),
            is_waiting: account.is_waiting,
            // What is not metered owes nothing.
            balance_ns: if pace.metered {
                pace.credit_at(now_ns).saturating_sub(account.level_ns)
            } else {
                0
            },
        };
        let demand_permille = activity.demand_permille();
        let state = self.devices.get_mut(device.get())?;
        state.settlement.read(now_ns, account.measured);
        state.idle_at = (demand_permille == 0).then_some(account.level_ns);
        if demand_permille > 0 {
            state
                .contexts
                .follow(self.observer.processes_at_work(device).ok()?);
        }
        let busy = Busy {
            map,
            contexts: state.contexts,
        };
        Some((busy, Contender::new(&config, demand_permille)))
    }

    /// Which tenant it is, whatever becomes of others.
    pub(super) fn file(&self) -> (u64, u64) {
        self.file
    }

    /// When it was busy on `device` in the words `first` to `last`, long enough ago that all of it was entered.
    pub(super) fn look_back(&self, device: DeviceIndex, first: u64, last: u64) -> Busy {
        Busy {
            map: self.observer.busy(device, first, last).unwrap_or_default(),
            contexts: self.state(device).map(|state| state.contexts).unwrap_or_default(),
        }
    }

    /// What it got in the words of the last look back, all of which was entered at `entered_ns`.
    pub(super) fn settle(&mut self, device: DeviceIndex, got: Got, entered_ns: u64) {
        if let Some(state) = self.devices.get_mut(device.get()) {
            state.settlement.follow(got, entered_ns);
        }
    }

    /// Writes what a look has changed.
    pub(super) fn pace(&mut self, device: DeviceIndex, finding: &Finding, now_ns: u64) -> Found {
        let mut found = Found::default();
        let Some(state) = self.devices.get_mut(device.get()) else {
            return found;
        };
        if finding.compete {
            state.contended_until_ns = now_ns + CALM_NS;
        }
        let contended = now_ns < state.contended_until_ns;
        if contended {
            state.scale.follow(finding.overlap);
        } else {
            state.scale = Scale::default();
        }
        found.is_contended = contended;
        let Ok(now) = self.writer.limits().pace(device) else {
            return found;
        };
        found.has_changed = finding.rate != now.rate_permille || contended != now.contended;
        let mut next = Pace {
            contended,
            baton: false,
            ..now
        };
        let scale = state.scale.permille();
        let is_due = now_ns >= state.written_ns + WRITE_NS;
        let scale_step = if is_due { SCALE_STEP.0 } else { SCALE_STEP.1 };
        if scale.abs_diff(now.scale_permille) >= scale_step || is_due && scale == 1000 {
            next.scale_permille = scale;
        }
        if finding.rate != now.rate_permille {
            next = next.with_rate(finding.rate, now_ns);
        }
        let due_ns = state.settlement.due_ns();
        let due_step_ns = if is_due { DUE_STEP_NS.0 } else { DUE_STEP_NS.1 };
        let due_ns = if due_ns.unsigned_abs() < due_step_ns {
            0
        } else {
            due_ns
        };
        next.credit_ns = next.credit_ns.saturating_add(due_ns);
        let cap = self
            .writer
            .limits()
            .config(device)
            .map_or(1, |config| config.cap_permille);
        // One without a limit is metered while it has neighbours: who was busy together must be known.
        next.metered = cap < 1000 || finding.has_neighbours;
        // Another writer may be at work: the next look tries again.
        if next != now && self.writer.set_pace(device, &next).is_ok() {
            state.settlement.paid(due_ns);
            state.written_ns = now_ns;
        }
        found
    }
}
