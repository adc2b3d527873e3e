//! The whole way: kubelet, device plugin, manager, the specification that it wrote, runc, the shim, a simulated GPU. What a
//! pod asked for holds in its container for every user, without environment, and while everything around it restarts.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first thing that is not as it should be"
)]

use std::fs;
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use vcuda_tests::kubelet::{Kubelet, PodSpec, Release, Started};
use vcuda_tests::{Bed, Door, GIB, Running, app, eventually, release_dir, skip, succeeded, text};

/// How long what happens at once may take on a busy machine.
const SOON: Duration = Duration::from_secs(30);
/// In no container's /etc/passwd.
const NOBODY_KNOWS: u32 = 123_456;
/// What runtimes give a container without asking (containerd, `oci.WithDefaultUnixCaps`), as far as it matters here.
const CAPABILITIES: [&str; 6] = [
    "CAP_SETUID",
    "CAP_SETGID",
    "CAP_CHOWN",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_AUDIT_WRITE",
];
/// Who is root may become anybody.
const PERMITTED: &str = "auth required pam_permit.so\naccount required pam_permit.so\npassword required pam_permit.so\n\
                         session required pam_permit.so\n";

fn connected(kubelet: &Kubelet) {
    eventually("kubelet has the devices of all three resources", SOON, || {
        ["gpu", "memory", "cores"]
            .iter()
            .all(|word| kubelet.allocatable(&format!("vcuda.io/{word}")) > 0)
    });
}

/// A container from an image that is this machine's own userland, with what its specification edits. Nothing else of ours:
/// the pod's manifest brings only the simulated machine, as no card is there.
struct Container<'a> {
    bed: &'a Bed,
    started: &'a Started,
    uid: u32,
    is_read_only: bool,
}

/// Its files, and what it writes over `/usr`.
struct Bundle {
    dir: tempfile::TempDir,
    _over: tempfile::TempDir,
}

impl Container<'_> {
    fn bundle(&self, args: &[&str]) -> Bundle {
        let dir = tempfile::tempdir().unwrap();
        // /tmp may be an overlay itself, which cannot be the upper part of another.
        let over = tempfile::tempdir_in("/dev/shm").unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let root = dir.path().join("rootfs");
        for folder in [
            "etc/pam.d",
            "proc",
            "dev",
            "machine",
            "usr",
            "app",
            "tmp",
            "var",
            "run",
        ] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for folder in ["upper", "work"] {
            fs::create_dir(over.path().join(folder)).unwrap();
        }
        for link in ["bin", "sbin", "lib", "lib64"] {
            if let Ok(target) = fs::read_link(Path::new("/").join(link)) {
                symlink(target, root.join(link)).unwrap();
            }
        }
        for (file, content) in [
            (
                "etc/passwd",
                "root:x:0:0::/:/bin/sh\nsomeone:x:1000:1000::/:/bin/sh\n",
            ),
            ("etc/group", "root:x:0:\nsomeone:x:1000:\n"),
            ("etc/pam.d/su", PERMITTED),
            // PAM gives up where this one is missing.
            ("etc/pam.d/other", PERMITTED),
        ] {
            fs::write(root.join(file), content).unwrap();
        }
        let data = |name: &str| over.path().join(name).display().to_string();
        let bind = |from: &Path, to: &str, mode: &str| json!({"destination": to, "source": from, "type": "bind", "options": ["rbind", mode]});
        let mut config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false, "user": {"uid": self.uid, "gid": self.uid}, "args": args, "cwd": "/",
                "env": ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin", "VCUDA_SIM=/machine", "NVIDIA_VISIBLE_DEVICES=all"],
                "capabilities": {"bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES},
            },
            "root": {"path": root, "readonly": self.is_read_only},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
                {"destination": "/usr", "type": "overlay", "source": "overlay", "options": [
                    "lowerdir=/usr", format!("upperdir={}", data("upper")), format!("workdir={}", data("work"))]},
                bind(&release_dir().join("test-apps"), "/app", "ro"),
                bind(&self.bed.machine(), "/machine", "rw"),
            ],
            "linux": {
                "namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}, {"type": "network"}],
                "devices": [],
            },
        });
        for edits in &self.started.edits {
            edit(&mut config, edits);
        }
        fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
        Bundle { dir, _over: over }
    }

    fn command(&self, bundle: &Bundle) -> Command {
        let bundle = bundle.dir.path();
        let id = format!("vcuda-{}", bundle.file_name().unwrap().to_string_lossy());
        let mut command = Command::new("runc");
        command
            .arg("--root")
            .arg(bundle.join("state"))
            .args(["run", "-b"])
            .arg(bundle)
            .arg(id.replace('.', ""))
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end; `None` where there is no runtime that works here.
    fn run(&self, args: &[&str]) -> Option<Output> {
        let bundle = self.bundle(args);
        match self.command(&bundle).output() {
            Ok(output) if String::from_utf8_lossy(&output.stderr).contains("runc run failed") => {
                let words = text(&output).replace('\n', " ");
                skip(&format!("plugin_runtime: runc does not work here: {words}"));
                None
            }
            Ok(output) => Some(output),
            Err(error) => {
                skip(&format!(
                    "plugin_runtime: no runc ({error}); scripts/test.sh installs it where apt-get can"
                ));
                None
            }
        }
    }

    fn printed(&self, args: &[&str]) -> String {
        succeeded(&self.run(args).unwrap())
    }
}

