//! Readings of a GPU's sensors, and what it is.

use std::ffi::c_uint;

use vcuda_driver_api::nvml::{fn_types, nvmlTemperatureSensors_t, nvmlUtilization_t};

use super::{Nvml, NvmlGpu, NvmlProblem};

/// Readings of a GPU's sensors at one moment. What NVML does not tell is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// Time in which a kernel ran, in NVML's last sample (percent).
    pub utilization_percent: Option<u32>,
    /// Time in which its memory was read or written, in the same sample (percent).
    pub memory_utilization_percent: Option<u32>,
    /// Temperature of the GPU (degrees Celsius).
    pub temperature_celsius: Option<u32>,
    /// Power draw (mW).
    pub power_draw_mw: Option<u32>,
    /// Power limit that is enforced (mW).
    pub power_limit_mw: Option<u32>,
    /// Compute capability: major, minor.
    pub compute_capability: Option<[i32; 2]>,
    /// PCI address: domain, bus, device.
    pub pci_address: Option<[u32; 3]>,
}

impl Nvml {
    /// Readings of the GPU's sensors. Those that NVML does not tell are `None`: no reading is worth a failure.
    pub fn readings(&self, gpu: NvmlGpu) -> Readings {
        let rates = self.utilization(gpu).ok();
        Readings {
            utilization_percent: rates.map(|rates| rates.gpu),
            memory_utilization_percent: rates.map(|rates| rates.memory),
            temperature_celsius: self.temperature(gpu).ok(),
            power_draw_mw: self.power_draw(gpu).ok(),
            power_limit_mw: self.power_limit(gpu).ok(),
            compute_capability: self.compute_capability(gpu).ok(),
            pci_address: self.pci_address(gpu).ok(),
        }
    }

    fn compute_capability(&self, gpu: NvmlGpu) -> Result<[i32; 2], NvmlProblem> {
        let get = function!(self, nvmlDeviceGetCudaComputeCapability);
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both are valid for writing.
        checked!(nvmlDeviceGetCudaComputeCapability, unsafe { get(gpu.0, &raw mut major, &raw mut minor) })?;
        Ok([major, minor])
    }

    fn utilization(&self, gpu: NvmlGpu) -> Result<nvmlUtilization_t, NvmlProblem> {
        let get = function!(self, nvmlDeviceGetUtilizationRates);
        let mut rates = nvmlUtilization_t { gpu: 0, memory: 0 };
        // SAFETY: `rates` is valid for writing.
        checked!(nvmlDeviceGetUtilizationRates, unsafe { get(gpu.0, &raw mut rates) })?;
        Ok(rates)
    }

    fn temperature(&self, gpu: NvmlGpu) -> Result<u32, NvmlProblem> {
        let get = function!(self, nvmlDeviceGetTemperature);
        let mut celsius: c_uint = 0;
        // SAFETY: `celsius` is valid for writing.
        checked!(nvmlDeviceGetTemperature, unsafe {
            get(gpu.0, nvmlTemperatureSensors_t::GPU, &raw mut celsius)
        })?;
        Ok(celsius)
    }

    fn power_draw(&self, gpu: NvmlGpu) -> Result<u32, NvmlProblem> {
        let get = function!(self, nvmlDeviceGetPowerUsage);
        let mut milliwatts: c_uint = 0;
        // SAFETY: `milliwatts` is valid for writing.
        checked!(nvmlDeviceGetPowerUsage, unsafe { get(gpu.0, &raw mut milliwatts) })?;
        Ok(milliwatts)
    }

    fn power_limit(&self, gpu: NvmlGpu) -> Result<u32, NvmlProblem> {
        let get = function!(self, nvmlDeviceGetEnforcedPowerLimit);
        let mut milliwatts: c_uint = 0;
        // SAFETY: `milliwatts` is valid for writing.
        checked!(nvmlDeviceGetEnforcedPowerLimit, unsafe { get(gpu.0, &raw mut milliwatts) })?;
        Ok(milliwatts)
    }
}
