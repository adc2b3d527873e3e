//! Facts that specifications need beside the grant: asked anew for each, as shim, driver and GPUs change.

use std::collections::BTreeMap;

use tokio::task::spawn_blocking;

use super::{BindError, Binder, Rules};
use crate::cdi::{Facts, Inject, Shim};
use crate::driver;
use crate::manager::Manager;

impl Binder {
    pub(super) async fn facts(&self) -> Result<Facts, BindError> {
        let seen = self.node.borrow().clone().unwrap_or_default();
        let minors = seen.gpus.iter().map(|gpu| (gpu.uuid.clone(), gpu.minor_number));
        facts(&self.manager, &self.rules, minors).await
    }
}

/// The facts of a node whose GPUs, by UUID, have these minor numbers.
pub(crate) async fn facts(
    manager: &Manager,
    rules: &Rules,
    minors: impl Iterator<Item = (String, Option<u32>)> + Send,
) -> Result<Facts, BindError> {
    let gpu_nodes: BTreeMap<String, String> = minors
        .filter_map(|(uuid, minor)| Some((uuid, format!("nvidia{}", minor?))))
        .collect();
    let status = manager.status().await?;
    let shim = (!status.shim_library.is_empty()).then(|| Shim {
        library: status.shim_library.into(),
        preload: status.shim_preload.into(),
    });
    let driver = match rules.inject {
        Inject::Cdi => {
            let (root, view) = rules.driver.clone();
            let found = spawn_blocking(move || driver::find(&root, &view)).await;
            found.map_err(|_| BindError::Stopping)??
        }
        Inject::ToolkitEnv | Inject::ToolkitMounts => Vec::new(),
    };
    let control = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"];
    Ok(Facts {
        shim,
        program: (!status.program.is_empty()).then(|| status.program.into()),
        is_strict: rules.strict,
        inject: rules.inject,
        devices: rules.devices.clone(),
        control_nodes: control.map(str::to_owned).to_vec(),
        gpu_nodes,
        driver,
    })
}
