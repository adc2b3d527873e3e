//! A user's limit, checked for a new or changed grant.

use std::sync::Arc;

use vcuda_quota::{MemorySize, Priority, Quota, WEIGHTS};

use super::UserLimit;
use crate::grant::Grant;
use crate::grant_table::GrantTable;

/// A user whose limit a change has to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    /// Its name and number, for messages.
    pub name: String,
    pub limit: Option<UserLimit>,
}

/// What a grant counts against its user's limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    memory_bytes: u64,
    cores_permille: u64,
    /// Whether a grant has all memory of its GPUs.
    is_whole: bool,
}

impl Sum {
    /// The larger amounts of now and of later.
    fn of(grant: &Grant) -> Self {
        Self::new(&[grant.amounts, grant.lasting_amounts()], grant.gpus.len())
    }

    /// The largest of these amounts on so many GPUs. A `fixed` grant without a share counts all of a GPU's time, as it may take
    /// that; `best-effort` counts none, as it takes what others leave.
    fn new(amounts: &[Quota], gpus: usize) -> Self {
        let gpus = u64::try_from(gpus).unwrap_or(u64::MAX);
        let most =
            |amount: fn(&Quota) -> u64| amounts.iter().map(amount).max().unwrap_or(0).saturating_mul(gpus);
        Self {
            memory_bytes: most(|quota| quota.memory_bytes.unwrap_or(0)),
            cores_permille: most(|quota| quota.promised_permille().into()),
            is_whole: amounts.iter().any(|quota| quota.memory_bytes.is_none()),
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            cores_permille: self.cores_permille.saturating_add(other.cores_permille),
            is_whole: self.is_whole || other.is_whole,
        }
    }
}

impl Owner {
    /// Checks that the user may have a new grant of these amounts on so many GPUs.
    pub fn check_new(&self, grants: &GrantTable, amounts: &Quota, gpus: usize) -> Result<(), String> {
        self.check_rank(None, amounts)?;
        let Some(limit) = &self.limit else { return Ok(()) };
        let others = self.grants(grants, None);
        let excess = limit.excess_of_number(others.len());
        let excess =
            excess.or_else(|| limit.excess(&Sum::default(), &sum(&others), &Sum::new(&[*amounts], gpus)));
        self.within(limit, excess)
    }

    /// Checks that the user's grant may change from `before` to `after`. An amount that does not grow beyond the lasting one is not
    /// refused: what an operator gave for a time ends with that, at the latest.
    pub fn check_change(&self, grants: &GrantTable, before: &Grant, after: &Grant) -> Result<(), String> {
        let lasting = before.lasting_amounts();
        self.check_rank(Some(&lasting), &after.amounts)?;
        let Some(limit) = &self.limit else { return Ok(()) };
        let others = self.grants(grants, Some(before.number));
        self.within(
            limit,
            limit.excess(&Sum::new(&[lasting], before.gpus.len()), &sum(&others), &Sum::of(after)),
        )
    }

    /// The user's grants, but for one.
    fn grants<'g>(&self, grants: &'g GrantTable, without: Option<u64>) -> Vec<&'g Grant> {
        let is_counted = |grant: &&Arc<Grant>| grant.owner == Some(self.uid) && Some(grant.number) != without;
        grants.grants().filter(is_counted).map(Arc::as_ref).collect()
    }

    fn within(&self, limit: &UserLimit, excess: Option<Excess>) -> Result<(), String> {
        let Some(Excess { most, has, asked }) = excess else {
            return Ok(());
        };
        Err(format!(
            "user {} may have {most} in sum (users.{:?} in the manager's configuration), has {has} in other grants, and asked for \
             {asked}: release or shrink one, or ask for less",
            self.name, limit.place
        ))
    }

    /// Users may borrow, and not outrank others. What an operator gave may stay.
    fn check_rank(&self, before: Option<&Quota>, amounts: &Quota) -> Result<(), String> {
        let most = WEIGHTS.end() / 10;
        let is_more = before.is_none_or(|before| amounts.priority > before.priority);
        if is_more && amounts.priority > Priority::Normal {
            return Err(format!(
                "priority {}: user {} may have at most normal; an operator can give more",
                amounts.priority, self.name
            ));
        }
        match amounts.weight {
            Some(weight) if weight > most && before.is_none_or(|before| Some(weight) > before.weight) => {
                Err(format!(
                    "weight {weight}: user {} may have at most {most}; an operator can give more",
                    self.name
                ))
            }
            _ => Ok(()),
        }
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0 => "none".to_owned(),
        bytes => MemorySize(bytes).to_string(),
    }
}

/// Text of GPU time, such as `150 %` of one GPU.
fn percent(permille: u64) -> String {
    match permille % 10 {
        0 => format!("{} %", permille / 10),
        tenth => format!("{}.{tenth} %", permille / 10),
    }
}

fn sum(grants: &[&Grant]) -> Sum {
    grants.iter().map(|grant| Sum::of(grant)).fold(Sum::default(), Sum::and)
}

/// What is beyond a limit: the limit, what the user has, and what was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Excess {
    most: String,
    has: String,
    asked: String,
}

impl UserLimit {
    /// Whether one more grant is too many.
    fn excess_of_number(&self, has: usize) -> Option<Excess> {
        let most = self.grants.filter(|most| has >= *most)?;
        Some(Excess { most: format!("{most} grants"), has: has.to_string(), asked: "one more".to_owned() })
    }

    /// The first amount that grows, and is then beyond the limit together with what the user `has` besides.
    fn excess(&self, had: &Sum, has: &Sum, asked: &Sum) -> Option<Excess> {
        let is_beyond =
            |most: u64, had: u64, has: u64, asked: u64| asked > had && asked.saturating_add(has) > most;
        if let Some(most) = self.memory_bytes {
            let is_whole = asked.is_whole && !had.is_whole;
            if is_whole || is_beyond(most, had.memory_bytes, has.memory_bytes, asked.memory_bytes) {
                return Some(Excess {
                    most: format!("{} of GPU memory", size(most)),
                    has: size(has.memory_bytes),
                    asked: match is_whole {
                        true => "a whole GPU (no memory limit)".to_owned(),
                        false => size(asked.memory_bytes),
                    },
                });
            }
        }
        let most = self.cores_permille.map(u64::from)?;
        is_beyond(most, had.cores_permille, has.cores_permille, asked.cores_permille).then(|| Excess {
            most: format!("{} of GPU time", percent(most)),
            has: percent(has.cores_permille),
            asked: percent(asked.cores_permille),
        })
    }
}

#[cfg(test)]
mod tests;
