//! Every kind of CDI specification that vcuda writes, held against CDI's own schema (Debian's package of it, which
//! `scripts/fetch-tests.sh` unpacks) as a runtime reads it: strictly, so that a key which this version does not have is refused.

use std::path::Path;
use std::process::Command;

use serde_json::json;
use vcuda_tests::dra::claims::{NODE, published, put_claim, put_pod, result};
use vcuda_tests::kubelet::PodSpec;
use vcuda_tests::resource_api::ResourceApi;
use vcuda_tests::{Fixture, skip, succeeded, workspace};

/// `python check.py SCHEMAS FILE...`: prints what the schema says of each file.
const CHECK: &str = r#"
import json, pathlib, sys
import jsonschema, referencing
def strict(part):
    if isinstance(part, dict):
        if "properties" in part:
            part.setdefault("additionalProperties", False)
        list(map(strict, part.values()))
    elif isinstance(part, list):
        list(map(strict, part))
    return part
folder, files = pathlib.Path(sys.argv[1]), sys.argv[2:]
read = lambda name: strict(json.loads((folder / name).read_text()))
draft = referencing.jsonschema.DRAFT7
registry = referencing.Registry().with_resource("defs.json", draft.create_resource(read("defs.json")))
validator = jsonschema.Draft7Validator(read("schema.json"), registry=registry)
wrong = [(file, error.message) for file in files for error in validator.iter_errors(json.load(open(file)))]
print(*wrong, sep="\n")
sys.exit(1 if wrong else 0)
"#;

/// What the schema says of these files; `None` if it, or Python's validator, cannot be had.
fn said(files: &[&Path]) -> Option<(bool, String)> {
    let schema = workspace().join(
        "target/cdi-schema/usr/share/gocode/src/github.com/container-orchestrated-devices/container-device-interface/schema",
    );
    let python = workspace().join("target/clients/bin/python");
    let validates = Command::new(&python).args(["-c", "import jsonschema, referencing"]).output();
    if !schema.join("schema.json").exists() || !validates.is_ok_and(|tried| tried.status.success()) {
        skip("CDI's schema, or jsonschema of PyPI: not fetched (scripts/fetch-tests.sh)");
        return None;
    }
    let done = Command::new(python).args(["-c", CHECK]).arg(schema).args(files).output().unwrap();
    let text = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    Some((done.status.success(), text))
}

/// Holds every specification in the fixture's folder against the schema. Each kind has to be among them.
fn hold(fixture: &Fixture, kinds: &[&str]) {
    let entries = std::fs::read_dir(fixture.cdi()).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    // What runtimes read: beside a specification lies the daemon's own record of it.
    files.retain(|file| file.extension().is_some_and(|end| end == "json"));
    for kind in kinds {
        let of_kind = |file: &&std::path::PathBuf| {
            std::fs::read_to_string(file).unwrap().contains(&format!("\"{kind}\""))
        };
        assert!(files.iter().any(|file| of_kind(&file)), "no {kind} in {files:?}");
    }
    let files: Vec<&Path> = files.iter().map(std::path::PathBuf::as_path).collect();
    let Some((is_right, text)) = said(&files) else {
        return;
    };
    assert!(is_right, "{text}");

    // The check can fail: a key of a later version, and a mount without its source.
    for (key, value) in [
        ("annotations", json!({})),
        ("devices", json!([{"name": "a", "containerEdits": {"mounts": [{"containerPath": "/a"}]}}])),
    ] {
        let mut wrong: serde_json::Value = serde_json::from_slice(&std::fs::read(files[0]).unwrap()).unwrap();
        wrong[key] = value;
        let path = fixture.home().join("wrong.json");
        std::fs::write(&path, wrong.to_string()).unwrap();
        assert!(!said(&[&path]).unwrap().0, "{wrong}");
    }
}

#[test]
fn devices_of_a_grant_and_of_a_strict_pod_are_as_cdi_has_them() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let _manager = fixture.manager_for_containers("cdi");
    succeeded(&fixture.vcuda(["grant", "create", "web", "--memory", "4GiB"]).output().unwrap());
    let kubelet = fixture.kubelet();
    // With a hook, which runs before the container's program.
    let _plugin = fixture.plugin_named("plugin", "strict = true\n");
    kubelet.wait_for_devices();
    let pod = kubelet.admit(PodSpec::share("a", 16, 30)).unwrap();
    assert!(kubelet.started(&pod).edits.iter().any(|edits| edits["hooks"].is_array()));
    hold(&fixture, &["vcuda.io/grant", "vcuda.io/slot"]);
}

#[test]
fn devices_of_a_claim_are_as_cdi_has_them() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let (_manager, api) = (fixture.manager_with_shim(), ResourceApi::start(NODE));
    let driver = fixture.dra_driver(NODE, &api);
    let gpus = published(&api, 1);
    put_claim(&api, "one", "p", &[result("gpu", &gpus[0], "4Gi", "30")], &json!([]));
    put_pod(&api, "p", &[("main", &[("one", "gpu")])]);
    assert_eq!(driver.prepare("one", "one-uid").error, "");
    hold(&fixture, &["vcuda.io/claim"]);
}
