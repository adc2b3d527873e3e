//! The source of the figures of `smi` and `top`: the node's manager, or, without one, the tenants' own files.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::config::Environment;
use crate::failure::Failure;
use crate::inventory::Inventory;
use crate::manager_client::{ManagerClient, view};
use crate::render::Snapshot;
use crate::smi::{Scope, Watch};

/// Over which time the used share is taken.
const SHARE_WINDOW: Duration = Duration::from_secs(1);

/// A place to look from.
#[derive(Debug)]
pub(crate) enum SnapshotSource {
    /// Over all tenants of the node.
    Manager(ManagerClient),
    /// Over this user's tenants, or the one that this process belongs to.
    Own {
        /// Looks into their files.
        watch: Watch,
        /// The GPUs.
        inventory: Inventory,
    },
}

impl SnapshotSource {
    /// The widest there is: the manager's, unless this is a tenant, or the simulated machine was asked for.
    pub(crate) fn find(environment: &Environment, is_simulated: bool) -> Result<SnapshotSource, Failure> {
        let scope = Scope::of(environment)?;
        if let (Scope::User(_), false) = (&scope, is_simulated)
            && let Some(node) = ManagerClient::find(environment)?
        {
            return Ok(SnapshotSource::Manager(node));
        }
        let inventory = Inventory::find(environment, is_simulated)?;
        let mut watch = Watch::new(scope)?;
        // Use over time is a difference: this is the first look.
        watch.look(&inventory)?;
        Ok(SnapshotSource::Own { watch, inventory })
    }

    /// Waits until there is something new to see.
    pub(crate) fn wait(&self) {
        sleep(SHARE_WINDOW);
    }

    /// Whether the first look says all: the manager measures all the time.
    pub(crate) fn knows_already(&self) -> bool {
        matches!(self, SnapshotSource::Manager(_))
    }

    /// The state now.
    pub(crate) fn look(&mut self) -> Result<Snapshot, Failure> {
        match self {
            SnapshotSource::Manager(node) => view::snapshot(node),
            SnapshotSource::Own { watch, inventory } => watch.look(inventory),
        }
    }

    /// The reasons why tenants are missing from the last look.
    pub(crate) fn missing(&self) -> &[String] {
        match self {
            SnapshotSource::Manager(_) => &[],
            SnapshotSource::Own { watch, .. } => watch.missing(),
        }
    }

    /// The manager's socket, if it is the manager's.
    pub(crate) fn socket(&self) -> Option<&Path> {
        match self {
            SnapshotSource::Manager(node) => Some(node.socket()),
            SnapshotSource::Own { .. } => None,
        }
    }
}
