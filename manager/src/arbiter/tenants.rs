//! All tenants of a root: opened when they are new, forgotten when they are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::arbiter::changes::{ChangeWatch, Changes};
use crate::arbiter::debts::Debts;
use crate::arbiter::tenant::{Tenant, file_of};
use vcuda_region::GpuUuid;
use vcuda_region::process::{Identity, ProcessView};

/// Interval at which the dormant tenants are read though no change was reported (ns): processes of other releases report none.
/// All are read in one round, as a round looks at all tenants of a GPU.
const READ_UNREPORTED_NS: u64 = 10_000_000_000;

#[derive(Debug, Default)]
pub(crate) struct Tenants {
    tenants: Vec<Tenant>,
    /// This process's view of others; nothing before the first refresh, and if `/proc` cannot be read.
    view: Option<ProcessView>,
    since_ns: u64,
    debts: Debts,
    listed: usize,
    /// When the dormant were last read (ns).
    read_ns: u64,
    /// GPUs on which a tenant demanded something at the last look, and another, which may begin at any time, did not.
    may_meet_on_gpus: BTreeSet<GpuUuid>,
}

impl Tenants {
    /// Opens new tenants and forgets those that are gone. A tenant that cannot be opened, because it is being made or removed or
    /// is damaged, is tried again.
    pub(crate) fn refresh(&mut self, listed: Vec<(String, PathBuf)>, changes: &ChangeWatch, now_ns: u64) {
        if self.since_ns == 0 {
            self.since_ns = now_ns;
            self.view = Identity::current().map(ProcessView::new).ok();
        }
        self.listed = listed.len();
        self.debts.forget(now_ns);
        let is_left = |tenant: &mut Tenant| file_of(&tenant.path) == Some(tenant.file);
        for mut gone in self.tenants.extract_if(.., |tenant| !is_left(tenant)) {
            let debts = gone.end(now_ns);
            gone.watch.into_iter().for_each(|watch| changes.unwatch(watch));
            self.debts.remember(gone.path, debts, now_ns);
        }
        let known: BTreeSet<&Path> = self.tenants.iter().map(|tenant| tenant.path.as_path()).collect();
        let new = listed.into_iter().map(|(_, path)| path);
        let new: Vec<PathBuf> = new.filter(|path| !known.contains(path.as_path())).collect();
        for path in new {
            // Before its files are read for the first time: no change is missed.
            let watch = changes.watch(&path);
            let Some(mut tenant) = Tenant::open(path, self.since_ns, self.view, now_ns) else {
                watch.into_iter().for_each(|watch| changes.unwatch(watch));
                continue;
            };
            tenant.watch = watch;
            tenant.owe(&self.debts.take(&tenant.path));
            self.tenants.push(tenant);
        }
    }

    /// Notes which tenants have changed, and which are dormant from now on. Returns whether a tenant has to be read.
    pub(crate) fn note_changes(&mut self, changes: &Changes, now_ns: u64) -> bool {
        let mut has_to_be_read = false;
        let is_due = now_ns >= self.read_ns.saturating_add(READ_UNREPORTED_NS);
        if is_due {
            self.read_ns = now_ns;
        }
        for tenant in &mut self.tenants {
            let has_changed = tenant.watch.is_some_and(|watch| changes.tenants.contains(&watch));
            if changes.lost || has_changed {
                tenant.note_change(now_ns);
                has_to_be_read = true;
            }
            has_to_be_read |= tenant.update_dormancy(is_due, now_ns);
        }
        has_to_be_read
    }

    /// Whether nothing has to be read until a change is reported.
    pub(crate) fn are_dormant(&self) -> bool {
        self.tenants.iter().all(Tenant::is_dormant)
    }

    /// The GPUs of the tenants that are not dormant.
    pub(crate) fn gpus_awake(&self) -> BTreeSet<GpuUuid> {
        let awake = self.tenants.iter().filter(|tenant| !tenant.is_dormant());
        awake.flat_map(|tenant| tenant.devices().map(|(_, uuid)| uuid)).collect()
    }

    /// Whether the debt of a tenant that is gone is remembered, should its name come back.
    pub(crate) fn remembers_debts(&self) -> bool {
        !self.debts.is_empty()
    }

    /// Whether all that were listed could be opened.
    pub(crate) fn are_complete(&self) -> bool {
        self.tenants.len() == self.listed
    }

    pub(crate) fn are_several(&self) -> bool {
        self.listed > 1
    }

    /// Whether a tenant that was idle at the last look has begun, or a quota was changed since. It reads a word or two of each
    /// tenant that is not dormant.
    pub(crate) fn any_has_begun(&mut self, now_ns: u64) -> bool {
        let may_meet_on_gpus = &self.may_meet_on_gpus;
        self.tenants.iter_mut().any(|tenant| tenant.has_begun(may_meet_on_gpus, now_ns))
    }

    /// Whether a tenant may begin at any time on a GPU on which another demands something.
    pub(crate) fn may_meet(&self) -> bool {
        !self.may_meet_on_gpus.is_empty()
    }

    /// Whether a tenant of this GPU may, as [`Tenants::may_meet`].
    pub(crate) fn may_meet_on(&self, gpu: GpuUuid) -> bool {
        self.may_meet_on_gpus.contains(&gpu)
    }

    /// Finds the GPUs on which an idle tenant may begin beside a busy one. Called after a look at all tenants.
    pub(crate) fn note_who_may_meet(&mut self) {
        let mut seen: BTreeMap<GpuUuid, [bool; 2]> = BTreeMap::new();
        // A dormant tenant reports when it begins.
        for tenant in self.tenants.iter().filter(|tenant| !tenant.is_dormant()) {
            for (device, uuid) in tenant.devices() {
                let is_idle = tenant.state(device).is_some_and(|state| state.idle_at.is_some());
                let [busy, idle] = seen.entry(uuid).or_default();
                *(if is_idle { idle } else { busy }) = true;
            }
        }
        seen.retain(|_, seen| *seen == [true, true]);
        self.may_meet_on_gpus = seen.into_keys().collect();
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Tenant> {
        self.tenants.iter_mut()
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut Tenant> {
        self.tenants.get_mut(at)
    }
}
