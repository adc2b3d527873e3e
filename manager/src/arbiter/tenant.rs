//! One tenant as the arbiter knows it: its two files, kept open, and what it was last told.

mod bounds;
mod demand;
mod dormant;

use nix::sys::inotify::WatchDescriptor;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use vcuda_limiter::controller::{Busy, Contender, Got, STALE_BEAT_NS, Scale, WINDOW_NS, WINDOW_YIELDING_NS};
use vcuda_limiter::token_bucket::Pace;
use vcuda_quota::{Policy, Priority};
use vcuda_region::limits::LimitsWriter;
use vcuda_region::process::ProcessView;
use vcuda_region::usage_reader::{UsageReader, Work};
use vcuda_region::{DeviceIndex, GpuUuid, MAX_DEVICES};

use self::bounds::contexts_most;
use self::demand::{busy_permille, demand_permille};
use super::{CALM_NS, Finding, Found};
use crate::arbiter::state::State;
use crate::arbiter::unsettled;

/// Interval at which a tenant's `limits` are read again and the beat is written there (ns).
const BEAT_NS: u64 = 95_000_000;
/// The scale is written when it has changed by this much (thousandths), and at once if by that much.
const SCALE_STEP: (u32, u32) = (2, 20);
/// Sum of wrong charges at which they are settled (ns), and the sum at which they are settled at once.
const DUE_STEP_NS: (u64, u64) = (20_000, 400_000);
/// Between two times that small changes are written (ns).
const WRITE_NS: u64 = 38_000_000;

/// A quiet tenant's beat, well within [`STALE_BEAT_NS`]; its files are read whole; its words are looked at, if no tenant
/// that it could meet is at work (ns).
const QUIET_BEAT_NS: u64 = 285_000_000;
const QUIET_READ_NS: u64 = 950_000_000;
const QUIET_WATCH_NS: u64 = 18_000_000;
const _: () = assert!(QUIET_BEAT_NS * 2 < STALE_BEAT_NS);

/// One whose files cannot be read: it has no demand.
pub(crate) const ABSENT: Contender = Contender {
    policy: Policy::Fixed,
    guarantee_permille: 0,
    cap_permille: 1,
    weight: 1,
    priority: Priority::Low,
    demand_permille: 0,
};

/// A tenant's files, opened once.
#[derive(Debug)]
pub(crate) struct Tenant {
    pub(crate) path: PathBuf,
    /// Device and inode of `limits`: a later run of the same name has another file.
    pub(crate) file: (u64, u64),
    pub(crate) writer: LimitsWriter,
    reader: UsageReader,
    /// When the beat was last written, and when the files were last read; whether they were sound then.
    beaten_ns: u64,
    read_ns: u64,
    is_sound: bool,
    /// When its words were last looked at while it was quiet, and its quota (ns).
    watched_ns: u64,
    watched_quota_ns: u64,
    /// The watch of its `usage`, and when a change was last reported (ns).
    pub(crate) watch: Option<WatchDescriptor>,
    changed_ns: u64,
    is_dormant: bool,
    devices: [State; MAX_DEVICES],
    /// Since when this arbiter is at work (`CLOCK_MONOTONIC`, ns), and how it sees processes.
    since_ns: u64,
    view: Option<ProcessView>,
}

pub(crate) fn file_of(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path.join("limits")).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

