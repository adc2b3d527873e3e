//! Thread that changes grants: one write of the ledger for all waiting changes, then their effects.

mod devices;
mod directories;
mod step;
mod temporary;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::{mpsc, oneshot, watch};
use vcuda_region::GpuUuid;

use super::decide::{DecisionInputs, Held, PendingLimits};
use super::{Change, ChangeKind, Create, GrantError, Planned, Resize, Shared};
use crate::events::{Events, Severity, unix_ms};
use crate::gpu::Inventory;
use crate::grant::{Grant, GrantId, Holder};
use crate::grant_devices::GrantDevices;
use crate::grant_table::GrantTable;
use crate::ledger::Ledger;
use crate::observe::SnapshotCache;
use crate::tenant_directories::TenantDirectories;
use step::{Answer, Step, answer};

/// Maximum number of changes in one write of the ledger.
const TOGETHER: usize = 256;

pub(super) type Reply<T> = oneshot::Sender<Result<T, GrantError>>;

#[derive(Debug)]
pub(super) enum Command {
    Create(Create, Reply<Arc<Grant>>),
    Resize(Resize, Reply<Arc<Grant>>),
    SetHolder(String, Holder, Reply<Arc<Grant>>),
    Release(Vec<GrantId>, Reply<Vec<GrantId>>),
    /// Changes to check, and grants of processes that live.
    Check(Vec<Planned>, Vec<GrantId>, Reply<Vec<Option<GrantError>>>),
    Cordon(GpuUuid, bool, Reply<()>),
    /// The tenant's memory has left its GPUs.
    Suspend(String, Reply<()>),
    /// Room for the tenant's memory is needed.
    Reserve(String, Reply<()>),
    Tick,
    /// End of the thread.
    Stop,
}

#[derive(Debug)]
pub(super) struct GrantWriter {
    pub(super) ledger: Ledger,
    pub(super) directories: TenantDirectories,
    pub(super) grant_table: Arc<GrantTable>,
    pub(super) pending: PendingLimits,
    /// Directories without a grant that could not be removed, or are still in use.
    pub(super) leftovers: BTreeSet<GrantId>,
    /// Last change of the directories' folder at the time when all were found whole, and that time (ns).
    pub(super) last_complete: Option<(SystemTime, u64)>,
    pub(super) devices: Arc<GrantDevices>,
    /// Time at which all devices were found right; `None` if one was not (ns).
    pub(super) devices_restored_ns: Option<u64>,
    pub(super) device_failure: Option<String>,
    pub(super) shared: Arc<Shared>,
    pub(super) inventory: watch::Receiver<Arc<Inventory>>,
    pub(super) snapshots: Arc<SnapshotCache>,
    pub(super) events: Arc<Events>,
    pub(super) runtime: tokio::runtime::Handle,
}

