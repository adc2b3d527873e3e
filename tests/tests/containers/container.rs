//! Real containers (runc) with the three files of docs/operations.md: the shim by /etc/ld.so.preload, `limits` read-only
//! and `usage` writable under /etc/vcuda. The quota holds without environment, for a user without a name, without
//! capabilities, on a read-only root without /tmp, and under the runtimes' system call filters.
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use vcuda_tests::runc::link_userland;
use vcuda_tests::seccomp::{old_filter, shipped_filter};
use vcuda_tests::{Door, Fixture, GIB, Running, app, eventually, release_dir, skip, soon, succeeded, text};

/// User that is in no container's /etc/passwd.
const UNKNOWN_USER: u32 = 123_456;
const ENVIRONMENT: [&str; 3] = ["PATH=/usr/bin:/bin", "VCUDA_SIM=/machine", "LD_LIBRARY_PATH=/sim"];

/// A tenant for containers, whose directory lives as long as its keeper.
struct Tenant {
    fixture: Fixture,
    directory: PathBuf,
    _keeper: Running,
}

impl Tenant {
    fn new() -> Self {
        let fixture = Fixture::new();
        let quota = ["--memory", "2GiB", "--cores", "50", "--name", "web"];
        let keeper = Running::start(fixture.tenant(&quota, "sleep").arg("120"));
        let directory = fixture.runtime().join("vcuda/containers/web");
        eventually("the tenant's directory", Duration::from_secs(5), || directory.join("usage").exists());
        succeeded(&fixture.bare("true").output().unwrap());
        // A real GPU's device files are open to every user.
        succeeded(&Command::new("chmod").args(["-R", "a+rwX"]).arg(fixture.machine()).output().unwrap());
        Tenant { fixture, directory, _keeper: keeper }
    }
}

/// A container with this machine's userland as its read-only root.
struct Container<'a> {
    tenant: &'a Tenant,
    uid: u32,
    seccomp: Option<Value>,
    /// File to mount at `/extra`.
    extra: Option<&'a Path>,
    privileges: bool,
    /// Line of `/etc/ld.so.preload`.
    preload: &'a str,
}

impl<'a> Container<'a> {
    fn new(tenant: &'a Tenant, uid: u32) -> Self {
        Container {
            tenant,
            uid,
            seccomp: None,
            extra: None,
            privileges: false,
            preload: "/shim/libvcuda_shim.so\n",
        }
    }

    fn bundle(&self, args: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let root = dir.path().join("rootfs");
        for folder in ["etc/vcuda", "proc", "dev", "sim", "machine", "usr", "app", "shim", "extra"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        link_userland(&root);
        for file in ["etc/vcuda/limits", "etc/vcuda/usage", "etc/ld.so.preload"] {
            fs::write(root.join(file), "").unwrap();
        }
        fs::write(dir.path().join("preload"), self.preload).unwrap();
        let simulator = dir.path().join("sim");
        fs::create_dir(&simulator).unwrap();
        for (library, name) in [("cuda", "libcuda.so.1"), ("nvml", "libnvidia-ml.so.1")] {
            let from = release_dir().join(format!("libvcuda_simulator_{library}.so"));
            fs::copy(from, simulator.join(name)).unwrap();
        }
        let mut config = self.configuration(dir.path(), args);
        if let Some(filter) = &self.seccomp {
            config["linux"]["seccomp"] = filter.clone();
        }
        let path = dir.path().join("config.json");
        fs::write(path, serde_json::to_vec(&config).unwrap()).unwrap();
        dir
    }

    /// Configuration for runc, without a system call filter.
    fn configuration(&self, bundle: &Path, args: &[&str]) -> Value {
        let bind = |from: &Path, to: &str, mode: &str| json!({"destination": to, "source": from, "type": "bind", "options": ["rbind", mode]});
        let none: [&str; 0] = [];
        let simulator = bundle.join("sim");
        let extra = self.extra.unwrap_or(&simulator);
        json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false, "user": {"uid": self.uid, "gid": self.uid}, "args": args, "cwd": "/",
                "noNewPrivileges": !self.privileges, "env": ENVIRONMENT,
                "capabilities": {"bounding": none, "effective": none, "inheritable": none, "permitted": none, "ambient": none},
            },
            "root": {"path": bundle.join("rootfs"), "readonly": true},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "nodev", "hidepid=2"]},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
                bind(Path::new("/usr"), "/usr", "ro"),
                bind(&release_dir(), "/shim", "ro"),
                bind(&release_dir().join("test-apps"), "/app", "ro"),
                bind(&simulator, "/sim", "ro"),
                bind(extra, "/extra", "ro"),
                bind(&self.tenant.fixture.machine(), "/machine", "rw"),
                bind(&bundle.join("preload"), "/etc/ld.so.preload", "ro"),
                bind(&self.tenant.directory.join("limits"), "/etc/vcuda/limits", "ro"),
                bind(&self.tenant.directory.join("usage"), "/etc/vcuda/usage", "rw"),
            ],
            "linux": {
                "namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}, {"type": "network"}],
                "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
                "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
            },
        })
    }

    /// Runs the container to its end; `None` without a working runtime.
    fn run(&self, args: &[&str]) -> Option<Output> {
        let bundle = self.bundle(args);
        let id = format!("vcuda-test-{}", bundle.path().file_name()?.to_str()?);
        let output = Command::new("runc")
            .arg("--root")
            .arg(bundle.path().join("state"))
            .args(["run", "-b"])
            .arg(bundle.path())
            .arg(id.replace('.', ""))
            .stdin(Stdio::null())
            .output();
        match output {
            Ok(output) if String::from_utf8_lossy(&output.stderr).contains("runc run failed") => {
                let words = text(&output).replace('\n', " ");
                skip(&format!("container: runc does not work here: {words}"));
                None
            }
            Ok(output) => Some(output),
            Err(error) => {
                skip(&format!("container: no runc ({error}); scripts/test.sh installs it where apt-get can"));
                None
            }
        }
    }
}

