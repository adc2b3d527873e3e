//! What tenants used from one snapshot to the next.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vcuda_quota::Quota;

use super::meter::{Growth, Meter};
use super::{Figures, Rows};
use crate::observe::{Device, Snapshot, Tenant};

/// Time by which a launch's GPU time may come late (ns), as it is known at the kernel's end: an hour.
const LATE_NS: u64 = 3_600_000_000_000;
/// The same of other counts (ns).
const LATE_COUNT_NS: u64 = 10_000_000_000;
/// Number of threads of a tenant that may wait at once on a GPU.
const WAITING_MAX: u64 = 64;
/// Least time between two refused allocations (ns).
const DENIAL_NS: u64 = 1000;
/// Time for which a tenant must hold a quota without use to be in the report (ns): no probe of `vcuda doctor` lasts so long.
const IDLE_NS: u64 = 60_000_000_000;

/// What is known of a tenant besides its snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) key: String,
    pub(super) namespace: String,
}

/// Sources of facts that no tenant can falsify.
pub(super) trait Facts {
    /// Owner of the tenant with this id; `None` if it is not known any more.
    fn owner(&self, tenant: &Tenant) -> Option<Owner>;
    /// User to whom a process of the tenant belongs.
    fn user(&self, tenant: &Tenant) -> Option<u32>;
    /// Memory of the device's GPU (bytes); 0 if it is not known.
    fn memory_total_bytes(&self, device: &Device) -> u64;
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Meters {
    /// Time of the last snapshot (`CLOCK_MONOTONIC`, ns); `None` before the first.
    taken_ns: Option<u64>,
    tenants: BTreeMap<String, TenantMeters>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantMeters {
    inode: u64,
    key: String,
    namespace: String,
    user: Option<u32>,
    /// What was used before the user was known. Not kept: a later manager counts the memory anew.
    #[serde(skip)]
    before_user: Figures,
    /// Time of its first snapshot (`CLOCK_MONOTONIC`, ns). Not kept: what an earlier manager saw is in the report.
    #[serde(skip)]
    first_ns: u64,
    devices: BTreeMap<String, DeviceMeters>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceMeters {
    served: Meter,
    held: Meter,
    denied: Meter,
    peak_bytes: u64,
}

impl Meters {
    /// Goes on after a restart of the manager. A tenant's waits are then counted anew.
    pub(super) fn after_restart(mut self) -> Self {
        let tenants = self.tenants.values_mut();
        for device in tenants.flat_map(|tenant| tenant.devices.values_mut()) {
            device.held.forget();
        }
        self
    }

    /// Goes on after a restart of the machine, which ended all tenants.
    pub(super) fn after_boot() -> Self {
        Self { taken_ns: Some(0), tenants: BTreeMap::new() }
    }

    /// What was used since the last snapshot. A tenant that was not in the last one began at 0 after it; those of the very first
    /// begin with what they have.
    /// `after`: number of the last snapshot, as those between may have been missed.
    pub(super) fn advance(&mut self, snapshot: &Snapshot, after: u64, facts: &dyn Facts) -> Rows {
        let elapsed_ns = self.taken_ns.map(|before| snapshot.taken_ns.saturating_sub(before));
        let mut rows = Rows::default();
        let mut before = core::mem::take(&mut self.tenants);
        let ended = snapshot.ended.iter().filter(|(number, _)| *number > after);
        let ended = ended.map(|(_, tenant)| (true, tenant));
        let mut used = Vec::new();
        for (has_ended, tenant) in ended.chain(snapshot.tenants.iter().map(|tenant| (false, tenant))) {
            let one = self.advance_one(tenant, &mut before, (snapshot.taken_ns, elapsed_ns), facts);
            used.extend(one.map(|one| (has_ended, one)));
        }
        // Present tenants used their memory at the same time, ended ones before them.
        used.sort_by_key(|(has_ended, _)| *has_ended);
        for (has_ended, (keys, used, of_user)) in used {
            let [tenant, namespace] = keys;
            let sums =
                [rows.tenants.entry(tenant).or_default(), rows.namespaces.entry(namespace).or_default()];
            let of_user = of_user.map(|(user, used)| (rows.users.entry(user).or_default(), used));
            for (sum, used) in sums.into_iter().map(|sum| (sum, used)).chain(of_user) {
                if has_ended {
                    sum.add_later(&used);
                } else {
                    sum.add_beside(&used);
                }
            }
        }
        // Tenants that ended before their user was known.
        for gone in before.into_values().filter(|gone| gone.before_user != Figures::default()) {
            rows.users.entry(String::new()).or_default().add_later(&gone.before_user);
        }
        self.taken_ns = Some(snapshot.taken_ns);
        rows
    }
}

/// What a tenant used, with the keys of its tenant and namespace, and what counts for its user.
type Told = ([String; 2], Figures, Option<(String, Figures)>);

impl Meters {
    /// What a tenant used, and the tenant and namespace for whom that counts. For its user, once known, all of it counts. `None` for
    /// a tenant that has neither used a GPU nor held its quota for [`IDLE_NS`].
    fn advance_one(
        &mut self,
        tenant: &Tenant,
        before: &mut BTreeMap<String, TenantMeters>,
        (taken_ns, elapsed_ns): (u64, Option<u64>),
        facts: &dyn Facts,
    ) -> Option<Told> {
        // A later tenant of the name begins at 0.
        let known = before.remove(&tenant.id).filter(|known| known.inode == tenant.inode);
        let (inode, first_ns) = (tenant.inode, taken_ns);
        let mut meters = known.unwrap_or_else(|| TenantMeters { inode, first_ns, ..TenantMeters::default() });
        let used = meters.advance(tenant, elapsed_ns, facts);
        let is_lasting = taken_ns.saturating_sub(meters.first_ns) >= IDLE_NS;
        let told = (is_lasting || tenant.devices.iter().any(has_use)).then(|| {
            let keys = [meters.key.clone(), meters.namespace.clone()];
            meters.before_user.add_later(&used);
            let whole = |user: u32| (user.to_string(), core::mem::take(&mut meters.before_user));
            (keys, used, meters.user.map(whole))
        });
        self.tenants.insert(tenant.id.clone(), meters);
        told
    }
}

/// Whether the tenant has ever used the device or waited for it, or was refused memory.
fn has_use(device: &Device) -> bool {
    device.peak_bytes | device.served_ns | device.held_ns | device.denied != 0
}

impl TenantMeters {
    fn advance(&mut self, tenant: &Tenant, elapsed_ns: Option<u64>, facts: &dyn Facts) -> Figures {
        match facts.owner(tenant) {
            Some(owner) => (self.key, self.namespace) = (owner.key, owner.namespace),
            // Released just now.
            None if self.key.is_empty() => self.key.clone_from(&tenant.id),
            None => {}
        }
        self.user = facts.user(tenant).or(self.user);
        let mut used = Figures::default();
        let mut before = core::mem::take(&mut self.devices);
        for device in &tenant.devices {
            let uuid = device.gpu.to_string();
            let known = before.remove(&uuid);
            let mut meters = known.unwrap_or_else(|| DeviceMeters::new(elapsed_ns.is_some(), device));
            let total_bytes = facts.memory_total_bytes(device);
            used.add_beside(&meters.advance(device, elapsed_ns.unwrap_or(0), total_bytes));
            self.devices.insert(uuid, meters);
        }
        used
    }
}

impl DeviceMeters {
    /// Meters of a device that began after the last snapshot; otherwise of one that may be old.
    fn new(is_new: bool, device: &Device) -> Self {
        if is_new {
            let zero = Meter::from_zero();
            return Self { served: zero, held: zero, denied: zero, peak_bytes: 0 };
        }
        Self { peak_bytes: device.peak_bytes, ..Self::default() }
    }

    fn advance(&mut self, device: &Device, elapsed_ns: u64, total_bytes: u64) -> Figures {
        let growth = |since_last, late_max| Growth { since_last, late_max };
        // A peak counts at the time at which it rose. A new directory of the same name begins anew.
        let peak_bytes = match device.peak_bytes > self.peak_bytes {
            true => device.peak_bytes,
            false => device.used_bytes,
        };
        self.peak_bytes = device.peak_bytes;
        let limit_bytes = Quota::of(&device.config).memory_bytes.unwrap_or(total_bytes);
        let waits = growth(elapsed_ns.saturating_mul(WAITING_MAX), LATE_COUNT_NS * WAITING_MAX);
        let denials = growth(elapsed_ns / DENIAL_NS, LATE_COUNT_NS / DENIAL_NS);
        Figures {
            gpu_ns: self.served.advance(device.served_ns, growth(elapsed_ns, LATE_NS)),
            requested_bytes: limit_bytes.min(total_bytes),
            peak_bytes: peak_bytes.min(total_bytes),
            denials: self.denied.advance(device.denied, denials),
            throttled_ns: self.held.advance(device.held_ns, waits),
        }
    }
}

#[cfg(test)]
mod tests;