impl GrantWriter {
    /// Runs until it is stopped, or until no sender is left.
    pub(super) fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        while let Some(first) = commands.blocking_recv() {
            let mut batch = vec![first];
            while batch.len() < TOGETHER
                && let Ok(next) = commands.try_recv()
            {
                batch.push(next);
            }
            let is_over = batch.iter().any(|command| matches!(command, Command::Stop));
            self.change(batch);
            if is_over {
                return;
            }
        }
    }

    fn change(&mut self, batch: Vec<Command>) {
        let mut next = GrantTable::clone(&self.grant_table);
        let pending = self.pending.clone();
        let mut steps = Vec::new();
        let is_tick = batch.iter().any(|command| matches!(command, Command::Tick));
        let ended = if is_tick { self.end_times(&mut next, &mut steps) } else { Vec::new() };
        for command in batch {
            steps.extend(self.decide(&mut next, command));
        }
        let next = Arc::new(next);
        if next.revision != self.grant_table.revision {
            if let Err(error) = self.ledger.write(&next) {
                // The number is not reused, as the failed write may be on the disk.
                Arc::make_mut(&mut self.grant_table).last_number = next.last_number;
                self.pending = pending;
                self.ledger_failed(&error.to_string());
                for step in steps {
                    step.refuse(&GrantError::Unavailable(error.to_string()));
                }
                return;
            }
            self.ledger_works();
            self.grant_table = next;
        }
        self.carry_out(steps);
        self.report_ended(&ended);
        if is_tick {
            self.check();
            self.restore_devices();
        }
    }

    /// Applies a command to the table of grants. Returns the step to be done then; `None` for a tick.
    fn decide(&mut self, next: &mut GrantTable, command: Command) -> Option<Step> {
        let inventory = Arc::clone(&self.inventory.borrow());
        let rules = *self.shared.rules.lock();
        let bounds = Arc::clone(&self.shared.bounds.lock());
        let returning = self.shared.returns.current();
        let inputs = DecisionInputs {
            rules: &rules,
            bounds: &bounds,
            inventory: &inventory,
            pending: &self.pending,
            returning: &returning,
            unix_ms: unix_ms(),
        };
        Some(match command {
            Command::Create(create, reply) => match inputs.create(next, &create) {
                Ok((grant, is_new)) => {
                    Step::Ensure { grant, kind: is_new.then_some(ChangeKind::Created), reply }
                }
                Err(error) => self.not_created(&create.key, error, reply),
            },
            // Refused before the ledger is written, as this release could not write the limits.
            Command::Resize(resize, reply) if let Some(why) = self.foreign(next, &resize.id) => {
                Step::answer(reply, Err(GrantError::Refused(why)))
            }
            Command::Resize(resize, reply) => match inputs.resize(next, &resize) {
                Ok((grant, before)) => self.resized(grant, before, reply),
                Err(error) => Step::answer(reply, Err(error)),
            },
            Command::SetHolder(id, holder, reply) => match set_holder(next, &id, holder) {
                Ok((grant, kind)) => Step::Ensure { grant, kind, reply },
                Err(error) => Step::answer(reply, Err(error)),
            },
            Command::Release(ids, reply) => {
                let grants: Vec<_> = ids.iter().filter_map(|id| next.remove(id)).collect();
                if !grants.is_empty() {
                    next.revision += 1;
                }
                Step::Remove { grants, reply }
            }
            Command::Check(changes, used, reply) => {
                Step::answer(reply, Ok(self.refusals(&inputs, next.clone(), &changes, &used)))
            }
            Command::Cordon(gpu, cordoned, reply) => {
                let done = cordon(next, &inventory, gpu, cordoned);
                if cordoned && done.is_ok() {
                    *self.shared.lost_cordons.lock() = None;
                }
                Step::answer(reply, done)
            }
            Command::Suspend(id, reply) => {
                inputs.suspend(next, &id);
                Step::answer(reply, Ok(()))
            }
            Command::Reserve(id, reply) => Step::answer(reply, inputs.reserve(next, &id)),
            Command::Tick | Command::Stop => return None,
        })
    }

    /// The step for a grant that is not made. A want of room is an event.
    fn not_created(&self, key: &str, error: GrantError, reply: Reply<Arc<Grant>>) -> Step {
        if let GrantError::NoRoom(why) = &error {
            self.events.say(Severity::Warning, "VcudaGrantRefused", why.clone(), Some(key));
        }
        Step::answer(reply, Err(error))
    }

    /// The step for a resized grant; `before` is its previous state if this request changed it.
    fn resized(&mut self, grant: Arc<Grant>, before: Option<Arc<Grant>>, reply: Reply<Arc<Grant>>) -> Step {
        let kind = before.is_some().then_some(ChangeKind::Resized);
        if let Some(before) = before {
            // The tenant may use its previous amounts until its limits are written.
            let had = Held::from_quota(&before.amounts);
            let still = self.pending.entry(grant.number).or_insert(had);
            *still = still.max(had);
        }
        Step::Ensure { grant, kind, reply }
    }

    /// Makes the changes in a copy of the table. Returns why each is refused, if so.
    fn refusals(
        &self,
        inputs: &DecisionInputs<'_>,
        mut copy: GrantTable,
        changes: &[Planned],
        used: &[GrantId],
    ) -> Vec<Option<GrantError>> {
        let refusal = |change: &Planned| match change {
            Planned::Create(create) => inputs.create(&mut copy, create).err(),
            Planned::Resize(resize) => match self.foreign(&copy, &resize.id) {
                Some(why) => Some(GrantError::Refused(why)),
                None => inputs.resize(&mut copy, resize).err(),
            },
            Planned::Release(id) => {
                let grant = copy.by_id(id).cloned()?;
                if used.contains(&grant.id) {
                    return Some(GrantError::in_use(id));
                }
                copy.remove(&grant.id);
                None
            }
        };
        changes.iter().map(refusal).collect()
    }

    fn foreign(&self, grant_table: &GrantTable, id: &str) -> Option<String> {
        self.directories.foreign(&grant_table.by_id(id)?.id)
    }

    /// Updates directories, publishes the table, then answers.
    fn carry_out(&mut self, steps: Vec<Step>) {
        let mut changes = Vec::new();
        let mut answers: Vec<Answer> = Vec::new();
        let mut undone = Vec::new();
        for step in steps {
            match step {
                Step::Ensure { grant, kind, reply } => match self.ensure(&grant, kind) {
                    Ok(()) => {
                        if kind == Some(ChangeKind::Created) {
                            self.write_device(&grant);
                        }
                        if let Some(kind) = kind {
                            let grant = Arc::clone(&grant);
                            changes.push(Change { kind, grant });
                        }
                        answers.push(answer(reply, Ok(grant)));
                    }
                    Err(error) => {
                        if kind == Some(ChangeKind::Created) {
                            undone.push(grant);
                        }
                        answers.push(answer(reply, Err(error)));
                    }
                },
                Step::Remove { grants, reply } => {
                    let ids = grants.iter().map(|grant| grant.id.clone()).collect();
                    for grant in grants {
                        self.pending.remove(&grant.number);
                        self.remove_device(&grant);
                        self.remove_directory(&grant.id);
                        let kind = ChangeKind::Released;
                        changes.push(Change { kind, grant });
                    }
                    answers.push(answer(reply, Ok(ids)));
                }
                Step::Answer(tell) => answers.push(tell),
            }
        }
        self.undo(&undone, &mut changes);
        let created: Vec<_> = changes
            .iter()
            .filter(|change| change.kind == ChangeKind::Created)
            .filter_map(|change| self.grant_table.by_id(change.grant.id.as_str()).cloned())
            .collect();
        self.shared.publish(&self.grant_table, changes);
        for grant in &created {
            self.warn_if_small(grant);
        }
        for tell in answers {
            tell(Ok(()));
        }
    }

    fn ledger_failed(&self, why: &str) {
        self.events.say(Severity::Error, "VcudaLedgerFailed", why.to_owned(), None);
        self.shared.problem.send_replace(Some(why.to_owned()));
    }

    fn ledger_works(&self) {
        let had_problem = self.shared.problem.borrow().is_some();
        if had_problem {
            self.shared.problem.send_replace(None);
            let text = "the ledger can be written again".to_owned();
            self.events.say(Severity::Info, "VcudaLedgerRecovered", text, None);
        }
    }
}

