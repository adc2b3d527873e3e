//! The GPUs that a process sees. Drivers before 575.57.08 do not move one that sees only a part of the node's, as in a container
//! with one of several GPUs: the checkpoint is refused (cuda-checkpoint#24), or the restore fails (cuda-checkpoint#12).

use std::io;

use super::{Check, Places, Resident};
use crate::gpu::{Gpu, Inventory};

const NAME: &str = "device files";
/// First driver that moves a process which sees a part of the GPUs.
const FIRST: [u32; 3] = [575, 57, 8];

/// Whether each process sees the device files of all GPUs of the node, if the driver asks for that.
pub(super) fn all_seen(places: &Places, inventory: &Inventory, processes: &[Resident]) -> Check {
    if version(&inventory.driver_version) >= FIRST {
        return Check::passed(NAME, "this driver does not ask for all");
    }
    for process in processes {
        for gpu in &inventory.gpus {
            match sees(places, process.pid, gpu) {
                Ok(true) => {}
                Ok(false) => {
                    return Check::refused(
                        NAME,
                        format!(
                            "process {} has no device file of GPU {}, and driver {} moves only processes that see all GPUs of the node",
                            process.pid, gpu.uuid, inventory.driver_version
                        ),
                        "update it to release 575.57.08 or later",
                    );
                }
                Err(error) => {
                    return Check::refused(
                        NAME,
                        format!("/proc/{}/root/dev: {error}", process.pid),
                        "give the manager CAP_SYS_PTRACE, which the driver needs, too",
                    );
                }
            }
        }
    }
    Check::passed(NAME, "of all GPUs")
}

/// Whether a process has the device file of a GPU. One that has ended has; a GPU of which NVML does not tell the number has none.
fn sees(places: &Places, pid: u32, gpu: &Gpu) -> io::Result<bool> {
    let Some(minor) = gpu.minor_number else {
        return Ok(true);
    };
    let root = places.procfs.join(format!("{pid}/root"));
    match root.join(format!("dev/nvidia{minor}")).symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(root.symlink_metadata().is_err()),
        Err(error) => Err(error),
    }
}

/// The numbers of a version; those that are missing are 0.
fn version(text: &str) -> [u32; 3] {
    let mut numbers = text.split('.').map(|word| word.parse().unwrap_or(0));
    [(); 3].map(|()| numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use vcuda_region::GpuUuid;

    use super::*;

    const PROCESS: [Resident; 1] = [Resident { pid: 7, bytes: 1 }];

    /// A node with GPUs of these minor numbers.
    fn inventory(driver_version: &str, minors: &[Option<u32>]) -> Inventory {
        let gpu = |(number, minor): (u8, &Option<u32>)| Gpu {
            minor_number: *minor,
            ..Gpu::new(GpuUuid::from_bytes([number; 16]), "g", 1 << 30)
        };
        Inventory {
            gpus: (1..).zip(minors).map(gpu).collect(),
            driver_version: driver_version.to_owned(),
            ..Inventory::default()
        }
    }

    /// A process with these files in `/dev`.
    fn process(files: &[&str]) -> (tempfile::TempDir, Places) {
        let folder = tempfile::tempdir().unwrap();
        let dev = folder.path().join("7/root/dev");
        fs::create_dir_all(&dev).unwrap();
        for file in files {
            fs::write(dev.join(file), "").unwrap();
        }
        let places = Places { procfs: folder.path().to_owned(), cgroups: folder.path().to_owned() };
        (folder, places)
    }

    #[test]
    fn a_process_that_sees_a_part_of_the_gpus_is_refused_by_older_drivers() {
        let (_folder, places) = process(&["nvidia0", "nvidiactl", "nvidia10"]);
        let two = [Some(0), Some(1)];
        for old in ["570.211.01", "575.51.03", "575.57.07"] {
            let refusal = all_seen(&places, &inventory(old, &two), &PROCESS).outcome.unwrap_err();
            assert!(refusal.why.contains("process 7 has no device file of GPU"), "{refusal:?}");
            assert!(refusal.remedy.contains("575.57.08"), "{refusal:?}");
        }
        for new in ["575.57.08", "575.64", "580.95.05"] {
            assert!(all_seen(&places, &inventory(new, &two), &PROCESS).outcome.is_ok(), "{new}");
        }
        for all in [[Some(0), Some(10)], [Some(0), None]] {
            let check = all_seen(&places, &inventory("570.86.10", &all), &PROCESS);
            assert_eq!(check, Check::passed(NAME, "of all GPUs"));
        }
    }

    #[test]
    fn a_process_that_has_ended_is_no_reason_and_a_hidden_one_is() {
        let (folder, places) = process(&[]);
        let old = inventory("570.86.10", &[Some(0)]);
        fs::remove_dir_all(folder.path().join("7/root")).unwrap();
        assert!(all_seen(&places, &old, &PROCESS).outcome.is_ok());
        // No directory: the look fails, whoever takes it.
        fs::write(folder.path().join("7/root"), "").unwrap();
        let refusal = all_seen(&places, &old, &PROCESS).outcome.unwrap_err();
        assert!(refusal.remedy.contains("CAP_SYS_PTRACE"), "{refusal:?}");
    }
}
