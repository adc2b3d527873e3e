//! Containers whose limits are verified before they start (`strict`), each with one broken link, and `vcuda doctor` in
//! them, which names it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use vcuda_tests::kubelet::{PodSpec, Started};
use vcuda_tests::runc::{Container, Image, inside, open_machine};
use vcuda_tests::{Door, Fixture, GIB, app, eventually, skip, succeeded, text};

/// Time limit for an immediate effect on a busy machine.
const SOON: Duration = Duration::from_secs(30);
const STRICT: &str = "strict = true\n[release]\ninterval = \"200ms\"\ngrace = \"1s\"\n";

/// Removes the mount at this path.
fn without(config: &mut Value, path: &str) {
    let mounts = config["mounts"].as_array_mut().unwrap();
    let before = mounts.len();
    mounts.retain(|mount| mount["destination"] != path);
    assert_eq!(mounts.len(), before - 1, "{path}");
}

/// Mounts another file over the one at this path.
fn hidden_by(config: &mut Value, path: &str, file: &Path) {
    let mounts = config["mounts"].as_array_mut().unwrap();
    mounts.push(json!({"destination": path, "source": file, "type": "bind", "options": ["bind", "ro"]}));
}

/// Findings of `vcuda doctor` that are not well: link and observation.
fn ill(container: &Container<'_>) -> Vec<(String, String)> {
    let mut bundle = container.clone();
    let own = container.change;
    // Otherwise it would not start.
    let lenient = move |config: &mut Value| {
        if let Some(change) = own {
            change(config);
        }
        config["hooks"] = json!({});
    };
    bundle.change = Some(&lenient);
    let output = bundle.run(&["vcuda", "doctor", "--json"]).unwrap();
    let document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)));
    let findings = document["findings"].as_array().unwrap();
    let word = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
    findings
        .iter()
        .filter(|finding| finding["health"] != "ok")
        .map(|finding| (word(finding, "link"), word(finding, "seen")))
        .collect()
}

#[test]
fn a_strict_container_starts_only_with_its_limits() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    open_machine(&fixture);
    let node = fixture.node_with(STRICT);
    let kubelet = &node.kubelet;
    let pod = kubelet.admit(PodSpec::share("a", 16, 30)).unwrap();
    let started = kubelet.started(&pod);
    let well = Container::new(&fixture, &started);
    eventually("the manager listens for the container", SOON, || {
        started.directory().join("manager.sock").exists()
    });
    if well.run(&["true"]).is_none() {
        return;
    }
    assert_eq!(ill(&well), [], "all is well in it");
    let quota = [inside(&app("quota", Door::Dlsym)), (4 * GIB).to_string()];
    let quota = [quota[0].as_str(), quota[1].as_str()];
    assert!(well.printed(&quota).contains("passed"));
    assert!(well.clone().of(123_456).printed(&quota).contains("passed"));
    let scratch = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = scratch.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let images_own = file("ld.so.preload", "/usr/lib/libjemalloc.so.2\n");
    let damaged = file("limits", "damaged");
    let library = library(&started);
    type Break<'b> = (&'b str, &'b str, &'b dyn Fn(&mut Value));
    let breaks: [Break<'_>; 6] = [
        ("preload file", "is not there", &|config| without(config, "/etc/ld.so.preload")),
        ("preload file", "does not name the shim", &|config| {
            hidden_by(config, "/etc/ld.so.preload", &images_own);
        }),
        ("shim library", "No such file", &|config| without(config, &library)),
        ("limits", "7 bytes", &|config| hidden_by(config, "/etc/vcuda/limits", &damaged)),
        ("limits", "", &|config| {
            for path in ["/etc/vcuda", "/etc/vcuda/limits", "/etc/vcuda/usage"] {
                without(config, path);
            }
        }),
        ("usage", "", &|config| without(config, "/etc/vcuda/usage")),
    ];
    for (link, why, change) in breaks {
        is_refused_and_named(&well.clone().changed(change), link, why);
    }
}

