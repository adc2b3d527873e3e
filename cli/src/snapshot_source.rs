//! Source of the figures of `smi` and `top`: the manager, or the files of the tenants.

mod watch;

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use vcuda_region::directory;

use crate::config::Environment;
use crate::failure::Failure;
use crate::inventory::{Inventory, Sensors};
use crate::manager_client::{Down, ManagerClient, view};
use crate::render::Snapshot;
use watch::{Source, Watch};

/// Interval between the two readings from which a share is computed.
const SHARE_WINDOW: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) enum SnapshotSource {
    /// The manager, which sees all tenants of the node.
    Manager(ManagerClient),
    /// The files of the tenant of this process, or of those that a manager left, and the driver.
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
    /// The source for this process: in a tenant its files, else the manager, or the GPUs alone if none runs. `is_simulated`: only one of
    /// the simulated machine.
    pub(crate) fn find(environment: &Environment, is_simulated: bool) -> Result<SnapshotSource, Failure> {
        let tenant = directory::resolve(environment.tenant.as_deref());
        let mut down = None;
        if tenant.is_none() {
            match ManagerClient::find_or_files(environment)? {
                Ok(node) if !is_simulated || node.has_gpus_of(&environment.machine_dir(None)?) => {
                    return Ok(SnapshotSource::Manager(node));
                }
                Ok(_) => {}
                Err(missed) => down = missed,
            }
        }
        let inventory = Inventory::find(environment, is_simulated)?;
        let sensors = Sensors::of(&inventory, tenant.is_some());
        let mut watch = Watch::new(match (tenant, &down) {
            (Some(tenant), _) => Source::Own(tenant),
            (None, Some(down)) => Source::Left(down.root().to_owned()),
            (None, None) => Source::None,
        })?;
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
    pub(crate) fn missing(&self) -> Result<Vec<String>, Failure> {
        Ok(match self {
            // One whose files cannot be read is on no GPU.
            SnapshotSource::Manager(node) => {
                let containers = node.containers()?.containers.into_iter();
                let unread = containers.filter(|container| container.devices.is_empty());
                unread.flat_map(|container| container.findings).collect()
            }
            SnapshotSource::Own { watch, .. } => watch.missing().to_vec(),
        })
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
        words.map_or(Ok(()), |words| crate::output::warn(&words))
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
