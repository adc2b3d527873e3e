//! `vcuda support-bundle`: what is in the archive, and what is not.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use vcuda_tests::{Door, Fixture, MIB, Running, Tmpfs, app, succeeded, text};

/// Files of an archive, by name below its folder.
fn files(archive: &Path) -> BTreeMap<String, Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(archive).arg("-C").arg(folder.path());
    succeeded(&tar.output().unwrap());
    let mut files = BTreeMap::new();
    let mut left = vec![folder.path().join("support")];
    while let Some(path) = left.pop() {
        for entry in fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
                continue;
            }
            let name = path.strip_prefix(folder.path().join("support")).unwrap();
            files.insert(name.to_str().unwrap().to_owned(), fs::read(&path).unwrap());
        }
    }
    files
}

/// A bundle of this name, with these options.
fn bundle(fixture: &Fixture, name: &str, options: &[&str]) -> BTreeMap<String, Vec<u8>> {
    let path = fixture.home().join(name);
    let mut command = fixture.vcuda(["support-bundle"]);
    command.args(options).arg(&path).env("SECRET_OF_THE_USER", "environ-s3cr3t");
    let said = succeeded(&command.output().unwrap());
    assert!(said.contains(path.to_str().unwrap()), "{said}");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    files(&path)
}

fn has(files: &BTreeMap<String, Vec<u8>>, words: &str) -> Vec<String> {
    let holds = |(name, bytes): (&String, &Vec<u8>)| {
        let text = String::from_utf8_lossy(bytes);
        text.contains(words).then(|| name.clone())
    };
    files.iter().filter_map(holds).collect()
}

#[test]
fn what_a_maintainer_needs_is_in_it_and_secrets_are_not() {
    let fixture = Fixture::new();
    let _manager = fixture.manager();
    fixture.grant("web", &["--memory", "2GiB"]);
    let mut hold = fixture.vcuda(["run", "--sim", "--grant", "web", "--"]);
    hold.env("SECRET_OF_A_PROGRAM", "environ-s3cr3t");
    // Its argument is one that no other text has.
    let argument = (100 * MIB + 4321).to_string();
    let mut hold = Running::start(hold.arg(app("hold", Door::Dlsym)).arg(&argument));
    hold.wait_for("holding");
    let files_of = bundle(&fixture, "b.tar.gz", &[]);
    for name in [
        "MANIFEST",
        "versions.txt",
        "doctor.txt",
        "smi.txt",
        "smi.json",
        "ps.txt",
        "events.jsonl",
        "grants.json",
        "limits/web-1",
    ] {
        assert!(files_of.contains_key(name), "{name}: {:?}", files_of.keys());
    }
    let of = |name: &str| String::from_utf8(files_of[name].clone()).unwrap();
    let versions = of("versions.txt");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    for words in [env!("CARGO_PKG_VERSION"), kernel.trim(), "driver: 5", "root "] {
        assert!(versions.contains(words), "{words}: {versions}");
    }
    assert!(of("doctor.txt").contains("manager"), "{}", of("doctor.txt"));
    assert!(of("smi.txt").contains("web-1") && of("ps.txt").contains("hold-"));
    let grants: Value = serde_json::from_str(&of("grants.json")).unwrap();
    assert_eq!(grants["grants"][0]["key"], "web");
    serde_json::from_str::<Value>(&of("smi.json")).unwrap();
    for line in of("events.jsonl").lines() {
        serde_json::from_str::<Value>(line).unwrap();
    }
    let limits = fixture.runtime().join("vcuda/containers/web-1/limits");
    assert_eq!(files_of["limits/web-1"].len(), fs::read(limits).unwrap().len());
    // The manifest names each file, and what is missing with the reason.
    let manifest = of("MANIFEST");
    for name in files_of.keys().filter(|name| *name != "MANIFEST") {
        assert!(manifest.contains(name), "{name}: {manifest}");
    }
    assert!(manifest.contains("log/vcuda-manager.txt"), "{manifest}");
    for secret in ["environ-s3cr3t", &argument] {
        assert_eq!(has(&files_of, secret), [""; 0], "{secret}");
    }
    let asked = bundle(&fixture, "c.tar.gz", &["--with-arguments"]);
    assert_eq!(has(&asked, &argument), ["ps.txt", "smi.json", "smi.txt"]);
    assert_eq!(has(&asked, "environ-s3cr3t"), [""; 0]);
}

#[test]
fn without_a_manager_the_rest_is_there() {
    let fixture = Fixture::new();
    let files = bundle(&fixture, "b.tar.gz", &["--sim"]);
    assert!(files.contains_key("doctor.txt") && files.contains_key("smi.txt"));
    let manifest = String::from_utf8(files["MANIFEST"].clone()).unwrap();
    let events = manifest.lines().find(|line| line.starts_with("events.jsonl")).unwrap();
    assert!(events.contains("not there: ") && events.contains("manager"), "{manifest}");
}

/// I12: what a tenant puts in place of its limits does not get into the archive of a user who may read more.
#[test]
fn a_hostile_tenant_brings_no_other_file_into_it() {
    let fixture = Fixture::new();
    let secret = fixture.home().join("secret");
    fs::write(&secret, "s3cr3t of another user").unwrap();
    let kept = ["link", "copy", "pipe"].map(|name| fixture.keep(name, &["--memory", "1GiB"]));
    let limits = kept.each_ref().map(|tenant| tenant.directory().join("limits"));
    for path in &limits {
        fs::remove_file(path).unwrap();
    }
    std::os::unix::fs::symlink(&secret, &limits[0]).unwrap();
    fs::hard_link(&secret, &limits[1]).unwrap();
    let pipe = Command::new("mkfifo").arg(&limits[2]).status().unwrap();
    assert!(pipe.success());
    let files = bundle(&fixture, "b.tar.gz", &["--sim"]);
    assert_eq!(has(&files, "s3cr3t"), [""; 0]);
    let manifest = String::from_utf8(files["MANIFEST"].clone()).unwrap();
    for name in ["limits/link", "limits/copy", "limits/pipe"] {
        let line = manifest.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line.contains("not there: "), "{manifest}");
    }
}

#[test]
fn an_existing_file_is_not_replaced() {
    let fixture = Fixture::new();
    let path = fixture.home().join("b.tar.gz");
    fs::write(&path, "mine").unwrap();
    let output = fixture.vcuda(["support-bundle"]).arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(64), "{}", text(&output));
    assert!(text(&output).contains("it exists; name another file"));
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    let nowhere = fixture.home().join("no/such/b.tar.gz");
    let output = fixture.vcuda(["support-bundle"]).arg(nowhere).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
}

#[test]
fn a_full_disk_leaves_no_file_and_names_the_remedy() {
    let fixture = Fixture::new();
    let Some(disk) = Tmpfs::new("size=4k") else { return };
    fs::write(disk.path().join("filler"), [1; 4096]).unwrap();
    let path = disk.path().join("b.tar.gz");
    let output = fixture.vcuda(["support-bundle", "--sim"]).arg(&path).output().unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("name a file elsewhere"), "{said}");
    assert!(!said.contains("XDG_RUNTIME_DIR"), "{said}");
    assert!(!path.exists());
}
