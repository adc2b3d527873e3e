use std::collections::BTreeMap;

use serde_json::json;
use vcuda_cdi::driver::DriverFile;

use super::*;
use crate::ids::{Ids, Slot};

fn inputs() -> SpecInputs {
    SpecInputs {
        shim: Some(Shim {
            library: "/var/lib/vcuda/lib/libvcuda_shim-1.2.0-9f2c.so".into(),
            preload: "/var/lib/vcuda/lib/ld.so.preload-1.2.0-9f2c".into(),
        }),
        program: Some("/var/lib/vcuda/lib/vcuda-1.2.0-9f2c".into()),
        is_strict: false,
        has_driver_limits: false,
        inject: Inject::Cdi,
        devices: "/dev".into(),
        control_nodes: vec!["nvidiactl".to_owned()],
        gpu_nodes: BTreeMap::from([("GPU-a".to_owned(), "nvidia3".to_owned())]),
        driver: vec![DriverFile {
            host: "/usr/lib64/libcuda.so.580.1".into(),
            container: "/usr/lib64/libcuda.so.1".into(),
        }],
    }
}

pub(super) fn a_slot(number: u32) -> SlotRecord {
    let shares = Ids::from([number]);
    SlotRecord {
        grant: format!("{}-17", Slot::from_shares(&shares)),
        gpus: vec!["GPU-a".to_owned()],
        held: HeldDevices {
            pod: "default/infer".to_owned(),
            pod_uid: "u-1".to_owned(),
            ids: [shares, Ids::from([0, 1, 2]), Ids::from([9]), Ids::new()],
        },
        asked: "3 chunks".to_owned(),
    }
}

pub(super) fn a_claim(uid: &str) -> ClaimRecord {
    ClaimRecord {
        namespace: "n".to_owned(),
        name: "c".to_owned(),
        uid: uid.to_owned(),
        asked: BTreeMap::new(),
        of_pod: true,
        prepared: vec![Prepared {
            request: "gpu".to_owned(),
            pool: "node".to_owned(),
            device: "gpu-1".to_owned(),
            share_id: None,
            cdi: vec![format!("vcuda.io/claim={uid}-gpu")],
            uuid: "GPU-1".to_owned(),
            key: Some("k".to_owned()),
            is_unused: false,
        }],
    }
}

/// A device of the slot with this share.
fn device(number: u32) -> CdiDevice {
    CdiDevice {
        name: a_slot(number).name(),
        gpus: vec!["GPU-a".to_owned()],
        limits: Some("/run/vcuda/containers/3f9a-17".into()),
    }
}

fn of_slot(inputs: &SpecInputs, device: CdiDevice) -> Result<Spec, SpecError> {
    spec::<SlotRecord>(inputs, &[device])
}

pub(super) fn a_spec(number: u32) -> Spec {
    of_slot(&inputs(), device(number)).unwrap()
}

/// The specification of claim `u`, with a device that has limits and one for admin access.
pub(super) fn claim_spec() -> Spec {
    let named = |name: &str| CdiDevice { name: name.to_owned(), ..device(1) };
    let devices = [named("u-gpu"), CdiDevice { limits: None, ..named("u-see") }];
    spec::<ClaimRecord>(&inputs(), &devices).unwrap()
}

/// A record of a release that did not know yet whether a share is used.
#[test]
fn an_earlier_record_of_a_claim_is_read() {
    let mut earlier = serde_json::to_value(a_claim("u")).unwrap();
    assert!(earlier["prepared"][0].as_object_mut().unwrap().remove("is_unused").is_some());
    assert_eq!(serde_json::from_value::<ClaimRecord>(earlier).unwrap(), a_claim("u"));
}

#[test]
fn it_is_what_kubernetes_md_shows() {
    let written = serde_json::to_value(a_spec(1)).unwrap();
    assert_eq!(written["cdiVersion"], "0.5.0");
    assert_eq!(written["kind"], "vcuda.io/slot");
    let device = &written["devices"][0];
    // Runtimes refuse a specification with a key that its version does not have.
    assert_eq!(device.as_object().unwrap().len(), 2, "{device}");
    assert_eq!(device["name"], Slot::from_shares(&Ids::from([1])).as_str());
    let data = |access: &str| json!([access, "nosuid", "nodev", "noexec", "bind"]);
    assert_eq!(
        device["containerEdits"],
        json!({
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [{"path": "/dev/nvidia3"}, {"path": "/dev/nvidiactl"}],
            "mounts": [
                {"hostPath": "/usr/lib64/libcuda.so.580.1", "containerPath": "/usr/lib64/libcuda.so.1",
                 "options": ["ro", "nosuid", "nodev", "bind"]},
                {"hostPath": "/run/vcuda/containers/3f9a-17", "containerPath": "/etc/vcuda", "options": data("ro")},
                {"hostPath": "/run/vcuda/containers/3f9a-17/limits", "containerPath": "/etc/vcuda/limits",
                 "options": data("ro")},
                {"hostPath": "/run/vcuda/containers/3f9a-17/usage", "containerPath": "/etc/vcuda/usage",
                 "options": data("rw")},
                {"hostPath": "/var/lib/vcuda/lib/libvcuda_shim-1.2.0-9f2c.so",
                 "containerPath": "/usr/lib/vcuda/libvcuda_shim-1.2.0-9f2c.so",
                 "options": ["ro", "nosuid", "nodev", "bind"]},
                {"hostPath": "/var/lib/vcuda/lib/ld.so.preload-1.2.0-9f2c", "containerPath": "/etc/ld.so.preload",
                 "options": ["ro", "nosuid", "nodev", "bind"]},
                {"hostPath": "/var/lib/vcuda/lib/vcuda-1.2.0-9f2c", "containerPath": "/usr/local/bin/vcuda",
                 "options": ["ro", "nosuid", "nodev", "bind"]},
            ],
        })
    );
}

