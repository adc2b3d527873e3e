//! Snapshots of the tenants, from their directories and from NVML or the simulated machine.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use vcuda_quota::Quota;
use vcuda_region::limits::Limits;
use vcuda_region::process::{Identity, ProcessView as Witness};
use vcuda_region::usage_reader::UsageReader;
use vcuda_region::{DeviceIndex, GpuUuid, clock, directory};

use crate::config::Environment;
use crate::failure::{Failure, failed};
use crate::inventory::{Gpu, Inventory};
use crate::process_facts::{self, Seen};
use crate::render::{GpuView, Snapshot, TenantView};

/// Tenants that are shown.
#[derive(Clone, Debug)]
pub enum Scope {
    /// All tenants under this user's runtime directory.
    User(PathBuf),
    /// Only the tenant of this process.
    Tenant(PathBuf),
}

impl Scope {
    /// The scope for this process: inside a tenant that tenant, else all of the user's.
    pub(crate) fn from_environment(environment: &Environment) -> Result<Scope, Failure> {
        Ok(match directory::resolve(environment.tenant.as_deref()) {
            Some(path) => Scope::Tenant(path),
            None => Scope::User(environment.runtime_root()?),
        })
    }

    fn directories(&self) -> Result<Vec<PathBuf>, Failure> {
        match self {
            Scope::Tenant(path) => Ok(vec![path.clone()]),
            Scope::User(root) => {
                remove_dead(root);
                Ok(directory::list(root).map_err(failed)?.into_iter().map(|(_, path)| path).collect())
            }
        }
    }
}

/// Removes directories of dead runs. A later command retries those that cannot be removed now.
pub(crate) fn remove_dead(root: &Path) {
    if let Ok(me) = Identity::current() {
        let _ = directory::remove_dead(root, &me);
    }
}

/// Repeated reading of the tenants; shares are measured since the previous look.
#[derive(Debug)]
pub struct Watch {
    scope: Scope,
    me: Identity,
    witness: Witness,
    last: HashMap<(String, GpuUuid), Served>,
    /// Directories of managers that do not run; the tenants that they granted go on.
    left_roots: Vec<PathBuf>,
    /// Reasons why tenants are missing from the last snapshot.
    missing: Vec<String>,
}

/// GPU time that a tenant had used at a moment (both ns).
#[derive(Clone, Copy, Debug)]
struct Served {
    at_ns: u64,
    served_ns: u64,
}

impl Watch {
    /// A watch whose first snapshot shows no used shares.
    pub fn new(scope: Scope) -> Result<Watch, Failure> {
        let me =
            Identity::current().map_err(|error| Failure::access("read", Path::new("/proc/self"), &error))?;
        Ok(Watch {
            scope,
            me,
            witness: Witness::new(me),
            last: HashMap::new(),
            left_roots: Vec::new(),
            missing: Vec::new(),
        })
    }

    /// Also watches the tenants that the manager of `root`, which does not run, has granted.
    pub(crate) fn add_left_root(&mut self, root: &Path) {
        // Those of the user's own root are seen anyway.
        if !matches!(&self.scope, Scope::User(own) if own == root) {
            self.left_roots.push(root.to_owned());
        }
    }

    /// Directories of the tenants that are shown.
    fn directories(&self) -> Result<Vec<PathBuf>, Failure> {
        let mut directories = self.scope.directories()?;
        for root in &self.left_roots {
            // A root that this user may not read shows nothing.
            let granted = directory::list(root).unwrap_or_default();
            directories.extend(granted.into_iter().map(|(_, path)| path));
        }
        Ok(directories)
    }

    /// Reasons why tenants are missing from the last snapshot.
    pub(crate) fn missing(&self) -> &[String] {
        &self.missing
    }