/// Changes whom a grant is for. Returns the grant, and the kind of the change if there was one.
fn set_holder(
    next: &mut GrantTable,
    id: &str,
    holder: Holder,
) -> Result<(Arc<Grant>, Option<ChangeKind>), GrantError> {
    let before = next.by_id(id).ok_or_else(|| GrantError::NotFound(format!("{id}: no such grant")))?;
    if before.holder == holder {
        return Ok((Arc::clone(before), None));
    }
    let namespace = &before.holder.namespace;
    if holder.namespace != *namespace {
        return Err(GrantError::Refused(format!(
            "holder.namespace {:?}: {id} is of namespace {namespace:?}, which stays: release it, and create one there",
            holder.namespace
        )));
    }
    let after = Arc::new(Grant { holder, generation: before.generation + 1, ..Grant::clone(before) });
    next.put(Arc::clone(&after));
    next.revision += 1;
    Ok((after, Some(ChangeKind::Resized)))
}

fn cordon(
    next: &mut GrantTable,
    inventory: &Inventory,
    gpu: GpuUuid,
    is_cordoned: bool,
) -> Result<(), GrantError> {
    let has_changed = if is_cordoned {
        if inventory.find(&gpu).is_none() {
            return Err(GrantError::NotFound(format!("{gpu}: no such GPU")));
        }
        next.cordoned.insert(gpu)
    } else {
        next.cordoned.remove(&gpu)
    };
    next.revision += u64::from(has_changed);
    Ok(())
}
