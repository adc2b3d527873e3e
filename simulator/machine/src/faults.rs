//! `faults.toml`: faults of GPUs and driver while the machine runs, visible through NVML.
//!
//! They are separate from `machine.toml`, which does not change. The file is read at each query and replaced as a whole;
//! without it there are no faults.

mod checkpoints;
mod watch;

use crate::MachineError;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

pub use checkpoints::{CheckpointFault, CheckpointFaults};
pub use watch::FaultsWatch;

const FILE: &str = "faults.toml";

/// Present faults, and all errors so far.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Whether the driver is unloaded.
    pub driver_gone: bool,
    /// Whether functions that ask the driver block.
    pub hangs: bool,
    /// Driver version after a reload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_version: Option<String>,
    /// UUIDs of GPUs that have fallen off the bus.
    pub lost: Vec<String>,
    /// UUIDs of GPUs that a later initialisation of NVML does not find.
    pub absent: Vec<String>,
    /// UUIDs of GPUs in MIG mode, without instances.
    pub mig: Vec<String>,
    /// UUIDs of GPUs that their hardware slows down, as they are too hot.
    pub hot: Vec<String>,
    /// What becomes of the steps of checkpoints from now on.
    #[serde(skip_serializing_if = "CheckpointFaults::is_none")]
    pub checkpoints: CheckpointFaults,
    /// Reported XIDs, the oldest first.
    pub xids: Vec<Xid>,
}

/// An error that the driver reported.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Xid {
    /// UUID of the GPU ("GPU-...").
    pub gpu: String,
    /// XID number (NVIDIA, "XID Errors").
    pub xid: u64,
}

impl Faults {
    /// Faults of the machine in `dir`; none if there is no file.
    pub fn read(dir: &Path) -> Result<Faults, MachineError> {
        let path = dir.join(FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).map_err(|error| syntax(path, &error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Faults::default()),
            Err(source) => Err(MachineError::Io { action: "read", path, source }),
        }
    }

    /// Replaces the file as a whole. Errors: `MachineError::Io`; `Syntax` for numbers that TOML cannot hold (above
    /// 2^63-1).
    pub fn write(&self, dir: &Path) -> Result<(), MachineError> {
        let (path, temporary) = (dir.join(FILE), dir.join(format!(".{FILE}.new")));
        let text = toml::to_string(self).map_err(|error| syntax(path.clone(), &error))?;
        std::fs::write(&temporary, text)
            .and_then(|()| std::fs::rename(&temporary, &path))
            .map_err(|source| MachineError::Io { action: "write", path, source })
    }
}

fn syntax(path: PathBuf, error: &dyn std::fmt::Display) -> MachineError {
    MachineError::Syntax { path, reason: error.to_string().lines().collect::<Vec<_>>().join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_read_as_they_were_written() {
        let dir = std::env::temp_dir().join(format!("vcuda-faults-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        assert_eq!(Faults::read(&dir).unwrap(), Faults::default());
        let faults = Faults {
            driver_version: Some("570.1".to_owned()),
            lost: vec!["GPU-1".to_owned()],
            xids: vec![Xid { gpu: "GPU-1".to_owned(), xid: 79 }],
            ..Faults::default()
        };
        faults.write(&dir).unwrap();
        assert_eq!(Faults::read(&dir).unwrap(), faults);
        std::fs::write(dir.join(FILE), "lost = 3\n").unwrap();
        let message = Faults::read(&dir).unwrap_err().to_string();
        assert!(message.contains(FILE) && !message.contains('\n'), "{message}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
