//! All tenants of a root: opened when they are new, forgotten when they are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::debts::Debts;
use crate::notices::{Heard, Notices};
use crate::tenant::{Tenant, file_of};
use vcuda_region::GpuUuid;
use vcuda_region::process::{Identity, ProcessView};

/// All tenants of this user.
#[derive(Debug, Default)]
pub(crate) struct Tenants {
    tenants: Vec<Tenant>,
    /// This process's view of others; nothing before the first refresh, and if `/proc` cannot be read.
    view: Option<ProcessView>,
    since_ns: u64,
    debts: Debts,
    listed: usize,
    /// GPUs of which one demanded something at the last look and another did not, that may begin beside it any time.
    may_meet_on_gpus: BTreeSet<GpuUuid>,
}

impl Tenants {
    /// Opens who is new and forgets who is gone. One that cannot be opened, as it is being made or removed or is damaged,
    /// is tried again.
    pub(crate) fn refresh(&mut self, listed: Vec<(String, PathBuf)>, notices: &Notices, now_ns: u64) {
        if self.since_ns == 0 {
            self.since_ns = now_ns;
            self.view = Identity::current().map(ProcessView::new).ok();
        }
        self.listed = listed.len();
        self.debts.forget(now_ns);
        let is_left = |tenant: &mut Tenant| file_of(&tenant.path) == Some(tenant.file);
        for mut gone in self.tenants.extract_if(.., |tenant| !is_left(tenant)) {
            let debts = gone.end(now_ns);
            gone.watch.into_iter().for_each(|watch| notices.forget(watch));
            self.debts.remember(gone.path, debts, now_ns);
        }
        let known: BTreeSet<&Path> = self.tenants.iter().map(|tenant| tenant.path.as_path()).collect();
        let new = listed.into_iter().map(|(_, path)| path);
        let new: Vec<PathBuf> = new.filter(|path| !known.contains(path.as_path())).collect();
        for path in new {
            // Before its files are read for the first time: no change is missed.
            let watch = notices.watch(&path);
            let Some(mut tenant) = Tenant::open(path, self.since_ns, self.view, now_ns) else {
                watch.into_iter().for_each(|watch| notices.forget(watch));
                continue;
            };
            tenant.watch = watch;
            tenant.owe(&self.debts.take(&tenant.path));
            self.tenants.push(tenant);
        }
    }

    /// Notes what was heard, and who rests from now on. Returns whether a tenant has to be looked at for that.
    pub(crate) fn hear(&mut self, heard: &Heard, now_ns: u64) -> bool {
        let mut is_news = false;
        for tenant in &mut self.tenants {
            let is_heard = tenant.watch.is_some_and(|watch| heard.tenants.contains(&watch));
            if heard.lost || is_heard {
                tenant.hear(now_ns);
                is_news = true;
            }
            is_news |= tenant.note_rest(now_ns);
        }
        is_news
    }

    /// Whether nothing has to be looked at until something is heard.
    pub(crate) fn all_rest(&self) -> bool {
        self.tenants.iter().all(Tenant::rests)
    }

    /// Whether the debt of a tenant that is gone is remembered, should its name come back.
    pub(crate) fn remembers_debts(&self) -> bool {
        !self.debts.is_empty()
    }

    /// Whether all that were listed could be opened.
    pub(crate) fn are_complete(&self) -> bool {
        self.tenants.len() == self.listed
    }

    /// There is more than one.
    pub(crate) fn are_several(&self) -> bool {
        self.listed > 1
    }

    /// Whether one that was idle at the last look has begun, or a quota was changed since. Cheap: a word or two of each.
    pub(crate) fn any_has_begun(&mut self, now_ns: u64) -> bool {
        let may_meet_on_gpus = &self.may_meet_on_gpus;
        self.tenants
            .iter_mut()
            .any(|tenant| tenant.has_begun(may_meet_on_gpus, now_ns))
    }

    /// Whether one may begin any time beside another that demands something.
    pub(crate) fn may_meet(&self) -> bool {
        !self.may_meet_on_gpus.is_empty()
    }

    /// Whether one of this GPU's tenants may do so.
    pub(crate) fn may_meet_on(&self, gpu: GpuUuid) -> bool {
        self.may_meet_on_gpus.contains(&gpu)
    }

    /// After a look at all.
    pub(crate) fn note_who_may_meet(&mut self) {
        let mut seen: BTreeMap<GpuUuid, [bool; 2]> = BTreeMap::new();
        // One that rests is heard when it begins.
        for tenant in self.tenants.iter().filter(|tenant| !tenant.rests()) {
            for (device, uuid) in tenant.writer.limits().devices() {
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
