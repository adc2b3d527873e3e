//! Limits of the node's users: what each may have in sum over its grants.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

mod owner;

pub(crate) use owner::Owner;

/// Key of the limit of users that have no other.
pub(crate) const ALL_OTHERS: &str = "*";

/// What a user may have in sum over its grants and their GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserLimit {
    /// Memory (bytes); `None`: any.
    pub memory_bytes: Option<u64>,
    /// GPU time (thousandths of one GPU); `None`: any.
    pub cores_permille: Option<u32>,
    /// Number of grants, as each takes a place on its GPUs; `None`: any.
    pub grants: Option<usize>,
    /// Key of the configuration that it stands under.
    pub place: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserLimits {
    /// By user.
    pub own: BTreeMap<u32, UserLimit>,
    /// Of each member of a group, by group.
    pub members: BTreeMap<u32, UserLimit>,
    /// Of all other users.
    pub others: Option<UserLimit>,
}

impl UserLimits {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The limit of a user with these groups: its own, else the least of its groups', else that of all others.
    pub fn of(&self, uid: u32, groups: &[u32]) -> Option<UserLimit> {
        let mut of_groups = groups.iter().filter_map(|group| self.members.get(group)).cloned();
        let least = of_groups.next().map(|first| of_groups.fold(first, UserLimit::least));
        self.own.get(&uid).cloned().or(least).or_else(|| self.others.clone())
    }
}

impl UserLimit {
    fn least(self, other: Self) -> Self {
        Self {
            memory_bytes: self.memory_bytes.into_iter().chain(other.memory_bytes).min(),
            cores_permille: self.cores_permille.into_iter().chain(other.cores_permille).min(),
            grants: self.grants.into_iter().chain(other.grants).min(),
            place: format!("{} and {}", self.place, other.place),
        }
    }
}

/// The limits by the configuration as it was read last. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct LiveLimits(Arc<Mutex<Arc<UserLimits>>>);

impl LiveLimits {
    pub fn new(limits: UserLimits) -> Self {
        Self(Arc::new(Mutex::new(Arc::new(limits))))
    }

    pub fn get(&self) -> Arc<UserLimits> {
        Arc::clone(&self.0.lock())
    }

    /// Replaces the limits for all later decisions. Grants stay.
    pub fn set(&self, limits: UserLimits) {
        *self.0.lock() = Arc::new(limits);
    }
}
