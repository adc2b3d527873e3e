//! Snapshots without a manager: in a tenant, or after the end of the manager that granted the tenants. From their directories and from
//! NVML or the simulated machine.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use vcuda_quota::Quota;
use vcuda_region::limits::Limits;
use vcuda_region::process::{Identity, ProcessView as Witness};
use vcuda_region::usage_reader::UsageReader;
use vcuda_region::{DeviceIndex, GpuUuid, clock, directory};

use crate::failure::{Failure, failed};
use crate::inventory::{Gpu, Inventory};
use crate::process_facts::{self, Seen};
use crate::render::{GpuView, Snapshot, TenantView, seconds_of};

#[derive(Debug)]
pub(crate) enum Source {
    /// That of this process, in this directory.
    Own(PathBuf),
    /// Those of the manager of this root, which does not run.
    Left(PathBuf),
    /// None, as there is no manager.
    None,
}

impl Source {
    fn directories(&self) -> Vec<PathBuf> {
        match self {
            Source::Own(tenant) => vec![tenant.clone()],
            // A root that this user may not read shows nothing.
            Source::Left(root) => {
                let left = directory::list(root).unwrap_or_default();
                left.into_iter().map(|(_, path)| path).collect()
            }
            Source::None => Vec::new(),
        }
    }
}

/// Repeated reading of tenants; shares are measured since the previous look.
#[derive(Debug)]
pub(crate) struct Watch {
    source: Source,
    me: Identity,
    witness: Witness,
    last: HashMap<(String, GpuUuid), Served>,
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
    pub(crate) fn new(source: Source) -> Result<Watch, Failure> {
        let me =
            Identity::current().map_err(|error| Failure::access("read", Path::new("/proc/self"), &error))?;
        Ok(Watch { source, me, witness: Witness::new(me), last: HashMap::new(), missing: Vec::new() })
    }

    /// Reasons why tenants are missing from the last snapshot.
    pub(crate) fn missing(&self) -> &[String] {
        &self.missing
    }

    pub(crate) fn look(&mut self, inventory: &Inventory) -> Result<Snapshot, Failure> {
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
        for path in self.source.directories() {
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
        if matches!(self.source, Source::Own(_)) {
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
            gpu_seconds: seconds_of(served.served_ns),
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
        assert!((seconds_of(12_345_678_901) - 12.345).abs() < 1e-9);
    }
}
