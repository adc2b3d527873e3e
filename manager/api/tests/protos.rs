//! The code in `src/generated` of this crate and of kubelet's protocols is what their protos give. `VCUDA_TEST_WRITE=1` writes it
//! anew. The test is here, as it must compile while the crates that use the code do not.
//!
//! It stands in the repository, so that a build of the programs compiles no generator.
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The files of a folder by name.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_to_string(entry.path()).unwrap())
        })
        .collect()
}

/// Compares `src/generated` of the crate in `folder` with what `protos`, paths in its folder `proto`, give.
fn is_up_to_date(folder: &str, protos: &[&str]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let fresh = tempfile::tempdir().unwrap();
    let parsed = protox::compile(protos, [folder.join("proto")]).unwrap();
    tonic_prost_build::configure()
        .out_dir(fresh.path())
        .compile_fds(parsed)
        .unwrap();
    let expected = files(fresh.path());
    let kept = folder.join("src/generated");
    if std::env::var_os("VCUDA_TEST_WRITE").is_some() {
        for (name, text) in &expected {
            fs::write(kept.join(name), text).unwrap();
        }
    }
    assert!(
        files(&kept) == expected,
        "{} is stale: run `VCUDA_TEST_WRITE=1 cargo test -p vcuda-manager-api --test protos`",
        kept.display()
    );
}

#[test]
fn the_managers_api() {
    is_up_to_date("manager/api", &["vcuda/v1/manager.proto"]);
}

#[test]
fn kubelets_protocols() {
    is_up_to_date(
        "plugin/kubelet-api",
        &[
            "deviceplugin/v1beta1/api.proto",
            "dra/v1/api.proto",
            "dra-health/v1alpha1/api.proto",
            "podresources/v1/api.proto",
            "pluginregistration/v1/api.proto",
        ],
    );
}
