//! Facts that specifications need beside the grant: asked anew for each, as shim, driver and GPUs change.

use std::collections::BTreeMap;

use tokio::task::spawn_blocking;

use super::{BindError, Binder};
use crate::cdi::{Facts, Inject, Shim};
use crate::driver;

impl Binder {
    pub(super) async fn facts(&self) -> Result<Facts, BindError> {
        let status = self.manager.status().await?;
        let shim = (!status.shim_library.is_empty()).then(|| Shim {
            library: status.shim_library.into(),
            preload: status.shim_preload.into(),
        });
        let driver = match self.rules.inject {
            Inject::Cdi => {
                let (root, view) = self.rules.driver.clone();
                let found = spawn_blocking(move || driver::find(&root, &view)).await;
                found.map_err(|_| BindError::Stopping)??
            }
            Inject::ToolkitEnv | Inject::ToolkitMounts => Vec::new(),
        };
        let control = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"];
        let seen = self.node.borrow().clone().unwrap_or_default();
        let nodes = seen.gpus.iter().filter_map(|gpu| {
            let minor = gpu.minor_number?;
            Some((gpu.uuid.clone(), format!("nvidia{minor}")))
        });
        Ok(Facts {
            shim,
            program: (!status.program.is_empty()).then(|| status.program.into()),
            is_strict: self.rules.strict,
            inject: self.rules.inject,
            devices: self.rules.devices.clone(),
            control_nodes: control.map(str::to_owned).to_vec(),
            gpu_nodes: nodes.collect::<BTreeMap<_, _>>(),
            driver,
        })
    }
}
