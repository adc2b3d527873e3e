//! `faults.toml`: what has happened to the GPUs and their driver while the machine runs, for who looks through NVML.
//!
//! A file of its own, as `machine.toml` is what the machine is and stays. It is read again at each look and replaced as a
//! whole; a machine without it is well.

mod watch;

use crate::MachineError;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

pub use watch::FaultsWatch;

const FILE: &str = "faults.toml";

/// Everything that is wrong, and every error so far.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// The driver is not loaded.
    pub driver_gone: bool,
    /// Functions that ask the driver do not return, until this is over.
    pub hangs: bool,
    /// Its release after a reload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_version: Option<String>,
    /// GPUs (UUIDs) that have fallen off the bus.
    pub lost: Vec<String>,
    /// GPUs (UUIDs) that are not there, for who initialises NVML from then on.
    pub absent: Vec<String>,
    /// GPUs (UUIDs) in MIG mode, with no instance.
    pub mig: Vec<String>,
    /// XIDs, the oldest first. Only added to.
    pub xids: Vec<Xid>,
}

/// One error that the driver has reported.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Xid {
    /// UUID of the GPU ("GPU-...").
    pub gpu: String,
    /// The number that NVIDIA's XID catalogue explains.
    pub xid: u64,
}

impl Faults {
    /// Those of the machine in `dir`; none where there is no file.
    ///
    /// # Errors
    /// `MachineError::Io` and `Syntax`.
    pub fn read(dir: &Path) -> Result<Faults, MachineError> {
        let path = dir.join(FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).map_err(|error| syntax(path, &error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Faults::default()),
            Err(source) => Err(MachineError::Io {
                action: "read",
                path,
                source,
            }),
        }
    }

    /// Lets them happen: the file appears as a whole.
    ///
    /// # Errors
    /// `MachineError::Io`; `Syntax` for numbers that TOML cannot hold (above 2^63-1).
    pub fn write(&self, dir: &Path) -> Result<(), MachineError> {
        let (path, temporary) = (dir.join(FILE), dir.join(format!(".{FILE}.new")));
        let text = toml::to_string(self).map_err(|error| syntax(path.clone(), &error))?;
        std::fs::write(&temporary, text)
            .and_then(|()| std::fs::rename(&temporary, &path))
            .map_err(|source| MachineError::Io {
                action: "write",
                path,
                source,
            })
    }
}

fn syntax(path: PathBuf, error: &dyn std::fmt::Display) -> MachineError {
    MachineError::Syntax {
        path,
        reason: error.to_string().lines().collect::<Vec<_>>().join(" "),
    }
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
            xids: vec![Xid {
                gpu: "GPU-1".to_owned(),
                xid: 79,
            }],
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
