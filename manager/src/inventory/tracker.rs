//! Tracking of the GPUs: turns observations of NVML into the inventory and its events, without NVML or clock.

use std::collections::{BTreeMap, BTreeSet};

use vcuda_region::GpuUuid;

use super::health::{Change, History, Policy};
use super::health_file::Record;
use crate::events::{Report, Severity};
use crate::gpu::{Gpu, Health, Inventory, MigInstance, Sensors};

#[derive(Debug, Clone)]
pub(crate) enum Observation {
    /// NVML was initialised, and has these GPUs.
    Opened(Opened),
    /// Each GPU was looked at, with its load or the failure.
    Looked(Vec<(GpuUuid, Result<Load, String>)>),
    /// The driver reported an XID.
    Xid(GpuUuid, u64),
    /// Whether XIDs can be watched; if not, the reason.
    Xids(Result<(), String>),
    /// NVML cannot be used, for this reason.
    Unusable(String),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Opened {
    pub(crate) driver_version: String,
    /// The newest CUDA version that the driver supports; empty if NVML does not tell.
    pub(crate) cuda_version: String,
    /// `None` if no GPU could be asked.
    pub(crate) has_memory_limits: Option<bool>,
    pub(crate) gpus: Vec<Facts>,
    /// Reasons why GPUs are missing, a sentence each.
    pub(crate) missing: Vec<String>,
    pub(crate) mig_instances: Vec<MigInstance>,
}

/// Facts that do not change while NVML is open, and the load at the first look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) gpu: Gpu,
    pub(crate) is_mig: bool,
}

/// Reason why NVML cannot be used at the start.
const NOT_YET: &str = "NVML has not answered yet";

/// Reason of ill health of a GPU that its hardware slows down.
const HOT: &str = "thermal slowdown";

/// Facts that change from look to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) memory_used_bytes: u64,
    pub(crate) utilization_percent: Option<u32>,
    pub(crate) sensors: Sensors,
    pub(crate) is_persistent: Option<bool>,
    /// Whether the GPU's hardware slows it down, as it is too hot.
    pub(crate) is_slowed_by_heat: bool,
}

/// GPUs that the ledger names, each with the number of its grants: 0 if it is only cordoned.
pub type Named = BTreeMap<GpuUuid, usize>;

#[derive(Debug)]
pub(crate) struct Tracker {
    policy: Policy,
    gpus: Vec<Known>,
    driver_version: String,
    cuda_version: String,
    has_memory_limits: bool,
    missing: Vec<String>,
    mig_instances: Vec<MigInstance>,
    /// The reason why NVML cannot be used now.
    unusable: Option<String>,
    /// The reason why XIDs are not watched.
    xids_problem: Option<String>,
    /// XIDs of GPUs that are gone.
    xids_of_gone: BTreeMap<(GpuUuid, u64), u64>,
    /// State left by the previous manager, of GPUs that this one has not seen.
    before: Record,
    named: Named,
    /// Named GPUs that NVML does not list, as was reported.
    told_unlisted: BTreeSet<GpuUuid>,
}

#[derive(Debug)]
struct Known {
    facts: Facts,
    history: History,
    /// Whether NVML does not list it any more. It stays, so that the others keep their indexes.
    is_gone: bool,
}

impl Tracker {
    /// A tracker that continues from the state of the previous manager.
    pub(crate) fn new(policy: Policy, before: Record) -> Self {
        Self {
            before,
            policy,
            gpus: Vec::new(),
            driver_version: String::new(),
            cuda_version: String::new(),
            has_memory_limits: false,
            missing: Vec::new(),
            mig_instances: Vec::new(),
            unusable: Some(NOT_YET.to_owned()),
            xids_problem: None,
            xids_of_gone: BTreeMap::new(),
            named: Named::new(),
            told_unlisted: BTreeSet::new(),
        }
    }

