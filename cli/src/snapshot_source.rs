//! Source of the figures of `smi` and `top`: the node's manager, or else the tenants' files.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::config::Environment;
use crate::failure::Failure;
use crate::inventory::{Inventory, Sensors};
use crate::manager_client::{Down, ManagerClient, view};
use crate::render::Snapshot;
use crate::smi::{Scope, Watch};

/// Interval between the two readings from which a share is computed.
const SHARE_WINDOW: Duration = Duration::from_secs(1);

/// Source of snapshots.
#[derive(Debug)]
pub(crate) enum SnapshotSource {
    /// The manager, which sees all tenants of the node.
    Manager(ManagerClient),
    /// The files of this user's tenants, or of the tenant of this process.
    Own {
        /// Reader of the files.
        watch: Watch,
        /// The GPUs.
        inventory: Inventory,
        /// Their NVML.
        sensors: Sensors,
        /// Whether the first look has found tenants.
        has_tenants: bool,
        /// The manager that should be the source and does not run.
        down: Option<Down>,
    },
}

impl SnapshotSource {
    /// The source with the widest view: the manager, unless this process is in a tenant or the simulated machine was
    /// requested.
    pub(crate) fn find(environment: &Environment, is_simulated: bool) -> Result<SnapshotSource, Failure> {
        let scope = Scope::from_environment(environment)?;
        let mut down = None;
        if let (Scope::User(_), false) = (&scope, is_simulated) {
            down = match ManagerClient::find_or_down(environment)? {
                Ok(node) => return Ok(SnapshotSource::Manager(node)),
                Err(down) => down,
            };
        }
        let inventory = Inventory::find(environment, is_simulated)?;
        let sensors = Sensors::of(&inventory, matches!(scope, Scope::Tenant(_)));
        let mut watch = Watch::new(scope)?;
        if let Some(down) = &down {
            watch.add_left_root(down.root());
        }
        // A first look, as use over time is a difference.
        let first = watch.look(&inventory)?;
        Ok(SnapshotSource::Own {
            watch,
            inventory,
            sensors,
            has_tenants: first.gpus.iter().any(|gpu| !gpu.tenants.is_empty()),
            down,
        })
    }

    /// Waits until there are new figures.
    pub(crate) fn wait(&self) {
        sleep(SHARE_WINDOW);
    }

    /// Whether the first snapshot lacks shares that a later one has. The manager measures all the time.
    pub(crate) fn has_shares_to_come(&self) -> bool {
        matches!(self, SnapshotSource::Own { has_tenants: true, .. })
    }

    /// The present figures.
    pub(crate) fn look(&mut self) -> Result<Snapshot, Failure> {
        match self {
            SnapshotSource::Manager(node) => view::snapshot(node),
            SnapshotSource::Own { watch, inventory, sensors, down, .. } => {
                let mut snapshot = watch.look(inventory)?;
                sensors.add_to(&mut snapshot, inventory);
                snapshot.is_manager_down = down.is_some();
                Ok(snapshot)
            }
        }
    }

    /// Reasons why tenants are missing from the last snapshot.
    pub(crate) fn missing(&self) -> &[String] {
        match self {
            SnapshotSource::Manager(_) => &[],
            SnapshotSource::Own { watch, .. } => watch.missing(),
        }
    }

    /// Says on stderr that the manager, which should be the source, does not run, or what keeps it from seeing all GPUs.
    pub(crate) fn warn(&self) -> Result<(), Failure> {
        let words = match self {
            SnapshotSource::Manager(node) => {
                let seen = node.gpus()?;
                // Without any GPU, the problem is the failure itself.
                Some(seen.problem).filter(|problem| !problem.is_empty() && !seen.gpus.is_empty())
            }
            SnapshotSource::Own { down, .. } => down.as_ref().map(Down::words),
        };
        words.map_or(Ok(()), |words| crate::set::warn(&words))
    }

    /// The manager that should be the source and does not run.
    pub(crate) fn down(&self) -> Option<&Down> {
        match self {
            SnapshotSource::Manager(_) => None,
            SnapshotSource::Own { down, .. } => down.as_ref(),
        }
    }

    /// Path of the manager's socket, if the manager is the source.
    pub(crate) fn socket(&self) -> Option<&Path> {
        match self {
            SnapshotSource::Manager(node) => Some(node.socket()),
            SnapshotSource::Own { .. } => None,
        }
    }
}
