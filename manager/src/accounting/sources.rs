//! Sources of usage, and what they tell of a tenant that it cannot falsify.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;

use super::tenants::{Facts, Owner};
use vcuda_region::directory;

use crate::events::Events;
use crate::gpu::Inventory;
use crate::grant::Grant;
use crate::observe::{Device, SnapshotCache, Tenant};

pub(crate) type FindGrant = dyn Fn(&str) -> Option<Arc<Grant>> + Send + Sync;

#[derive(Clone)]
pub struct Sources {
    pub root: PathBuf,
    pub state: PathBuf,
    pub tenants: Arc<SnapshotCache>,
    pub inventory: watch::Receiver<Arc<Inventory>>,
    pub grant: Arc<FindGrant>,
    pub events: Arc<Events>,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Facts for Sources {
    fn owner(&self, tenant: &Tenant) -> Option<Owner> {
        let grant = (self.grant)(&tenant.id)?;
        let holder = &grant.holder;
        let key = if holder.pod.is_empty() {
            tenant.id.clone()
        } else {
            format!("{}/{}/{}", holder.namespace, holder.pod, holder.container)
        };
        Some(Owner { key, namespace: holder.namespace.clone() })
    }

    /// A grant's user: the one it was made for, else a run's the owner of its directory, any other's the owner of its first process that has
    /// registered, as the kernel then told its PID.
    fn user(&self, tenant: &Tenant) -> Option<u32> {
        let owner = |path: &Path| Some(fs::symlink_metadata(path).ok()?.uid());
        let grant = (self.grant)(&tenant.id)?;
        if grant.owner.is_some() {
            return grant.owner;
        }
        if grant.is_transient {
            return owner(&directory::locate(&self.root, &tenant.id));
        }
        let registered = tenant.processes.iter().filter(|process| process.registered);
        let pids = registered.filter_map(|process| process.host_pid);
        let mut owners = pids.filter_map(|pid| owner(Path::new(&format!("/proc/{pid}"))));
        owners.next()
    }

    fn memory_total_bytes(&self, device: &Device) -> u64 {
        let inventory = self.inventory.borrow();
        inventory.find(&device.gpu).map_or(0, |gpu| gpu.memory_total_bytes)
    }
}