/// Checks that the container does not start, and that its owner reads the broken link and the reason.
fn is_refused_and_named(broken: &Container<'_>, link: &str, why: &str) {
    let bundle = broken.bundle(&["echo", "it runs"]);
    let output = broken.run_bundle(&bundle).unwrap();
    let said = text(&output);
    assert!(!output.status.success() && !said.contains("it runs"), "{link}: {said}");
    assert!(said.contains(&format!("not attached: {link}: ")) && said.contains(why), "{link}: {said}");
    // The text that `kubectl describe pod` shows.
    let told = bundle.termination();
    assert!(told.starts_with("vcuda: not attached: ") && told.contains(link), "{told}");
    // Without the hook it starts; then doctor names the link.
    let ill = ill(broken);
    let is_named = ill.iter().any(|(name, seen)| name == link && seen.contains(why));
    assert!(is_named, "{link}: {ill:?}");
}

fn library(started: &Started) -> String {
    let mounts = started.edits[0]["mounts"].as_array().unwrap();
    let paths = mounts.iter().map(|mount| mount["containerPath"].as_str().unwrap());
    let mut libraries = paths.filter(|path| path.contains("libvcuda_shim"));
    libraries.next().unwrap().to_owned()
}

/// Program that prints whether the shim was loaded into it.
const TELLS: &str = r#"#include <stdio.h>
#include <string.h>
int main(void) {
    char line[4096];
    int shim = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) shim |= strstr(line, "libvcuda_shim") != 0;
    printf("it runs, shim %d\n", shim);
    return 0;
}"#;

#[test]
fn a_strict_container_of_an_image_without_glibc_does_not_start() {
    let scratch = tempfile::tempdir().unwrap();
    let (source, program) = (scratch.path().join("tells.c"), scratch.path().join("tells"));
    fs::write(&source, TELLS).unwrap();
    match Command::new("musl-gcc").arg(&source).arg("-o").arg(&program).output() {
        Ok(built) => succeeded(&built),
        Err(error) => {
            skip(&format!("plugin_strict: no musl-gcc ({error}); apt-get install musl-tools brings it"));
            return;
        }
    };
    let fixture = Fixture::with_gpus(1, "24GiB");
    open_machine(&fixture);
    let node = fixture.node_with(STRICT);
    let kubelet = &node.kubelet;
    let pod = kubelet.admit(PodSpec::share("a", 16, 30)).unwrap();
    let started = kubelet.started(&pod);
    let mut musl = Container::new(&fixture, &started);
    musl.image = Image::Musl(program);
    let Some(refused) = musl.run(&["/app"]) else {
        return;
    };
    let said = text(&refused);
    assert!(!refused.status.success() && !said.contains("it runs"), "{said}");
    assert!(said.contains("/usr/local/bin/vcuda: no such file or directory"), "{said}");
    // The case that the hook prevents: it runs, and its loader reads no preload file.
    let lenient = |config: &mut Value| config["hooks"] = json!({});
    assert_eq!(musl.changed(&lenient).printed(&["/app"]), "it runs, shim 0\n");
}

/// From driver 615 on a hook on the host has the driver limit the container, whose program here loads no shim.
#[test]
fn a_runtime_has_the_driver_limit_a_container_before_it_starts() {
    let fixture = Fixture::new();
    // Written down, so that it is the same machine in a container.
    fixture.stdout(["sim", "--profile", "r615-dmem", "--", "true"]);
    open_machine(&fixture);
    let node = fixture.node_with(&STRICT.replace("true", "false"));
    let pod = node.kubelet.admit(PodSpec::share("a", 16, 30)).unwrap();
    let started = node.kubelet.started(&pod);
    let unshimmed = |config: &mut Value| without(config, "/etc/ld.so.preload");
    let container = Container::new(&fixture, &started).changed(&unshimmed);
    let program = inside(&app("walls", Door::Dlsym));
    let script = format!("cat /proc/self/cgroup; (sleep 3; echo) | {program} take 1 wait fill");
    let has_ended = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        // The simulated driver learns of a container's cgroup when the host looks at its processes.
        scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) {
                fixture.stdout(["smi"]);
            }
        });
        let output = container.run(&["sh", "-c", &script]);
        has_ended.store(true, Ordering::Relaxed);
        output
    });
    let Some(output) = output else { return };
    let said = text(&output);
    let calls = node.manager.metric("vcuda_api_duration_seconds_count", "method=\"Grants/LimitContainer\"");
    assert_eq!(calls, 1.0, "the runtime has run the hook");
    if !said.lines().any(|line| line.starts_with("0::/") && line != "0::/") {
        return skip("the driver's limit of a real runtime's container: runc uses no cgroup v2 here");
    }
    let context_bytes = 480 << 20;
    assert!(said.contains(&format!("\nfill {}\n", 4 * GIB - context_bytes - 1)), "{said}");
}