/// Container edits put into a runtime's configuration, as the CDI specification (0.6.0, "OCI Edits") says. An edit that is
/// not known here is an error: nothing may be left out.
fn edit(config: &mut Value, edits: &Value) {
    for (kind, values) in edits.as_object().unwrap() {
        for value in values.as_array().unwrap() {
            match kind.as_str() {
                "env" => {
                    let name = value.as_str().unwrap().split('=').next().unwrap();
                    let environment = config["process"]["env"].as_array_mut().unwrap();
                    environment.retain(|one| !one.as_str().unwrap().starts_with(&format!("{name}=")));
                    environment.push(value.clone());
                }
                "mounts" => {
                    let mounts = config["mounts"].as_array_mut().unwrap();
                    mounts.push(json!({
                        "destination": value["containerPath"], "source": value["hostPath"], "type": "bind",
                        "options": value["options"],
                    }));
                }
                "deviceNodes" => {
                    let host = value.get("hostPath").unwrap_or(&value["path"]);
                    let node = fs::metadata(host.as_str().unwrap()).unwrap();
                    let (major, minor) = (libc::major(node.st_rdev()), libc::minor(node.st_rdev()));
                    let devices = config["linux"]["devices"].as_array_mut().unwrap();
                    devices.push(json!({
                        "path": value["path"], "type": "c", "major": major, "minor": minor, "fileMode": 0o666,
                    }));
                }
                other => panic!("{other}: {edits}"),
            }
        }
    }
}

fn inside(program: &Path) -> String {
    format!("/app/{}", program.file_name().unwrap().to_string_lossy())
}

/// A real card's device files are open to every user.
fn open_machine(bed: &Bed) {
    succeeded(&bed.bare("true").output().unwrap());
    let opened = Command::new("chmod")
        .args(["-R", "a+rwX"])
        .arg(bed.machine())
        .output();
    succeeded(&opened.unwrap());
}

#[test]
fn what_a_pod_asked_for_holds_in_its_container() {
    let bed = Bed::with_gpus(2, "24GiB");
    open_machine(&bed);
    let _manager = bed.manager_with_shim();
    let kubelet = bed.kubelet(Release::default());
    let _plugin = bed.plugin();
    connected(&kubelet);
    let a = kubelet.admit(PodSpec::share("a", 16, 30)).unwrap();
    let b = kubelet.admit(PodSpec::share("b", 32, 60)).unwrap();
    let (in_a, in_b) = (kubelet.started(&a), kubelet.started(&b));
    let container = |started, uid| Container {
        bed: &bed,
        started,
        uid,
        is_read_only: true,
    };
    let quota = inside(&app("quota", Door::Dlsym));
    let (four, eight) = ((4 * GIB).to_string(), (8 * GIB).to_string());
    let Some(first) = container(&in_a, 0).run(&[&quota, &four]) else {
        return;
    };
    assert!(succeeded(&first).contains("passed"));
    assert!(container(&in_b, 0).printed(&[&quota, &eight]).contains("passed"));

    // A user whom nobody knows; no environment; another that says otherwise.
    assert!(
        container(&in_a, NOBODY_KNOWS)
            .printed(&[&quota, &four])
            .contains("passed")
    );
    let wiped = ["env", "-i", "VCUDA_SIM=/machine", &quota, &four];
    assert!(container(&in_a, 0).printed(&wiped).contains("passed"));
    let contradicted = [
        "env",
        "LD_PRELOAD=",
        "VCUDA_DIR=/dev",
        "VCUDA_MEMORY=64GiB",
        &quota,
        &four,
    ];
    assert!(container(&in_a, 0).printed(&contradicted).contains("passed"));

    // Another user by su, whose environment is made anew; and a program that is its owner's for whoever runs it.
    let as_someone = format!("VCUDA_SIM=/machine {quota} {four}");
    let su = ["su", "-", "someone", "-c", &as_someone];
    assert!(container(&in_a, 0).printed(&su).contains("passed"));
    let setuid = format!(
        "cp {quota} /tmp/quota && cp /usr/bin/id /tmp/id && chown 1000:1000 /tmp/quota /tmp/id && \
         chmod 6755 /tmp/quota /tmp/id && setpriv --reuid 2000 --clear-groups /tmp/id -u && \
         exec setpriv --reuid 2000 --clear-groups /tmp/quota {four}"
    );
    let mut writable = container(&in_a, 0);
    writable.is_read_only = false;
    let said = writable.printed(&["sh", "-c", &setuid]);
    assert!(said.starts_with("1000\n") && said.contains("passed"), "{said}");

    // Its own card, and no other; its own figures, and nobody else's.
    let nodes = container(&in_a, 0).printed(&["sh", "-c", "echo /dev/nvidia[0-9]*"]);
    assert_eq!(nodes.split_whitespace().count(), 1, "{nodes}");
    let smi: Value = serde_json::from_str(&container(&in_a, 0).printed(&["vcuda", "smi", "--json"])).unwrap();
    let tenants: Vec<&Value> = smi["gpus"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|gpu| gpu["tenants"].as_array())
        .flatten()
        .collect();
    assert_eq!(tenants.len(), 1, "{smi}");
    assert_eq!(tenants[0]["memory_limit_bytes"], 4 * GIB, "{smi}");
    // An image's word does not open the other card.
    let visible = container(&in_a, 0).printed(&["sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES"]);
    assert_eq!(visible.trim(), "void");
    kubelet.assert_no_wrongs();
}

