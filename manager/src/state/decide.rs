//! Decisions on requests: pure functions from the table of grants and what is known of GPUs and tenants.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use vcuda_quota::pods::bounds::Bounds;
use vcuda_quota::{MemorySize, Quota};
use vcuda_region::GpuUuid;

use super::{Asked, Create, GrantError, Resize};
use crate::admission::{self, Candidate, Load, Placement, Requested, Rules};
use crate::gpu::Inventory;
use crate::grant::{Grant, GrantId, Lasting};
use crate::grant_table::GrantTable;
use crate::users::Owner;

/// Amounts that tenants may still use because their directories are not up to date, by grant number.
pub(super) type PendingLimits = BTreeMap<u64, Held>;

/// Amounts of each of its GPUs that a tenant takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Memory (bytes). `None`: all.
    pub memory_bytes: Option<u64>,
    /// Promised GPU time (thousandths).
    pub promised_permille: u32,
}

impl Held {
    /// The amounts of a quota.
    pub fn from_quota(amounts: &Quota) -> Self {
        Self { memory_bytes: amounts.memory_bytes, promised_permille: amounts.reserved_permille() }
    }

    /// The greater amount of each kind.
    pub fn max(self, other: Self) -> Self {
        let both = self.memory_bytes.zip(other.memory_bytes);
        Self {
            memory_bytes: both.map(|(one, other)| one.max(other)),
            promised_permille: self.promised_permille.max(other.promised_permille),
        }
    }
}

pub(super) static NONE_PENDING: PendingLimits = BTreeMap::new();

/// All inputs of a decision besides the table of grants.
#[derive(Debug)]
pub struct DecisionInputs<'a> {
    /// Bounds on the amounts that may be given.
    pub rules: &'a Rules,
    /// Bounds on the amounts that a namespace's pods may choose.
    pub bounds: &'a Bounds,
    /// The GPUs.
    pub inventory: &'a Inventory,
    /// Amounts that tenants may still use of grants that were made smaller.
    pub pending: &'a BTreeMap<u64, Held>,
    /// Tenants whose memory comes back to their GPUs.
    pub returning: &'a BTreeSet<String>,
    /// Present time (milliseconds since 1970-01-01 UTC).
    pub unix_ms: i64,
}

/// Each GPU with its load by grants, except the grant `without`.
pub fn candidates<'i>(
    grant_table: &GrantTable,
    inventory: &'i Inventory,
    pending: &BTreeMap<u64, Held>,
    without: Option<&GrantId>,
) -> Vec<Candidate<'i>> {
    let mut loads: HashMap<GpuUuid, Load> = HashMap::new();
    for grant in grant_table.grants().filter(|grant| Some(&grant.id) != without) {
        let granted = Held::from_quota(&grant.kept());
        let still = pending.get(&grant.number);
        let held = still.map_or(granted, |still| granted.max(*still));
        let memory_bytes = resident(grant_table, grant.id.as_str(), held.memory_bytes);
        for gpu in &grant.gpus {
            let load = loads.entry(*gpu).or_default();
            add(load, grant.is_suspendable, memory_bytes, held.promised_permille);
        }
    }
    inventory
        .gpus
        .iter()
        .map(|gpu| Candidate {
            gpu,
            load: loads.get(&gpu.uuid).copied().unwrap_or_default(),
            is_cordoned: grant_table.cordoned.contains(&gpu.uuid),
        })
        .collect()
}

fn add(load: &mut Load, is_suspendable: bool, memory_bytes: Option<u64>, promised_permille: u32) {
    if is_suspendable {
        load.add_suspendable(memory_bytes, promised_permille);
    } else {
        load.add(memory_bytes, promised_permille);
    }
}

/// The memory that is kept for a tenant on a GPU: none while it is suspended.
fn resident(grant_table: &GrantTable, id: &str, memory_bytes: Option<u64>) -> Option<u64> {
    if grant_table.suspended.contains(id) { Some(0) } else { memory_bytes }
}

/// The GPUs that a request asks for; `placement` is the node's default.
fn requested(asked: &Asked, placement: Placement) -> Requested<'_> {
    match asked {
        Asked::Named(uuids) => Requested::Named(uuids),
        Asked::Any { count, placement: own, include, exclude } => {
            Requested::Any { count: *count, placement: own.unwrap_or(placement), include, exclude }
        }
    }
}

/// The id and the number of a new grant: the next number whose id no transient grant has.
///
/// # Errors
/// The numbers are used up, or another grant has the id of a transient one.
fn new_id(grant_table: &GrantTable, create: &Create) -> Result<(GrantId, u64), GrantError> {
    if create.is_transient && grant_table.by_id(&create.key).is_some() {
        return Err(GrantError::Conflict(format!(
            "{}: a grant has this id; choose another name",
            create.key
        )));
    }
    let next = grant_table.last_number.checked_add(1).into_iter();
    let mut numbers = next.flat_map(|next| next..=u64::MAX).map(|number| match create.is_transient {
        true => (GrantId::of_run(&create.key), number),
        false => (GrantId::new(&create.key, number), number),
    });
    numbers.find(|(id, _)| grant_table.by_id(id.as_str()).is_none()).ok_or_else(|| {
        GrantError::Unavailable("the ledger's numbers are used up; give the manager a new state".to_owned())
    })
}