    /// Takes over what the ledger names. Returns an event for each GPU of it that NVML does not list, once.
    pub(crate) fn name(&mut self, named: Named) -> Vec<Report> {
        self.named = named;
        self.told_unlisted.retain(|uuid| self.named.contains_key(uuid) && !is_listed(&self.gpus, uuid));
        let unlisted: Vec<_> = self.unlisted().map(|(uuid, grants)| (*uuid, grants)).collect();
        let news = unlisted.into_iter().filter(|(uuid, _)| self.told_unlisted.insert(*uuid));
        let report = |(uuid, grants)| {
            report(Severity::Warning, "VcudaGpuVanished", Some(&uuid), of_unlisted(&uuid, grants))
        };
        news.map(report).collect()
    }

    /// GPUs that the ledger names and NVML does not list, with the number of their grants. None while NVML does not answer.
    fn unlisted(&self) -> impl Iterator<Item = (&GpuUuid, usize)> {
        let named = self.named.iter().filter(|_| self.unusable.is_none());
        named.filter(|(uuid, _)| !is_listed(&self.gpus, uuid)).map(|(uuid, grants)| (uuid, *grants))
    }

    pub(crate) fn apply(&mut self, observation: Observation) -> Vec<Report> {
        match observation {
            Observation::Opened(opened) => self.opened(opened),
            Observation::Looked(looks) => self.looked(looks),
            Observation::Xid(uuid, xid) => self.change(&uuid, |history, policy| history.xid(policy, xid)),
            Observation::Xids(watched) => {
                self.xids_problem = watched.err();
                Vec::new()
            }
            Observation::Unusable(why) => self.unusable(why),
        }
    }

    fn unusable(&mut self, why: String) -> Vec<Report> {
        let is_news = self.unusable.as_ref() != Some(&why);
        self.gpus.iter_mut().for_each(|known| known.facts.gpu.forget_readings());
        let message = format!("{why}; no GPU is given out until NVML answers");
        self.unusable = Some(why);
        if is_news { vec![report(Severity::Error, "VcudaNvmlFailed", None, message)] } else { Vec::new() }
    }

    /// Reports that NVML works again, if it worked before and then failed.
    fn report_recovery(&mut self) -> Vec<Report> {
        let is_news = self.unusable.take().is_some() && !self.driver_version.is_empty();
        let message = "NVML answers again".to_owned();
        is_news.then(|| report(Severity::Info, "VcudaNvmlRecovered", None, message)).into_iter().collect()
    }

    fn opened(&mut self, opened: Opened) -> Vec<Report> {
        let was_away = self.unusable.is_some();
        // GPUs that are there when the manager starts are no news.
        let is_start = self.unusable.as_deref() == Some(NOT_YET);
        let mut reports = self.report_recovery();
        let is_reloaded = was_away || self.driver_version != opened.driver_version;
        // Whether the driver or the machine was restarted since the previous manager saw the GPU.
        let is_reset_since = !self.before.is_current(&opened.driver_version);
        self.driver_version = opened.driver_version;
        self.cuda_version = opened.cuda_version;
        self.has_memory_limits = opened.has_memory_limits.unwrap_or(self.has_memory_limits);
        self.missing = opened.missing;
        self.mig_instances = opened.mig_instances;
        let listed: BTreeSet<GpuUuid> = opened.gpus.iter().map(|facts| facts.gpu.uuid).collect();
        for facts in opened.gpus {
            let place = self.gpus.iter().position(|known| known.facts.gpu.uuid == facts.gpu.uuid);
            let known = place.and_then(|place| self.gpus.get(place)).filter(|known| !known.is_gone);
            let (mut history, is_reset) = match known {
                Some(known) => {
                    reports.extend(known.facts.changed_to(&facts));
                    (known.history.clone(), is_reloaded)
                }
                None => {
                    let found =
                        (!is_start).then(|| facts.about(Severity::Info, "VcudaGpuAppeared", "was found"));
                    reports.extend(found);
                    match self.restored_trouble(&facts) {
                        Some((history, told)) => {
                            reports.extend(told);
                            (history, is_reset_since)
                        }
                        None => (History::default(), is_reloaded),
                    }
                }
            };
            if is_reset {
                history.was_reset();
            }
            let known = Known { facts, history, is_gone: false };
            match place.and_then(|place| self.gpus.get_mut(place)) {
                Some(place) => *place = known,
                None => self.gpus.push(known),
            }
        }
        reports.extend(self.not_listed(&listed));
        reports
    }