#[test]
fn a_running_container_does_not_notice_what_restarts_around_it() {
    let bed = Bed::with_gpus(1, "24GiB");
    open_machine(&bed);
    let mut manager = bed.manager_with_shim();
    let mut kubelet = bed.kubelet(Release::default());
    let mut plugin = bed.plugin();
    connected(&kubelet);
    let pods = [("a", 16, 30, 4 * GIB), ("b", 32, 60, 8 * GIB)].map(|(name, chunks, percent, limit)| {
        let pod = kubelet.admit(PodSpec::share(name, chunks, percent)).unwrap();
        (kubelet.started(&pod), limit, pod)
    });
    let hold = inside(&app("hold", Door::Dlsym));
    let quota = inside(&app("quota", Door::Dlsym));
    let mut bundles: Vec<Bundle> = Vec::new();
    let mut running = Vec::new();
    for (started, limit, _) in &pods {
        let container = Container {
            bed: &bed,
            started,
            uid: 0,
            is_read_only: true,
        };
        let Some(first) = container.run(&[&quota, &limit.to_string()]) else {
            return;
        };
        assert!(succeeded(&first).contains("passed"));
        let bundle = container.bundle(&[&hold, &GIB.to_string(), &limit.to_string()]);
        let mut one = Running::start(&mut container.command(&bundle));
        assert_eq!(one.wait_for("holding"), format!("holding {GIB} denied 1"));
        running.push(one);
        bundles.push(bundle);
    }
    let directories: Vec<PathBuf> = pods.iter().map(|(started, ..)| started.directory()).collect();
    let attached = || {
        let smi: Value = bed.smi();
        let tenants = smi["gpus"][0]["tenants"].as_array().cloned().unwrap_or_default();
        let used = tenants
            .iter()
            .filter(|tenant| tenant["memory_used_bytes"].as_u64() >= Some(GIB));
        used.count() == 2
    };
    eventually("both containers are seen", SOON, attached);
    for _ in 0..3 {
        plugin.kill_and_restart();
        kubelet.restart();
        manager.kill_and_restart();
        connected(&kubelet);
        eventually("both containers are seen again", SOON, attached);
        for ((started, limit, pod), directory) in pods.iter().zip(&directories) {
            // Kubelet starts a container of the pod again: it is the same grant.
            assert_eq!(&kubelet.started(pod).directory(), directory);
            assert_eq!(started.limits()[0].1, *limit);
        }
    }
    // Still theirs, to the byte, beside what they hold.
    for (started, limit, _) in &pods {
        let container = Container {
            bed: &bed,
            started,
            uid: 0,
            is_read_only: true,
        };
        let more = container
            .run(&["timeout", "2", &hold, &(limit - GIB).to_string()])
            .unwrap();
        let said = String::from_utf8_lossy(&more.stdout).into_owned();
        assert!(said.contains("holding 0 denied 1"), "{said}{}", text(&more));
    }
    kubelet.assert_no_wrongs();
}
