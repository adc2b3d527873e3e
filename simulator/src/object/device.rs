//! Devices that this process sees.

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;
use vcuda_machine::{GpuConfig, Machine};

use crate::base::arena::Arena;
use crate::base::config::{ENV_DEVICE_ORDER, ENV_VISIBLE_DEVICES, variable};
use crate::base::visible::{Candidate, visible as choose};

/// A GPU as this process sees it.
#[derive(Debug)]
pub(crate) struct Device {
    /// Ordinal in this process.
    pub(crate) ordinal: CUdevice,
    /// Index on the machine.
    pub(crate) gpu: usize,
    pub(crate) config: GpuConfig,
    /// Addresses of its memory.
    pub(crate) arena: Arena,
    /// Handles of its default and current memory pools; 0 until requested.
    pub(crate) pools: Mutex<DevicePools>,
}

/// A device's memory pools, by handle.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DevicePools {
    /// Pool of `cuDeviceGetDefaultMemPool`.
    pub(crate) default: usize,
    /// Pool of `cuDeviceGetMemPool`.
    pub(crate) current: usize,
}

/// Devices visible to this process. A GPU without a device file counts as absent.
pub(crate) fn visible(machine: &Machine) -> Vec<Device> {
    let gpus = &machine.config().gpus;
    let speed = |gpu: &GpuConfig| u64::from(gpu.sms) * u64::from(gpu.clock_mhz);
    let there: Vec<usize> = (0..gpus.len()).filter(|gpu| machine.has_node(*gpu)).collect();
    let candidates: Vec<Candidate> = there
        .iter()
        .map(|gpu| Candidate { uuid: gpus[*gpu].uuid.clone(), speed: speed(&gpus[*gpu]) })
        .collect();
    let devices = variable(ENV_VISIBLE_DEVICES);
    let order = variable(ENV_DEVICE_ORDER);
    let chosen = choose(&candidates, devices.as_deref(), order.as_deref());
    let make = |(ordinal, gpu): (CUdevice, usize)| {
        Some(Device {
            ordinal,
            gpu,
            config: gpus.get(gpu)?.clone(),
            arena: Arena::default(),
            pools: Mutex::default(),
        })
    };
    let chosen = chosen.into_iter().filter_map(|index| there.get(index).copied());
    (0..).zip(chosen).filter_map(make).collect()
}