fn inside(program: &Path) -> String {
    format!("/app/{}", program.file_name().unwrap().to_string_lossy())
}

#[test]
fn a_containers_quota_holds() {
    let tenant = Tenant::new();
    let (quota, hold) = (inside(&app("quota", Door::Dlsym)), inside(&app("hold", Door::Dlsym)));
    let limit = (2 * GIB).to_string();
    let Some(output) = Container::new(&tenant, 0).run(&[&quota, &limit]) else {
        return;
    };
    assert!(succeeded(&output).contains("passed"));
    // Without environment, or with a contradicting one, the preload file and /etc/vcuda still hold. The program waits, so
    // it is stopped by a time limit.
    let wiped = [
        "timeout",
        "3",
        "env",
        "-i",
        "LD_LIBRARY_PATH=/sim",
        "LD_PRELOAD=",
        "VCUDA_SIM=/machine",
        "VCUDA_DIR=/dev",
        "VCUDA_MEMORY=64GiB",
        &hold,
        &limit,
    ];
    let output = Container::new(&tenant, 0).run(&wiped).unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("holding 0 denied 1"), "{}", text(&output));
    // Without the library the same container has the whole GPU, so the quota depends on the preload.
    let mut open = Container::new(&tenant, 0);
    open.preload = "";
    let output = open.run(&["timeout", "2", &hold, &limit]).unwrap();
    assert!(
        String::from_utf8_lossy(&output.stdout).contains(&format!("holding {limit} denied 0")),
        "{}",
        text(&output)
    );
    // The container's memory is freed with it, and the host saw it under the tenant's name.
    let smi: Value = tenant.fixture.smi();
    assert_eq!(smi["gpus"][0]["tenants"][0]["name"], "web");
    assert_eq!(smi["gpus"][0]["tenants"][0]["memory_used_bytes"], 0);
}

#[test]
fn any_user_without_capabilities_under_filters() {
    let tenant = Tenant::new();
    let (quota, nvml) = (inside(&app("quota", Door::Dlsym)), inside(&app("forks", Door::Dlsym)));
    let limit = (2 * GIB).to_string();
    for filter in [None, shipped_filter(), Some(old_filter())] {
        let mut container = Container::new(&tenant, UNKNOWN_USER);
        container.seccomp = filter;
        let Some(output) = container.run(&[&quota, &limit]) else {
            return;
        };
        assert_eq!(succeeded(&output), "passed quota\n");
        // Threads, metered launches, children.
        let output = container.run(&[&nvml, "32"]).unwrap();
        assert_eq!(succeeded(&output), "children done\npassed forks\n");
        assert!(output.stderr.is_empty());
        // The host's view, and the rights of its own user, are unchanged.
        soon("what the container used is back", || {
            tenant.fixture.smi()["gpus"][0]["tenants"][0]["memory_used_bytes"] == 0
        });
    }
}

/// A restarted container has another PID namespace, from which its earlier processes are invisible.
#[test]
fn a_container_that_is_started_again_has_its_whole_quota() {
    let tenant = Tenant::new();
    let hold = inside(&app("hold", Door::Dlsym));
    let limit = (2 * GIB - (512 << 20)).to_string();
    let container = Container::new(&tenant, UNKNOWN_USER);
    let life = || container.run(&["timeout", "-s", "KILL", "2", &hold, &limit]);
    let Some(first) = life() else {
        return;
    };
    // The kernel may reuse the number of a namespace that is gone; this prevents it.
    let mut taker =
        Command::new("unshare").args(["--pid", "--fork", "--kill-child", "sleep", "60"]).spawn().unwrap();
    let second = life().unwrap();
    taker.kill().unwrap();
    taker.wait().unwrap();
    for output in [first, second] {
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains(&format!("holding {limit} denied 0")), "{}", text(&output));
    }
}

/// A set-user-ID program is loaded in secure-execution mode, in which the loader uses `/etc/ld.so.preload` but ignores the
/// environment.
#[test]
fn a_set_user_id_program_says_what_it_always_says() {
    let tenant = Tenant::new();
    let extra = tempfile::tempdir().unwrap();
    fs::set_permissions(extra.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = extra.path().join("id");
    fs::copy("/usr/bin/id", &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let mut container = Container::new(&tenant, UNKNOWN_USER);
    container.privileges = true;
    container.extra = Some(extra.path());
    let Some(limited) = container.run(&["/extra/id"]) else {
        return;
    };
    container.preload = "";
    let plain = container.run(&["/extra/id"]).unwrap();
    assert!(succeeded(&plain).contains("euid=0"), "{}", text(&plain));
    assert_eq!((limited.stdout, limited.stderr, limited.status), (plain.stdout, plain.stderr, plain.status));
}