impl Tenant {
    pub(crate) fn open(path: PathBuf, since_ns: u64, view: Option<ProcessView>, now_ns: u64) -> Option<Self> {
        let file = file_of(&path)?;
        let writer = LimitsWriter::open(&path).ok()?;
        let reader = UsageReader::open(&path).ok()?;
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
            reader,
            beaten_ns: 0,
            read_ns: 0,
            is_sound: false,
            watched_ns: 0,
            watched_quota_ns: 0,
            watch: None,
            changed_ns: now_ns,
            is_dormant: false,
            devices,
            since_ns,
            view,
        })
    }

    /// Charges debts of the tenant that had the name before, without what the directory was made with.
    pub(crate) fn owe(&mut self, debts: &[(GpuUuid, i64)]) {
        let devices: Vec<_> = self.devices().collect();
        for (device, uuid) in devices {
            let owed_ns: i64 = debts.iter().filter(|(gpu, _)| *gpu == uuid).map(|(_, ns)| ns).sum();
            let pace = self.writer.limits().pace(device);
            let left_ns = owed_ns.saturating_add(pace.map_or(0, |pace| pace.credit_ns.min(0)));
            if let Some(state) = self.devices.get_mut(device.get()) {
                state.unsettled.owe(left_ns.max(0));
            }
        }
    }

    /// Charges what the tenant's processes had in flight when they ended, and returns what it owes then (ns of GPU time). Its
    /// files have no name any more.
    pub(crate) fn end(&mut self, now_ns: u64) -> Vec<(GpuUuid, i64)> {
        let mut debts = Vec::new();
        let devices: Vec<_> = self.devices().collect();
        for (device, uuid) in devices {
            self.follow_unsettled(device, now_ns, true);
            let due_ns = self.state(device).map_or(0, |state| state.unsettled.due_ns());
            if let (Ok(pace), Ok(bucket)) = (self.writer.limits().pace(device), self.reader.bucket(device))
                && pace.metered
            {
                let tokens_ns = pace.credit_at(now_ns).saturating_sub(bucket.level_ns);
                debts.push((uuid, due_ns.saturating_sub(tokens_ns)));
            }
        }
        debts
    }

    /// Looks at what the tenant's processes have in flight on `device`. Returns of how many contexts the tenant may be.
    /// With `ended` the processes are known to be dead, all of them.
    fn follow_unsettled(&mut self, device: DeviceIndex, now_ns: u64, ended: bool) -> Option<u64> {
        let works = self.reader.works(device).ok()?;
        let (reader, view) = (&self.reader, &self.view);
        let is_gone = |work: &Work| {
            let is_dead = |view: &ProcessView| reader.is_gone(work.slot, &work.identity, view);
            ended || view.as_ref().is_some_and(is_dead)
        };
        let state = self.devices.get_mut(device.get())?;
        let look = unsettled::Look {
            now_ns,
            since_ns: self.since_ns,
            scale_permille: state.scale.permille(),
            is_gone: &is_gone,
            busy: &|first, last| reader.busy(device, first, last).unwrap_or_default(),
        };
        state.unsettled.follow(&works, &look);
        state.has_several_processes = works.len() > 1;
        Some(contexts_most(&works, &is_gone, state.proof))
    }

    pub(crate) fn state(&self, device: DeviceIndex) -> Option<&State> {
        self.devices.get(device.get())
    }

    /// None of its GPUs was used for a while.
    fn is_quiet(&self, now_ns: u64) -> bool {
        let quiet = |device| self.state(device).is_some_and(|state| state.is_quiet(now_ns));
        self.writer.limits().devices().all(|(device, _)| quiet(device))
    }

    /// Whether it is at work again since it was found idle. `may_meet_on_gpus`: where others are at work.
    pub(crate) fn has_begun(&mut self, may_meet_on_gpus: &BTreeSet<GpuUuid>, now_ns: u64) -> bool {
        if self.is_dormant {
            return false;
        }
        let is_quiet = self.is_quiet(now_ns);
        if is_quiet {
            let mut devices = self.writer.limits().devices();
            let is_due = now_ns >= self.watched_ns.saturating_add(QUIET_WATCH_NS);
            if !is_due && !devices.any(|(_, uuid)| may_meet_on_gpus.contains(&uuid)) {
                return false;
            }
            self.watched_ns = now_ns;
        } else if self.writer.is_outdated() {
            return true;
        }
        for (device, _) in self.writer.limits().devices() {
            let Some(state) = self.devices.get_mut(device.get()) else {
                continue;
            };
            let Some(level_ns) = state.idle_at else { continue };
            if self.reader.level_ns(device).is_ok_and(|now| now != level_ns) {
                state.looked_ns = 0;
                return true;
            }
        }
        false
    }

    /// The GPUs that it was given.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (DeviceIndex, GpuUuid)> + '_ {
        self.writer.limits().devices()
    }

    /// Now and then says that the arbiter is at work, and reads what `vcuda set` has changed, at once if it has. Whether
    /// the tenant's files can be used: one whose files were damaged is left alone until they are sound.
    ///
    /// A dormant tenant is told nothing, as no process of it asks. One that begins touches `usage`, and the beat is there a few
    /// milliseconds later; until then it has what it has without an arbiter.
    pub(crate) fn beat(&mut self, now_ns: u64) -> bool {
        if self.is_dormant {
            return self.is_sound;
        }
        if self.is_quiet(now_ns) && self.is_sound {
            // Whether a quota was changed is asked as often as the beat of others.
            let is_due = now_ns >= self.watched_quota_ns.saturating_add(BEAT_NS);
            let reads = is_due && self.writer.is_outdated();
            if is_due {
                self.watched_quota_ns = now_ns;
            }
            if !reads && now_ns < self.read_ns.saturating_add(QUIET_READ_NS) {
                if now_ns >= self.beaten_ns.saturating_add(QUIET_BEAT_NS) {
                    self.is_sound = self.writer.beat(now_ns).is_ok();
                    self.beaten_ns = now_ns;
                }
                return self.is_sound;
            }
        } else if now_ns < self.beaten_ns.saturating_add(BEAT_NS) && !self.writer.is_outdated() {
            return self.is_sound;
        }
        self.is_sound = self.writer.refresh().is_ok() && self.writer.beat(now_ns).is_ok();
        (self.read_ns, self.beaten_ns) = (now_ns, now_ns);
        self.is_sound
    }

    /// When the tenant says that it was busy on `device`, from word `first` of its busy map up to `last`, and what it
    /// demands. Nothing if its files cannot be read. `may_begin`: beside another that is at work.
    pub(crate) fn look(
        &mut self,
        device: DeviceIndex,
        (first, last): (u64, u64),
        may_begin: bool,
        now_ns: u64,
    ) -> Option<(Busy, Contender)> {
        let limits = self.writer.limits();
        let (config, pace) = (limits.config(device).ok()?, limits.pace(device).ok()?);
        let state = self.devices.get_mut(device.get())?;
        let is_quiet = state.is_quiet(now_ns);
        let is_fresh = !may_begin && now_ns < state.looked_ns.saturating_add(BEAT_NS);
        let is_read = self.is_dormant || is_quiet && is_fresh;
        let bucket = match is_read {
            true => None,
            false => Some(self.reader.bucket(device).ok()?),
        };
        let is_as_before = bucket.as_ref().is_none_or(|bucket| {
            !bucket.is_waiting && state.idle_at == Some(bucket.level_ns) && state.measured == bucket.measured
        });
        if (self.is_dormant || is_quiet) && is_as_before {
            if !is_read {
                state.looked_ns = now_ns;
            }
            state.read(now_ns, state.measured);
            return Some((state.busy(Vec::new()), Contender::new(&config, 0)));
        }
        let bucket = bucket?;
        let contexts_most = self.follow_unsettled(device, now_ns, false)?;
        let map = self.busy(device, (first, last))?;
        let demand_permille = demand_permille(&bucket, &pace, &map, now_ns);
        let state = self.devices.get_mut(device.get())?;
        state.read(now_ns, bucket.measured);
        state.looked_ns = now_ns;
        state.shown_permille = Some(busy_permille(&map));
        let idle_at = (demand_permille == 0).then_some(bucket.level_ns);
        let busy_ns = bucket.measured.fresh_ns.saturating_sub(state.measured.fresh_ns);
        state.follow(idle_at, bucket.measured, now_ns);
        if demand_permille > 0 {
            let since_ns = bucket.contexts_ns.saturating_sub(state.elapsed_ns);
            state.contexts.follow(contexts_most, since_ns, busy_ns);
        }
        state.elapsed_ns = bucket.contexts_ns;
        if state.proof.is_overstated {
            return Some((state.busy(Vec::new()), Contender::new(&config, 0)));
        }
        Some((state.busy(map), Contender::new(&config, demand_permille)))
    }

    /// The words of its busy map, with the time that it was charged but has not entered itself.
    fn busy(&self, device: DeviceIndex, (first, last): (u64, u64)) -> Option<Vec<u64>> {
        let mut map = self.reader.busy(device, first, last).ok()?;
        let first = last.saturating_sub(map.len() as u64);
        self.state(device)?.unsettled.enter(&mut map, first);
        Some(map)
    }

    /// Which tenant it is, whatever becomes of others.
    pub(crate) fn file(&self) -> (u64, u64) {
        self.file
    }

    /// When it was busy on `device` in the words `first` to `last`, long enough ago that all of it was entered.
    pub(crate) fn look_back(&self, device: DeviceIndex, (first, last): (u64, u64), now_ns: u64) -> Busy {
        let state = self.state(device);
        // What was gone into by then is longer ago than this look, and the quiet have entered nothing since.
        let is_left_out = state.is_some_and(|state| state.is_quiet(now_ns) || state.proof.is_overstated);
        let map = match is_left_out {
            true => Vec::new(),
            false => self.busy(device, (first, last)).unwrap_or_default(),
        };
        Busy {
            map,
            contexts: state.map(|state| state.contexts).unwrap_or_default(),
            has_several_processes: state.is_some_and(|state| state.has_several_processes),
        }
    }

    /// Settles the tenant's use in the words of the last look back, all of which was entered at `entered_ns`.
    pub(crate) fn settle(&mut self, device: DeviceIndex, got: Got, entered_ns: u64) {
        if let Some(state) = self.devices.get_mut(device.get()) {
            state.settlement.follow(got, entered_ns);
        }
    }

    /// Whether it is awake and wanted less than all the time it can get, now or a moment ago.
    pub(crate) fn was_calm(&mut self, device: DeviceIndex, demand_permille: u32, now_ns: u64) -> bool {
        let Some(state) = self.devices.get_mut(device.get()) else {
            return false;
        };
        if demand_permille < 1000 {
            state.calm_ns = now_ns;
        }
        !self.is_dormant && now_ns < state.calm_ns + CALM_NS
    }

    /// Writes what a look has changed.
    pub(crate) fn pace(&mut self, device: DeviceIndex, finding: &Finding, now_ns: u64) -> Found {
        let mut found = Found::default();
        let Some(state) = self.devices.get_mut(device.get()) else {
            return found;
        };
        if finding.compete {
            state.contended_until_ns = now_ns + CALM_NS;
        }
        let contended = now_ns < state.contended_until_ns;
        if contended && !state.proof.is_overstated {
            state.scale.follow(finding.overlap);
        } else {
            state.scale = Scale::default();
        }
        found.is_contended = contended;
        found.is_watched = state.unsettled.is_watched();
        let Ok(now) = self.writer.limits().pace(device) else {
            return found;
        };
        found.has_changed = finding.rate != now.rate_permille || contended != now.contended;
        let mut next = Pace { contended, ..now };
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
        let due_ns = if due_ns.unsigned_abs() < due_step_ns { 0 } else { due_ns };
        let unsettled_ns = state.unsettled.due_ns();
        next.credit_ns = next.credit_ns.saturating_add(due_ns).saturating_sub(unsettled_ns);
        let cap = self.writer.limits().config(device).map_or(1, |config| config.cap_permille);
        // One without a limit is metered while it has neighbours: who was busy together must be known.
        next.metered = cap < 1000 || finding.has_neighbours;
        next.window_ns = if finding.yields { WINDOW_YIELDING_NS } else { WINDOW_NS };
        // Another writer may be at work: the next look tries again.
        if next != now && self.writer.set_pace(device, &next).is_ok() {
            state.settlement.paid(due_ns);
            state.unsettled.paid(unsettled_ns);
            state.written_ns = now_ns;
        }
        found
    }
}
