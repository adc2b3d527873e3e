use vcuda_region::GpuUuid;

use super::*;
use crate::gpu::Gpu;

fn uuid() -> GpuUuid {
    GpuUuid::from_bytes([1; 16])
}

fn grant(key: &str, number: u64) -> Grant {
    Grant::example(key, number, vec![uuid()])
}

fn table(grants: &[Grant]) -> GrantTable {
    let mut table = GrantTable::default();
    for grant in grants {
        table.put(Arc::new(grant.clone()));
    }
    table
}

fn inventory(minor_number: Option<u32>) -> Inventory {
    let mut gpu = Gpu::new(uuid(), "simulated", 24 << 30);
    gpu.minor_number = minor_number;
    Inventory { gpus: vec![gpu], ..Inventory::default() }
}

/// The devices of the manager with the root `root`, in the folder `cdi`.
fn devices(scratch: &Path, root: &str) -> GrantDevices {
    let shim = library::Current::default();
    shim.set(library::Installed {
        library: "/lib/libvcuda_shim-1.so".into(),
        preload: "/lib/ld.so.preload-1".into(),
        program: None,
    });
    let settings = DeviceSettings {
        folder: Folder::At(scratch.join("cdi")),
        inject: Inject::ToolkitEnv,
        ..DeviceSettings::default()
    };
    let directories = TenantDirectories::new(&scratch.join(root)).unwrap();
    GrantDevices::new(settings, directories, Arc::new(shim))
}

/// The directory that the device mounts; `None` without a device.
fn mounted(scratch: &Path, key: &str) -> Option<PathBuf> {
    let text = fs::read(path(&scratch.join("cdi"), key)).ok()?;
    let spec: Spec = serde_json::from_slice(&text).unwrap();
    assert!(spec.is_of(KIND, key));
    spec.limits().map(Path::to_owned)
}

#[test]
fn a_device_is_of_the_living_grant_of_its_name_and_of_no_other() {
    let scratch = tempfile::tempdir().unwrap();
    let own = devices(scratch.path(), "run");
    let directory = |name: &str| Some(scratch.path().join("run/containers").join(name));
    let gpus = inventory(Some(0));
    own.write(&grant("web", 1), &gpus).unwrap();
    assert_eq!(own.device_of(&grant("web", 1)).unwrap(), "vcuda.io/grant=web");
    assert_eq!(mounted(scratch.path(), "web"), directory("web-1"));
    // The next grant of the name has its own directory, and a late end of the first one does not take its device.
    own.write(&grant("web", 2), &gpus).unwrap();
    own.remove(&grant("web", 1)).unwrap();
    assert_eq!(mounted(scratch.path(), "web"), directory("web-2"));
    assert_eq!(own.device_of(&grant("web", 1)), None);
    own.remove(&grant("web", 2)).unwrap();
    assert_eq!((mounted(scratch.path(), "web"), own.device_of(&grant("web", 2))), (None, None));
}

#[test]
fn a_device_that_cannot_be_replaced_is_at_least_removed() {
    let scratch = tempfile::tempdir().unwrap();
    let own = devices(scratch.path(), "run");
    own.write(&grant("web", 1), &inventory(Some(0))).unwrap();
    let toolkit_free = GrantDevices {
        settings: DeviceSettings {
            inject: Inject::Cdi,
            driver_root: scratch.path().to_owned(),
            ..own.settings.clone()
        },
        ..own
    };
    let error = toolkit_free.write(&grant("web", 2), &inventory(Some(0))).unwrap_err();
    assert!(error.to_string().contains("libcuda.so.1"), "{error}");
    assert_eq!(mounted(scratch.path(), "web"), None);
}

#[test]
fn a_start_removes_what_is_left_and_restores_what_is_missing() {
    let scratch = tempfile::tempdir().unwrap();
    let before = devices(scratch.path(), "run");
    let gpus = inventory(Some(0));
    for grant in [grant("gone", 1), grant("web", 2)] {
        before.write(&grant, &gpus).unwrap();
    }
    fs::write(scratch.path().join("cdi/.vcuda.io-grant-a.json.7.new"), "{").unwrap();
    fs::write(scratch.path().join("cdi/nvidia.json"), "{}").unwrap();
    let after = devices(scratch.path(), "run");
    let table = table(&[grant("web", 3), grant("batch", 4)]);
    after.tidy(&table).unwrap();
    assert_eq!((mounted(scratch.path(), "gone"), mounted(scratch.path(), "web")), (None, None));
    // Another manager's device stays, and its name cannot be had.
    after.restore(&table, &gpus).unwrap();
    let names: Vec<_> = ["web", "batch"].map(|key| mounted(scratch.path(), key).is_some()).into();
    assert_eq!(names, [true, true]);
    assert_eq!(fs::read_dir(scratch.path().join("cdi")).unwrap().count(), 3);
    fs::remove_file(path(&scratch.path().join("cdi"), "web")).unwrap();
    after.restore(&table, &gpus).unwrap();
    assert!(mounted(scratch.path(), "web").is_some());
}

#[test]
fn the_files_of_others_are_left_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let (own, other) = (devices(scratch.path(), "run"), devices(scratch.path(), "other"));
    let gpus = inventory(Some(0));
    let directory = scratch.path().join("other/containers/web-1");
    fs::create_dir_all(&directory).unwrap();
    other.write(&grant("web", 1), &gpus).unwrap();
    own.tidy(&GrantTable::default()).unwrap();
    assert!(matches!(own.write(&grant("web", 1), &gpus), Err(DeviceError::Foreign(_))));
    assert_eq!(own.device_of(&grant("web", 1)), None);
    assert_eq!(mounted(scratch.path(), "web").as_ref(), Some(&directory));
    // What a manager that is gone left behind is taken over.
    fs::remove_dir(&directory).unwrap();
    own.write(&grant("web", 1), &gpus).unwrap();
    assert_ne!(mounted(scratch.path(), "web").as_ref(), Some(&directory));
    fs::write(path(&scratch.path().join("cdi"), "mine"), "{}").unwrap();
    assert!(matches!(own.write(&grant("mine", 2), &gpus), Err(DeviceError::Foreign(_))));
}

#[test]
fn a_pods_grant_and_a_name_that_cdi_forbids_have_no_device() {
    let scratch = tempfile::tempdir().unwrap();
    let own = devices(scratch.path(), "run");
    let mut of_pod = grant("slot", 1);
    of_pod.holder.pod = "infer".to_owned();
    for grant in [of_pod, grant("web-", 2), grant("_web", 3)] {
        own.write(&grant, &inventory(Some(0))).unwrap();
        assert_eq!(own.device_of(&grant), None);
    }
    assert!(
        !scratch.path().join("cdi").exists()
            || fs::read_dir(scratch.path().join("cdi")).unwrap().count() == 0
    );
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("cdi"), "").unwrap();
    let own = devices(scratch.path(), "run");
    let error = own.write(&grant("web", 1), &inventory(Some(0))).unwrap_err();
    assert!(error.to_string().contains("cdi.directory"), "{error}");
}
