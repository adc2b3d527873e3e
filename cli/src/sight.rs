//! Where `smi` and `top` get what they show: from the node's manager, or, without one, from the tenants' own files.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::config::Environment;
use crate::failure::Failure;
use crate::gpus::Inventory;
use crate::node::{Node, view};
use crate::render::Snapshot;
use crate::smi::{Scope, Watch};

/// Over which time the used share is taken.
const SHARE_WINDOW: Duration = Duration::from_secs(1);

/// A place to look from.
#[derive(Debug)]
pub(crate) enum Sight {
    /// Over all containers of the node.
    Node(Node),
    /// Over this user's tenants, or the one that this process belongs to.
    Own {
        /// Looks into their files.
        watch: Watch,
        /// The GPUs.
        inventory: Inventory,
    },
}

impl Sight {
    /// The widest there is: the manager's, unless this is a tenant, or the simulated machine was asked for.
    pub(crate) fn find(environment: &Environment, is_simulated: bool) -> Result<Sight, Failure> {
        let scope = Scope::of(environment)?;
        if let (Scope::User(_), false) = (&scope, is_simulated)
            && let Some(node) = Node::find(environment)?
        {
            return Ok(Sight::Node(node));
        }
        let inventory = Inventory::find(environment, is_simulated)?;
        let mut watch = Watch::new(scope)?;
        // What is used is a difference: this is the first look.
        watch.look(&inventory)?;
        Ok(Sight::Own { watch, inventory })
    }

    /// Waits until there is something new to see.
    pub(crate) fn wait(&self) {
        sleep(SHARE_WINDOW);
    }

    /// Whether the first look says all: the manager measures all the time.
    pub(crate) fn knows_already(&self) -> bool {
        matches!(self, Sight::Node(_))
    }

    /// The state now.
    pub(crate) fn look(&mut self) -> Result<Snapshot, Failure> {
        match self {
            Sight::Node(node) => view::snapshot(node),
            Sight::Own { watch, inventory } => watch.look(inventory),
        }
    }

    /// Why tenants are missing from the last look.
    pub(crate) fn missing(&self) -> &[String] {
        match self {
            Sight::Node(_) => &[],
            Sight::Own { watch, .. } => watch.missing(),
        }
    }

    /// The manager's socket, if it is the manager's.
    pub(crate) fn socket(&self) -> Option<&Path> {
        match self {
            Sight::Node(node) => Some(node.socket()),
            Sight::Own { .. } => None,
        }
    }
}
