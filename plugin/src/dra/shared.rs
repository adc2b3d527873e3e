//! What all parts of the driver use.

use std::sync::Arc;

use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::gpus::{Gpus, poll_manager};
use super::metrics::Instruments;
use crate::cdi::Store;
use crate::config::Config;
use crate::manager::Manager;

pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) manager: Arc<Manager>,
    pub(crate) store: Store,
    pub(crate) gpus: Gpus,
    /// Name of the node, and of its pool.
    pub(crate) node: String,
    pub(crate) instruments: Instruments,
}

impl Shared {
    /// Starts what only reads, so that it may run beside another driver.
    pub(super) fn start(config: &Config, client: Client, tasks: &mut JoinSet<()>) -> Arc<Self> {
        let manager = Arc::new(Manager::new(&config.manager));
        let (sender, gpus) = watch::channel(None);
        tasks.spawn(poll_manager(Arc::clone(&manager), sender, config.unhealthy_effect));
        let (store, node) = (Store::new(&config.cdi), config.cluster.node.clone());
        Arc::new(Self { client, manager, store, gpus, node, instruments: Instruments::default() })
    }
}
