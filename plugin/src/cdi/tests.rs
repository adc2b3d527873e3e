use serde_json::json;

use super::*;

fn facts() -> Facts {
    Facts {
        shim: Some(Shim {
            library: "/var/lib/vcuda/lib/libvcuda_shim-1.2.0-9f2c.so".into(),
            preload: "/var/lib/vcuda/lib/ld.so.preload-1.2.0-9f2c".into(),
        }),
        control_nodes: vec!["/dev/nvidiactl".into()],
        gpu_nodes: BTreeMap::from([("GPU-a".to_owned(), "/dev/nvidia3".into())]),
    }
}

pub(super) fn grant(number: u32) -> Grant {
    let shares = Ids::from([number]);
    Grant {
        slot: Slot::of(&shares),
        id: format!("{}-17", Slot::of(&shares)),
        directory: "/run/vcuda/containers/3f9a-17".into(),
        gpus: vec!["GPU-a".to_owned()],
        is_limited: true,
        held: Holding {
            pod: "default/infer".to_owned(),
            pod_uid: "u-1".to_owned(),
            ids: [shares, Ids::from([0, 1, 2]), Ids::from([9])],
        },
    }
}

pub(super) fn a_spec(number: u32) -> Spec {
    spec(&facts(), &grant(number)).unwrap()
}

#[test]
fn it_is_what_kubernetes_md_shows() {
    let written = serde_json::to_value(a_spec(1)).unwrap();
    assert_eq!(written["cdiVersion"], "0.6.0");
    assert_eq!(written["kind"], "vcuda.io/slot");
    let device = &written["devices"][0];
    assert_eq!(device["name"], Slot::of(&Ids::from([1])).as_str());
    let data = |access: &str| json!([access, "nosuid", "nodev", "noexec", "bind"]);
    assert_eq!(
        device["containerEdits"],
        json!({
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [{"path": "/dev/nvidia3"}, {"path": "/dev/nvidiactl"}],
            "mounts": [
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
            ],
        })
    );
}

#[test]
fn a_whole_card_gets_no_shim() {
    let whole = Grant {
        is_limited: false,
        ..grant(1)
    };
    let none = Facts {
        shim: None,
        ..facts()
    };
    let written = serde_json::to_value(spec(&none, &whole).unwrap()).unwrap();
    let edits = &written["devices"][0]["containerEdits"];
    assert_eq!(edits["mounts"], json!([]));
    assert_eq!(edits["deviceNodes"][0]["path"], "/dev/nvidia3");
}

#[test]
fn what_is_not_known_is_refused() {
    let none = Facts {
        shim: None,
        ..facts()
    };
    assert_eq!(spec(&none, &grant(1)), Err(FactsError::NoShim));
    let elsewhere = Grant {
        gpus: vec!["GPU-b".to_owned()],
        ..grant(1)
    };
    assert_eq!(
        spec(&facts(), &elsewhere),
        Err(FactsError::NoNode("GPU-b".to_owned()))
    );
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let grant = grant(7);
    let text = serde_json::to_string(&a_spec(7)).unwrap();
    let record = serde_json::from_str::<Spec>(&text).unwrap().record().unwrap();
    let expected = Record {
        slot: grant.slot,
        id: grant.id,
        gpus: grant.gpus,
        held: grant.held,
    };
    assert_eq!(record, expected);
    let foreign = text.replace("vcuda.io/slot", "nvidia.com/gpu");
    assert_eq!(serde_json::from_str::<Spec>(&foreign).unwrap().record(), None);
}