    /// A snapshot of GPUs and tenants.
    pub fn look(&mut self, inventory: &Inventory) -> Result<Snapshot, Failure> {
        let mut gpus: Vec<GpuView> = Vec::new();
        let found = inventory.gpus()?;
        for gpu in &found {
            gpus.push(GpuView {
                memory_total_bytes: gpu.memory_total_bytes,
                memory_used_bytes: gpu.memory_used_bytes,
                ..GpuView::new(gpus.len(), &gpu.uuid.to_string(), &gpu.name)
            });
        }
        let mut seen = HashMap::new();
        self.missing.clear();
        for path in self.directories()? {
            let (limits, reader) = match open(&path) {
                Ok(opened) => opened,
                Err(failure) => {
                    // A tenant that ended meanwhile is not reported as missing.
                    if path.exists() {
                        self.missing.push(failure.to_string());
                    }
                    continue;
                }
            };
            for (device, uuid) in limits.devices() {
                let place = found.iter().position(|gpu| gpu.uuid == uuid);
                let Some((gpu, view)) = place.and_then(|at| Some((found.get(at)?, gpus.get_mut(at)?))) else {
                    continue;
                };
                if let Some((tenant, served)) = self.tenant(&limits, &reader, device, gpu) {
                    seen.insert((tenant.name.clone(), uuid), served);
                    let quota = limits.config(device).map(|config| Quota::of(&config));
                    view.grant(&quota.unwrap_or(Quota::UNLIMITED));
                    view.tenants.push(tenant);
                }
            }
        }
        self.last = seen;
        if matches!(self.scope, Scope::Tenant(_)) {
            gpus.retain(|gpu| !gpu.tenants.is_empty());
            gpus.iter_mut().for_each(restrict_to_tenant);
        }
        Ok(Snapshot::of(gpus))
    }

    /// View of a tenant on one GPU; `None` if its figures cannot be read.
    fn tenant(
        &self,
        limits: &Limits,
        reader: &UsageReader,
        device: DeviceIndex,
        gpu: &Gpu,
    ) -> Option<(TenantView, Served)> {
        let quota = Quota::of(&limits.config(device).ok()?);
        let bucket = reader.bucket(device).ok()?;
        let served = Served { at_ns: clock::now_ns(), served_ns: bucket.served_ns };
        let mut processes = Vec::new();
        for process in reader.processes(device.get() + 1, &self.witness).ok()? {
            let used = process.devices.get(device.get()).map_or(0, |used| used.used_bytes);
            if used > 0 {
                processes.push(process_facts::view(
                    &Seen::own(&self.me, &process.identity),
                    &process.identity.command(),
                    Some(used),
                ));
            }
        }
        // Memory shared by processes is recorded by one of them, or by none once that one has released it.
        let memory = reader.memory_of_living(device, &self.witness).ok()?;
        let before = self.last.get(&(limits.name().to_owned(), gpu.uuid));
        let limit_bytes = quota.memory_bytes.unwrap_or(gpu.memory_total_bytes);
        let tenant = TenantView {
            memory_used_bytes: memory.used_bytes,
            memory_denied: bucket.denied,
            core_used_permille: before.map_or(0, |before| share(*before, served)),
            gpu_seconds: seconds(served.served_ns),
            host_copies: bucket.host_copies,
            host_copied_bytes: bucket.host_copied_bytes,
            processes,
            ..TenantView::unused(limits.name(), &quota, limit_bytes)
        };
        Some((tenant, served))
    }
}

fn open(path: &Path) -> Result<(Limits, UsageReader), Failure> {
    Ok((Limits::read(path).map_err(failed)?, UsageReader::open(path).map_err(failed)?))
}

/// Share of the elapsed time that was used (thousandths).
fn share(before: Served, now: Served) -> u32 {
    let elapsed = now.at_ns.saturating_sub(before.at_ns).max(1);
    let served = now.served_ns.saturating_sub(before.served_ns);
    let permille = u128::from(served) * 1000 / u128::from(elapsed);
    u32::try_from(permille).unwrap_or(u32::MAX).min(1000)
}

/// GPU time in seconds with milliseconds.
pub(crate) fn seconds(ns: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "2^53 ms are 285,000 years")]
    let ms = (ns / 1_000_000) as f64;
    ms / 1000.0
}

/// Adapts a GPU to the view inside a tenant, where the quota is the whole GPU, as in CUDA and NVML.
fn restrict_to_tenant(gpu: &mut GpuView) {
    if let Some(tenant) = gpu.tenants.first() {
        gpu.memory_total_bytes = tenant.memory_limit_bytes;
        gpu.memory_used_bytes = tenant.memory_used_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_time_over_time() {
        let before = Served { at_ns: 1_000, served_ns: 500 };
        assert_eq!(share(before, Served { at_ns: 2_000, served_ns: 800 }), 300);
        assert_eq!(share(before, Served { at_ns: 1_000, served_ns: 500 }), 0);
        assert_eq!(share(before, Served { at_ns: 2_000, served_ns: 9_000 }), 1000);
        assert_eq!(share(before, Served { at_ns: 2_000, served_ns: 0 }), 0);
    }

    #[test]
    fn seconds_with_milliseconds() {
        assert!((seconds(12_345_678_901) - 12.345).abs() < 1e-9);
    }
}