    /// The trouble of a GPU that the previous manager recorded, and the events to report for it.
    fn restored_trouble(&mut self, facts: &Facts) -> Option<(History, Vec<Report>)> {
        let kept = self.before.troubles.remove(&facts.gpu.uuid)?;
        let report = facts.report_of(Change::Unhealthy(kept.reason.clone()));
        Some((History::from_kept(&self.policy, kept), report.into_iter().collect()))
    }

    /// Handles GPUs that were there before and are not in NVML's list now.
    fn not_listed(&mut self, listed: &BTreeSet<GpuUuid>) -> Vec<Report> {
        let mut reports = Vec::new();
        // If NVML has a GPU that it cannot open, that may be the GPU that is missing from the list.
        let may_be_there = !self.missing.is_empty();
        let gone = |known: &&mut Known| !known.is_gone && !listed.contains(&known.facts.gpu.uuid);
        for known in self.gpus.iter_mut().filter(gone) {
            known.facts.gpu.forget_readings();
            if may_be_there {
                let silent = Err("NVML cannot open it".to_owned());
                let change = known.history.look(&self.policy, silent);
                reports.extend(known.facts.report_of(change));
                continue;
            }
            known.is_gone = true;
            reports.push(known.facts.about(Severity::Warning, "VcudaGpuVanished", "is gone"));
            let uuid = known.facts.gpu.uuid;
            self.told_unlisted.insert(uuid);
            for (xid, count) in std::mem::take(&mut known.history).xids() {
                *self.xids_of_gone.entry((uuid, *xid)).or_default() += count;
            }
        }
        reports
    }

    fn looked(&mut self, looks: Vec<(GpuUuid, Result<Load, String>)>) -> Vec<Report> {
        let mut reports = self.report_recovery();
        for (uuid, look) in looks {
            let known = self.gpus.iter_mut().find(|known| known.facts.gpu.uuid == uuid);
            match (known, &look) {
                (Some(known), Ok(load)) => {
                    known.facts.gpu.memory_used_bytes = load.memory_used_bytes;
                    known.facts.gpu.utilization_percent = load.utilization_percent;
                    known.facts.gpu.sensors = load.sensors;
                    known.facts.gpu.is_persistent = load.is_persistent;
                }
                (Some(known), Err(_)) => known.facts.gpu.forget_readings(),
                (None, _) => {}
            }
            let answer =
                look.and_then(|load| if load.is_slowed_by_heat { Err(HOT.to_owned()) } else { Ok(()) });
            reports.extend(self.change(&uuid, |history, policy| history.look(policy, answer)));
        }
        reports
    }

    fn change(
        &mut self,
        uuid: &GpuUuid,
        change: impl FnOnce(&mut History, &Policy) -> Change,
    ) -> Vec<Report> {
        let Some(known) = self.gpus.iter_mut().find(|known| known.facts.gpu.uuid == *uuid) else {
            return Vec::new();
        };
        let change = change(&mut known.history, &self.policy);
        known.facts.report_of(change).into_iter().collect()
    }

    pub(crate) fn record(&self) -> Record {
        let own = self.gpus.iter().filter_map(|known| {
            let kept = known.history.kept()?;
            Some((known.facts.gpu.uuid, kept))
        });
        // GPUs that this manager has not seen keep what the previous one recorded.
        let troubles = self.before.troubles.clone().into_iter().chain(own).collect();
        Record::new(&self.driver_version, troubles)
    }