fn new_grant(create: &Create, (id, number): (GrantId, u64), gpus: Vec<GpuUuid>, unix_ms: i64) -> Grant {
    Grant {
        id,
        key: create.key.clone(),
        number,
        holder: create.holder.clone(),
        amounts: create.amounts,
        lasting: None,
        owner: create.owner.as_ref().map(|owner| owner.uid),
        gpus,
        created_unix_ms: unix_ms,
        generation: 1,
        created_by: create.request_id.clone(),
        changed_by: None,
        is_suspendable: create.is_suspendable,
        memory_wait_ms: create.memory_wait_ms,
        is_transient: create.is_transient,
    }
}

impl DecisionInputs<'_> {
    fn candidates(&self, grant_table: &GrantTable, without: Option<&GrantId>) -> Vec<Candidate<'_>> {
        candidates(grant_table, self.inventory, self.pending, without)
    }

    /// Admits a tenant. Returns its grant, and whether it is new.
    pub(super) fn create(
        &self,
        grant_table: &mut GrantTable,
        create: &Create,
    ) -> Result<(Arc<Grant>, bool), GrantError> {
        let namespace = &create.holder.namespace;
        let create = &Create {
            amounts: self.bounds.clamped(namespace, &create.amounts, create.chosen),
            ..create.clone()
        };
        if let Some(grant) = repeated(grant_table, create)? {
            return Ok((grant, false));
        }
        self.bounds.check(&create.holder.namespace, &create.amounts).map_err(GrantError::Denied)?;
        if create.is_suspendable {
            self.bounds.check_suspendable(&create.holder.namespace).map_err(GrantError::Denied)?;
        }
        // Where each quota fits, a GPU that is named needs no answer of NVML.
        let may_be_unknown = self.rules.is_open && matches!(create.asked, Asked::Named(_));
        if self.inventory.gpus.is_empty() && !may_be_unknown {
            let why = self.inventory.problem.as_deref().unwrap_or("there is none");
            return Err(GrantError::Unavailable(format!(
                "no GPU can be given now: {why}; the manager keeps looking"
            )));
        }
        if let Some(owner) = &create.owner {
            owner
                .check_new(grant_table, &create.amounts, create.asked.count())
                .map_err(GrantError::Denied)?;
        }
        let gpus = admission::place(
            self.rules,
            &self.candidates(grant_table, None),
            &create.amounts,
            create.is_suspendable,
            &requested(&create.asked, self.rules.placement),
        )?;
        self.check_returns(grant_table, &gpus)?;
        let id = new_id(grant_table, create)?;
        let grant = Arc::new(new_grant(create, id, gpus, self.unix_ms));
        grant_table.put(Arc::clone(&grant));
        grant_table.revision += 1;
        Ok((grant, true))
    }

    /// Notes that a tenant's memory has left its GPUs.
    pub(super) fn suspend(&self, grant_table: &mut GrantTable, id: &str) {
        grant_table.revision += u64::from(grant_table.suspended.insert(id.to_owned()));
    }

    /// Keeps room on its GPUs for the memory of a suspended tenant. A tenant that is gone needs none.
    pub(super) fn reserve(&self, grant_table: &mut GrantTable, id: &str) -> Result<(), GrantError> {
        if !grant_table.suspended.contains(id) {
            return Ok(());
        }
        // While it is suspended, its memory counts nothing, but it is one of those that share the GPU.
        let loads = self.candidates(grant_table, None);
        for (gpu, memory_bytes) in self.memory_of(grant_table, id) {
            let candidate = loads.iter().find(|candidate| candidate.gpu.uuid == gpu);
            let candidate =
                candidate.ok_or_else(|| GrantError::Refused(format!("{gpu}: the GPU is missing now")))?;
            let load = &candidate.load;
            let left = self.rules.memory_left_bytes(candidate.gpu, load, load.sharers, true);
            let fits = match memory_bytes {
                Some(bytes) => !load.is_whole && bytes <= left,
                None => candidate.load.sharers <= 1,
            };
            if !fits {
                return Err(GrantError::NoRoom(format!(
                    "{id}: its quota of {} does not fit on {gpu} now, where {} are free; it stays suspended until other tenants \
                     end or are suspended",
                    memory_bytes
                        .map_or_else(|| "all memory".to_owned(), |bytes| MemorySize(bytes).to_string()),
                    MemorySize(left),
                )));
            }
        }
        grant_table.suspended.remove(id);
        grant_table.revision += 1;
        Ok(())
    }

    /// GPUs of a tenant, each with the memory that is kept for it while it runs.
    pub(super) fn memory_of(&self, grant_table: &GrantTable, id: &str) -> Vec<(GpuUuid, Option<u64>)> {
        let Some(grant) = grant_table.by_id(id) else {
            return Vec::new();
        };
        let memory_bytes = grant.kept().memory_bytes;
        grant.gpus.iter().map(|gpu| (*gpu, memory_bytes)).collect()
    }

    /// Changes amounts. Returns the grant, and its previous state if this request changed it.
    pub(super) fn resize(
        &self,
        grant_table: &mut GrantTable,
        resize: &Resize,
    ) -> Result<(Arc<Grant>, Option<Arc<Grant>>), GrantError> {
        let before = grant_table
            .by_id(&resize.id)
            .cloned()
            .ok_or_else(|| GrantError::NotFound(format!("{}: no such grant", resize.id)))?;
        let namespace = &before.holder.namespace;
        let resize = &Resize {
            amounts: self.bounds.clamped(namespace, &resize.amounts, resize.chosen),
            ..resize.clone()
        };
        if before.changed_by.as_ref() == Some(&resize.request_id) {
            return if before.amounts == resize.amounts {
                Ok((before, None))
            } else {
                Err(used_twice(&resize.request_id, "other amounts"))
            };
        }
        check_generation(&before, resize.expected_generation)?;
        self.bounds.check(&before.holder.namespace, &resize.amounts).map_err(GrantError::Denied)?;
        let after = self.resized(&before, resize);
        if let Some(owner) = &resize.owner {
            check_own(&before, owner)?;
            owner.check_change(grant_table, &before, &after).map_err(GrantError::Denied)?;
        }
        let candidates = self.candidates(grant_table, Some(&before.id));
        admission::resize(
            self.rules,
            &candidates,
            &before.gpus,
            (&before.kept(), &after.kept()),
            before.is_suspendable,
        )
        .map_err(|refusal| match refusal {
            // The GPU is the grant's own, so it is missing now rather than unknown.
            admission::Refusal::Unknown(text) => GrantError::Refused(text),
            other => other.into(),
        })?;
        if after.kept_bytes() > before.kept_bytes() {
            self.check_returns(grant_table, &before.gpus)?;
        }
        let after = Arc::new(after);
        grant_table.put(Arc::clone(&after));
        grant_table.revision += 1;
        Ok((after, Some(before)))
    }

    fn resized(&self, before: &Grant, resize: &Resize) -> Grant {
        Grant {
            amounts: resize.amounts,
            lasting: resize.for_ms.map(|time_ms| Lasting {
                amounts: before.lasting_amounts(),
                until_unix_ms: self.unix_ms.saturating_add_unsigned(time_ms),
            }),
            generation: before.generation + 1,
            changed_by: Some(resize.request_id.clone()),
            ..before.clone()
        }
    }
}