#[test]
fn nodes_of_a_driver_that_runs_in_a_container_are_named_as_programs_want_them() {
    let elsewhere = SpecInputs { devices: "/run/nvidia/driver/dev".into(), ..inputs() };
    let written = serde_json::to_value(of_slot(&elsewhere, device(1)).unwrap()).unwrap();
    assert_eq!(
        written["devices"][0]["containerEdits"]["deviceNodes"][0],
        json!({"path": "/dev/nvidia3", "hostPath": "/run/nvidia/driver/dev/nvidia3"})
    );
}

#[test]
fn the_toolkit_is_told_which_gpus() {
    for (inject, word) in
        [(Inject::ToolkitEnv, "GPU-a"), (Inject::ToolkitMounts, "/var/run/nvidia-container-devices")]
    {
        let toolkit = SpecInputs { inject, ..inputs() };
        let written = serde_json::to_value(of_slot(&toolkit, device(1)).unwrap()).unwrap();
        let edits = &written["devices"][0]["containerEdits"];
        assert_eq!(edits["env"], json!([format!("NVIDIA_VISIBLE_DEVICES={word}")]));
        assert_eq!(edits["deviceNodes"], json!([]));
        let mounts = edits["mounts"].as_array().unwrap();
        let has = |path: &str| mounts.iter().any(|mount| mount["containerPath"] == path);
        assert!(has("/etc/vcuda/limits") && has("/etc/ld.so.preload") && !has("/usr/lib64/libcuda.so.1"));
        assert_eq!(has("/var/run/nvidia-container-devices/GPU-a"), inject == Inject::ToolkitMounts);
    }
}

#[test]
fn a_strict_container_proves_its_limits_before_it_starts() {
    let strict = SpecInputs { is_strict: true, ..inputs() };
    let hooks = |device: CdiDevice| {
        let written = serde_json::to_value(of_slot(&strict, device).unwrap()).unwrap();
        written["devices"][0]["containerEdits"]["hooks"].clone()
    };
    assert_eq!(
        hooks(device(1)),
        json!([{
            "hookName": "startContainer", "path": "/usr/local/bin/vcuda",
            "args": ["vcuda", "attached", "--report", "/dev/termination-log"],
            "env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "timeout": 10,
        }])
    );
    // On a driver that limits memory itself, the host's command has it do so first.
    let limited = SpecInputs { has_driver_limits: true, ..strict.clone() };
    let written = serde_json::to_value(of_slot(&limited, device(1)).unwrap()).unwrap();
    let first = &written["devices"][0]["containerEdits"]["hooks"][0];
    let program = limited.program.clone().unwrap();
    let directory = device(1).limits.unwrap();
    assert_eq!((&first["hookName"], &first["path"]), (&json!("createRuntime"), &json!(program)));
    assert_eq!(first["args"], json!(["vcuda", "limit-container", directory, "--strict"]));
    // A container without limits needs no proof. Without the command, a strict container is refused.
    let whole = CdiDevice { limits: None, ..device(1) };
    assert_eq!(hooks(whole.clone()), serde_json::Value::Null);
    let unprovable = SpecInputs { program: None, ..strict.clone() };
    assert_eq!(of_slot(&unprovable, device(1)), Err(SpecError::NoProgram));
    assert!(of_slot(&unprovable, whole).is_ok());
}

#[test]
fn a_whole_gpu_gets_no_shim() {
    let whole = CdiDevice { limits: None, ..device(1) };
    let none = SpecInputs { shim: None, ..inputs() };
    let written = serde_json::to_value(of_slot(&none, whole).unwrap()).unwrap();
    let edits = &written["devices"][0]["containerEdits"];
    let mounts = edits["mounts"].as_array().unwrap();
    assert_eq!(mounts.len(), 1, "the driver's library: {mounts:?}");
    assert_eq!(edits["deviceNodes"][0]["path"], "/dev/nvidia3");
}

#[test]
fn missing_inputs_are_refused() {
    let none = SpecInputs { shim: None, ..inputs() };
    assert_eq!(of_slot(&none, device(1)), Err(SpecError::NoShim));
    let elsewhere = CdiDevice { gpus: vec!["GPU-b".to_owned()], ..device(1) };
    assert_eq!(of_slot(&inputs(), elsewhere), Err(SpecError::NoNode("GPU-b".to_owned())));
}

#[test]
fn a_specification_is_distinguished_from_others() {
    let name = a_slot(7).name();
    let text = serde_json::to_string(&a_spec(7)).unwrap();
    let is_ours = |text: &str| serde_json::from_str::<Spec>(text).unwrap().is_of(SlotRecord::KIND, &name);
    assert!(is_ours(&text));
    assert!(!is_ours(&text.replace("vcuda.io/slot", "nvidia.com/gpu")));
    assert!(!is_ours(&serde_json::to_string(&a_spec(8)).unwrap()));
}