    pub(crate) fn inventory(&self) -> Inventory {
        let gpus =
            self.gpus.iter().map(|known| Gpu { health: self.health(known), ..known.facts.gpu.clone() });
        let mut xids = self.xids_of_gone.clone();
        for known in &self.gpus {
            for (xid, count) in known.history.xids() {
                *xids.entry((known.facts.gpu.uuid, *xid)).or_default() += count;
            }
        }
        // Without NVML there are no XIDs either: the cause is enough.
        let cause = self.unusable.as_ref().or(self.xids_problem.as_ref());
        let unlisted = self.unlisted().map(|(uuid, grants)| of_unlisted(uuid, grants));
        let problems: Vec<String> = cause.into_iter().chain(&self.missing).cloned().chain(unlisted).collect();
        Inventory {
            gpus: gpus.collect(),
            driver_version: self.driver_version.clone(),
            cuda_version: self.cuda_version.clone(),
            has_memory_limits: self.has_memory_limits,
            problem: (!problems.is_empty()).then(|| problems.join("; ")),
            mig_instances: self.mig_instances.clone(),
            xids,
        }
    }

    fn health(&self, known: &Known) -> Health {
        let mig = "it is in MIG mode: its instances are isolated by the hardware and are not shared";
        let gone = known.is_gone.then_some("NVML does not list it any more");
        let own = gone.or(known.facts.is_mig.then_some(mig)).or_else(|| known.history.reason());
        match self.unusable.as_deref().or(own) {
            Some(reason) => Health::Unhealthy(reason.to_owned()),
            None => Health::Healthy,
        }
    }
}

impl Facts {
    fn about(&self, severity: Severity, reason: &'static str, what: &str) -> Report {
        let (uuid, name) = (&self.gpu.uuid, &self.gpu.name);
        report(severity, reason, Some(uuid), format!("{uuid} ({name}) {what}"))
    }

    fn report_of(&self, change: Change) -> Option<Report> {
        match change {
            Change::None => None,
            Change::Unhealthy(why) => {
                let what = format!("is not given out to new containers: {why}");
                Some(self.about(Severity::Error, "VcudaGpuUnhealthy", &what))
            }
            Change::Recovered(why) => {
                let what = format!("is given out again; it was not because of: {why}");
                Some(self.about(Severity::Info, "VcudaGpuRecovered", &what))
            }
        }
    }

    fn changed_to(&self, new: &Facts) -> Option<Report> {
        let lasting = |facts: &Facts| Facts {
            gpu: Gpu {
                memory_used_bytes: 0,
                utilization_percent: None,
                sensors: Sensors::default(),
                is_persistent: None,
                ..facts.gpu.clone()
            },
            is_mig: facts.is_mig,
        };
        let what = "is not what it was: look at its memory, its links, and MIG mode";
        (lasting(self) != lasting(new)).then(|| new.about(Severity::Warning, "VcudaGpuChanged", what))
    }
}

fn is_listed(gpus: &[Known], uuid: &GpuUuid) -> bool {
    gpus.iter().any(|known| known.facts.gpu.uuid == *uuid && !known.is_gone)
}

/// Sentence about a GPU that the ledger names and NVML does not list.
fn of_unlisted(uuid: &GpuUuid, grants: usize) -> String {
    match grants {
        0 => format!("a cordoned GPU is not listed by NVML: {uuid}"),
        grants => format!("{grants} grant(s) are on a GPU that NVML does not list: {uuid}"),
    }
}

fn report(severity: Severity, reason: &'static str, gpu: Option<&GpuUuid>, message: String) -> Report {
    Report {
        severity,
        reason: reason.into(),
        message,
        tenant: None,
        gpu: gpu.map(ToString::to_string),
        host_pid: None,
    }
}

#[cfg(test)]
mod tests;
