//! What tenants, namespaces and users used, by hour: for `vcuda usage`.
//!
//! It is made of the snapshots that also make the metrics. Tenants that have ended stay in it.
//!
//! | module | what |
//! |---|---|
//! | `meter` | how much of a tenant's counter is believed (I12) |
//! | `tenants` | the increase of all tenants' figures from one snapshot to the next |
//! | `history` | sums of those by hour, of bounded size |
//! | `day_file` | a file for each day |
//! | `sources` | a tenant's namespace, user and GPUs, which it cannot falsify |
//! | `recorder` | the thread that takes the snapshots and writes the files |

mod day_file;
mod history;
mod meter;
mod recorder;
mod sources;
mod tenants;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use recorder::{Accounting, Report};
pub(crate) use sources::Sources;

/// Longest period for which usage is kept (s): 31 days.
pub(crate) const KEPT_S: u64 = 31 * 24 * 3600;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Tenants: `namespace/pod/container`, else the name of the tenant's directory.
    Tenant,
    /// Kubernetes namespaces; empty for tenants without one.
    Namespace,
    /// Owners of the tenants' processes by number; empty if unknown.
    User,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    pub gpu_ns: u64,
    /// Most memory that was granted at once (bytes).
    pub requested_bytes: u64,
    /// Most memory that was in use at once (bytes).
    pub peak_bytes: u64,
    /// Allocations refused because of the limit.
    pub denials: u64,
    /// Time that launches waited (ns), of all threads.
    pub throttled_ns: u64,
}

impl Figures {
    /// Adds what another used in the same time.
    fn add_beside(&mut self, other: &Figures) {
        self.add_counts(other);
        self.requested_bytes = self.requested_bytes.saturating_add(other.requested_bytes);
        self.peak_bytes = self.peak_bytes.saturating_add(other.peak_bytes);
    }

    /// Adds what the same used at another time.
    fn add_later(&mut self, other: &Figures) {
        self.add_counts(other);
        self.requested_bytes = self.requested_bytes.max(other.requested_bytes);
        self.peak_bytes = self.peak_bytes.max(other.peak_bytes);
    }

    fn add_counts(&mut self, other: &Figures) {
        self.gpu_ns = self.gpu_ns.saturating_add(other.gpu_ns);
        self.denials = self.denials.saturating_add(other.denials);
        self.throttled_ns = self.throttled_ns.saturating_add(other.throttled_ns);
    }
}

/// Figures by key, for each [`By`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    tenants: BTreeMap<String, Figures>,
    namespaces: BTreeMap<String, Figures>,
    users: BTreeMap<String, Figures>,
}

impl Rows {
    fn of(&self, by: By) -> &BTreeMap<String, Figures> {
        match by {
            By::Tenant => &self.tenants,
            By::Namespace => &self.namespaces,
            By::User => &self.users,
        }
    }

    fn len(&self) -> usize {
        self.tenants.len() + self.namespaces.len() + self.users.len()
    }
}