/// The grant that this request, or an earlier one for the same tenant, created.
fn repeated(grant_table: &GrantTable, create: &Create) -> Result<Option<Arc<Grant>>, GrantError> {
    if let Some(grant) = grant_table.by_request(&create.request_id) {
        // Amounts that were changed since cannot be compared with the request's.
        let same_amounts = grant.generation > 1 || grant.amounts == create.amounts;
        let is_same = grant.key == create.key && is_owned_alike(grant, create) && same_amounts;
        return if is_same && create.asked.is_met_by(&grant.gpus) {
            Ok(Some(Arc::clone(grant)))
        } else {
            Err(used_twice(&create.request_id, grant.id.as_str()))
        };
    }
    let Some(grant) = grant_table.by_key(&create.key) else {
        return Ok(None);
    };
    let is_same = grant.amounts == create.amounts
        && is_owned_alike(grant, create)
        && grant.is_suspendable == create.is_suspendable
        && grant.is_transient == create.is_transient
        && grant.memory_wait_ms == create.memory_wait_ms;
    if is_same && create.asked.is_met_by(&grant.gpus) {
        Ok(Some(Arc::clone(grant)))
    } else {
        Err(GrantError::Conflict(format!(
            "key {}: {} has it, with other amounts, GPUs or options, or another user; resize or release that one",
            create.key, grant.id
        )))
    }
}

/// Whether the grant counts for the user that the request names.
fn is_owned_alike(grant: &Grant, create: &Create) -> bool {
    grant.owner == create.owner.as_ref().map(|owner| owner.uid)
}

/// Checks that the grant is of the generation that the caller has seen, if it names one.
fn check_generation(grant: &Grant, expected: Option<u64>) -> Result<(), GrantError> {
    match expected {
        Some(expected) if expected != grant.generation => Err(GrantError::Changed(format!(
            "{} is of generation {}, not {expected}: look at it again",
            grant.id, grant.generation
        ))),
        _ => Ok(()),
    }
}

/// Checks that a user who may change its own grants only has this one.
pub(super) fn check_own(grant: &Grant, caller: &Owner) -> Result<(), GrantError> {
    if grant.owner == Some(caller.uid) {
        return Ok(());
    }
    Err(GrantError::Denied(format!(
        "{}: not a grant of user {}, who may change own grants only; ask an operator",
        grant.id, caller.name
    )))
}

fn used_twice(request_id: &str, what: &str) -> GrantError {
    GrantError::Conflict(format!("request_id {request_id} was used for {what}; give each request its own"))
}
