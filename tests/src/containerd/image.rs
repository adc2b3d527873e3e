//! Image of these containers: a waiting program for the pod's own container, and mount points for this machine's userland.
//! It is an archive for `ctr import` (OCI image layout 1.0).

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::succeeded;

/// Name of the image.
pub(super) const NAME: &str = "vcuda.invalid/tests:1";

/// Writes the archive.
pub(super) fn write(archive: &Path) {
    let scratch = tempfile::tempdir().unwrap();
    let (root, layout) = (scratch.path().join("root"), scratch.path().join("layout"));
    for folder in ["etc", "tmp", "var", "usr/bin", "app", "machine", "proc", "dev", "sys"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for link in ["bin", "sbin", "lib", "lib64"] {
        if let Ok(target) = fs::read_link(Path::new("/").join(link)) {
            fs::create_dir_all(root.join(&target)).unwrap();
            symlink(target, root.join(link)).unwrap();
        }
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\n").unwrap();
    fs::write(root.join("etc/group"), "root:x:0:\n").unwrap();
    let needed = succeeded(&Command::new("ldd").arg("/usr/bin/sleep").output().unwrap());
    let libraries = needed.split_whitespace().filter(|word| word.starts_with('/'));
    for file in libraries.chain(["/usr/bin/sleep"]) {
        let to = root.join(file.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(file, to).unwrap();
    }
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let layer = blob(&blobs, &tarred(&root, &scratch.path().join("layer.tar")));
    let processor = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = json!({
        "architecture": processor, "os": "linux",
        // As in NVIDIA's own images.
        "config": {"Entrypoint": ["/usr/bin/sleep", "infinity"], "Env": [
            "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin", "NVIDIA_VISIBLE_DEVICES=all"]},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    });
    let config = blob(&blobs, config.to_string().as_bytes());
    let typed = |mut blob: Value, kind: &str| {
        blob["mediaType"] = format!("application/vnd.oci.image.{kind}").into();
        blob
    };
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": typed(config, "config.v1+json"), "layers": [typed(layer, "layer.v1.tar")],
    });
    let mut manifest = typed(blob(&blobs, manifest.to_string().as_bytes()), "manifest.v1+json");
    manifest["annotations"] = json!({"io.containerd.image.name": NAME});
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    fs::write(layout.join("index.json"), index.to_string()).unwrap();
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion": "1.0.0"}"#).unwrap();
    tarred(&layout, archive);
}

/// Packs the contents of `folder` into `archive`. Returns the archive's bytes.
fn tarred(folder: &Path, archive: &Path) -> Vec<u8> {
    let mut tar = Command::new("tar");
    tar.args(["--numeric-owner", "--owner=0", "--group=0", "-c"]).arg("-C").arg(folder);
    let output = tar.arg(".").stdout(File::create(archive).unwrap()).output();
    succeeded(&output.unwrap());
    fs::read(archive).unwrap()
}

/// Stores a blob under its digest. Returns its descriptor.
fn blob(blobs: &Path, content: &[u8]) -> Value {
    let digest: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(blobs.join(&digest), content).unwrap();
    json!({"digest": format!("sha256:{digest}"), "size": content.len()})
}
