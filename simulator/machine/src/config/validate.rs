//! Validation of the configuration.

use super::{Config, GpuConfig, MAX_GPUS, RING_ENTRIES};
use crate::MachineError;

impl Config {
    /// Checks every field. Error: `MachineError::Value` with the field, its value and the possible ones.
    pub fn validate(&self) -> Result<(), MachineError> {
        self.validate_numbers()?;
        self.validate_faults()?;
        self.validate_gpus()
    }

    fn validate_numbers(&self) -> Result<(), MachineError> {
        let driver = &self.driver;
        // Key, value, least, most.
        let bounds = [
            ("gpus", self.gpus.len() as u64, 1, MAX_GPUS as u64),
            ("slice_ns", self.slice_ns, 10_000, 1_000_000_000),
            ("switch_ns", self.switch_ns, 0, 10_000_000),
            ("queue_depth", self.queue_depth, 1, RING_ENTRIES),
            ("sample_ns", self.sample_ns, 1_000_000, 1_000_000_000),
            ("granularity_bytes", self.granularity_bytes, 1, 1 << 30),
            ("copy_bytes_per_us", self.copy_bytes_per_us, 1, 1 << 40),
            ("device_copy_bytes_per_us", self.device_copy_bytes_per_us, 1, 1 << 40),
            ("copy_latency_ns", self.copy_latency_ns, 0, 1_000_000_000),
            ("context_bytes", self.context_bytes, 0, 1 << 40),
            ("module_bytes", self.module_bytes, 0, 1 << 40),
            ("green_context_bytes", self.green_context_bytes, 0, 1 << 40),
            ("kernels.work_ns_per_iteration", self.kernels.work_ns_per_iteration, 1, 1_000_000_000),
            ("driver.nvml_init_ns", self.driver.nvml_init_ns, 0, 60_000_000_000),
            ("driver.context_create_ns", self.driver.context_create_ns, 0, 60_000_000_000),
            ("driver.allocation_unit_bytes", self.driver.allocation_unit_bytes, 1, 1 << 30),
            ("driver.memory_limit_unit_bytes", driver.memory_limit_unit_bytes, 1, 1 << 30),
            ("driver.event_record_ns", driver.event_record_ns, 0, 1_000_000),
            ("driver.event_pair_ns", driver.event_pair_ns, 0, 1_000_000),
            ("driver.slice_spread_permille", driver.slice_spread_permille, 0, 900),
            ("driver.release_delay_ns", driver.release_delay_ns, 0, 60_000_000_000),
            ("driver.checkpoint_bytes_per_us", driver.checkpoint_bytes_per_us, 0, 1 << 40),
            ("driver.restore_bytes_per_us", driver.restore_bytes_per_us, 1, 1 << 40),
            ("driver.checkpoint_fixed_ns", driver.checkpoint_fixed_ns, 0, 60_000_000_000),
            ("cuda_version", u64::from(self.cuda_version), 11_000, 99_990),
        ];
        bounds.into_iter().try_for_each(|(field, number, least, most)| within(field, number, least, most))
    }

    fn validate_faults(&self) -> Result<(), MachineError> {
        if self.faults.fail_nth_allocation == Some(0) {
            return Err(value("faults.fail_nth_allocation", 0, "the first allocation is 1"));
        }
        for (name, fault) in &self.faults.functions {
            let field = format!("faults.functions.{name}");
            if fault.code == 0 || fault.nth == Some(0) || fault.every == Some(0) {
                return Err(value(&field, 0, "calls are counted from 1, and 0 is success"));
            }
            if fault.nth.is_none() && fault.every.is_none() {
                return Err(value(&field, "no call", "say nth or every"));
            }
        }
        Ok(())
    }

    fn validate_gpus(&self) -> Result<(), MachineError> {
        for (one, other) in &self.nvlinks {
            if one == other || (*one).max(*other) >= self.gpus.len() {
                return Err(value(
                    "nvlinks",
                    format!("[{one}, {other}]"),
                    "write pairs of different GPUs by their positions, from 0",
                ));
            }
        }
        for (index, gpu) in self.gpus.iter().enumerate() {
            gpu.validate(index)?;
            let same = |other: &GpuConfig| !gpu.uuid.is_empty() && other.uuid == gpu.uuid;
            if self.gpus.iter().filter(|other| same(other)).count() > 1 {
                return Err(value(
                    &format!("gpus[{index}].uuid"),
                    &gpu.uuid,
                    "give each GPU its own, or none",
                ));
            }
        }
        Ok(())
    }
}

impl GpuConfig {
    fn validate(&self, index: usize) -> Result<(), MachineError> {
        let field = |name: &str| format!("gpus[{index}].{name}");
        within(&field("memory_bytes"), self.memory_bytes, 1 << 20, 1 << 50)?;
        within(&field("sms"), u64::from(self.sms), 1, 4096)?;
        within(&field("numa_node"), u64::from(self.numa_node), 0, 63)?;
        if !self.uuid.is_empty() && !is_uuid(&self.uuid) {
            return Err(value(
                &field("uuid"),
                &self.uuid,
                "write GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx in hex, or leave it out",
            ));
        }
        if capability(&self.compute_capability).is_none() {
            return Err(value(
                &field("compute_capability"),
                &self.compute_capability,
                "write major.minor, as 9.0",
            ));
        }
        if self.name.is_empty() || self.name.len() > 95 {
            return Err(value(&field("name"), &self.name, "use 1 to 95 bytes"));
        }
        Ok(())
    }
}

/// "9.0" as (9, 0).
pub(super) fn capability(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn is_uuid(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("GPU-") else {
        return false;
    };
    let lengths: Vec<usize> = rest.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && rest.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit())
}

fn within(field: &str, number: u64, least: u64, most: u64) -> Result<(), MachineError> {
    if (least..=most).contains(&number) {
        return Ok(());
    }
    Err(value(field, number, &format!("use {least} to {most}")))
}

fn value(field: &str, found: impl ToString, remedy: &str) -> MachineError {
    MachineError::Value { field: field.into(), value: found.to_string(), remedy: remedy.into() }
}
