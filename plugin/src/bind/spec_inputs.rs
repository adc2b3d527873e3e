//! Inputs of a specification beside the grant. They are read anew for each container, as shim, driver and GPUs change.

use std::collections::BTreeMap;

use tokio::task::block_in_place;
use vcuda_cdi::{CONTROL_NODES, driver};

use super::{BindError, BindSettings, Binder};
use crate::cdi::{Inject, Shim, SpecInputs};
use crate::manager::Manager;

impl Binder {
    pub(super) async fn spec_inputs(&self) -> Result<SpecInputs, BindError> {
        let node = self.node.borrow().clone().unwrap_or_default();
        let minors = node.gpus.iter().map(|gpu| (gpu.uuid.clone(), gpu.minor_number));
        spec_inputs(&self.manager, &self.settings, minors).await
    }
}

/// Reads the inputs from the manager and the driver's root. `minors` are the minor numbers of the GPUs by UUID.
pub(crate) async fn spec_inputs(
    manager: &Manager,
    settings: &BindSettings,
    minors: impl Iterator<Item = (String, Option<u32>)> + Send,
) -> Result<SpecInputs, BindError> {
    let gpu_nodes: BTreeMap<String, String> =
        minors.filter_map(|(uuid, minor)| Some((uuid, format!("nvidia{}", minor?)))).collect();
    let status = manager.status().await?;
    let shim = (!status.shim_library.is_empty())
        .then(|| Shim { library: status.shim_library.into(), preload: status.shim_preload.into() });
    let driver = match settings.inject {
        Inject::Cdi => {
            let (root, view) = &settings.driver;
            block_in_place(|| driver::find(root, view))?
        }
        Inject::ToolkitEnv | Inject::ToolkitMounts => Vec::new(),
    };
    Ok(SpecInputs {
        shim,
        program: (!status.program.is_empty()).then(|| status.program.into()),
        is_strict: settings.strict,
        has_driver_limits: status.has_driver_limits,
        inject: settings.inject,
        devices: settings.devices.clone(),
        control_nodes: CONTROL_NODES.map(str::to_owned).to_vec(),
        gpu_nodes,
        driver,
    })
}
