//! Containers started by runc with the plugin's specification: a root file system, a configuration, and the CDI
//! specification's edits, applied as a container runtime does.

use std::fs;
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::kubelet::Started;
use crate::{Fixture, skip, succeeded, text};

mod image;

use image::ACCOUNTS;
pub use image::{Image, link_userland};

/// Default capabilities of containers (containerd, `oci.WithDefaultUnixCaps`), as far as they matter here.
const CAPABILITIES: [&str; 6] =
    ["CAP_SETUID", "CAP_SETGID", "CAP_CHOWN", "CAP_FOWNER", "CAP_FSETID", "CAP_AUDIT_WRITE"];
/// Device files cannot be made in a user namespace, so runc mounts the host's at the same path. This host has no GPU, so
/// runc gets a `/dev` with substitutes.
const WITH_CARDS: &str = r#"set -e
aside=$1 gpus=$2
shift 2
mount --rbind /dev "$aside"
mount -t tmpfs -o mode=755 tmpfs /dev
for name in null zero full random urandom tty ptmx fd stdin stdout stderr; do cp -a "$aside/$name" /dev/; done
for name in shm pts; do mkdir "/dev/$name" && mount --rbind "$aside/$name" "/dev/$name"; done
cp -a "$gpus"/* /dev/
exec "$@""#;
/// Number of users in a container's user namespace.
const USERS: u32 = 65_536;

/// A change of a runtime's configuration before it is written.
pub type Change<'a> = &'a dyn Fn(&mut Value);

/// A container with the edits of its specification. The pod's manifest adds only the simulated machine, as there is no GPU.
#[derive(Clone)]
pub struct Container<'a> {
    /// The fixture with the simulated machine.
    pub fixture: &'a Fixture,
    /// Result of kubelet's runtime.
    pub started: &'a Started,
    /// User of its first process.
    pub uid: u32,
    /// Whether its root file system is read-only.
    pub is_read_only: bool,
    /// Its programs.
    pub image: Image,
    /// Host user that is root in the container's own user namespace, if it has one.
    pub root_user: Option<u32>,
    /// A change made by a pod, an image or a broken runtime.
    pub change: Option<Change<'a>>,
}

impl std::fmt::Debug for Container<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "container of {} with user {}", self.fixture.machine().display(), self.uid)
    }
}

/// Its files, and its writable layer over `/usr`.
#[derive(Debug)]
pub struct Bundle {
    dir: tempfile::TempDir,
    over: tempfile::TempDir,
}

impl Bundle {
    /// Reason for the container's end, as kubelet reads it.
    pub fn termination(&self) -> String {
        fs::read_to_string(self.over.path().join("termination-log")).unwrap()
    }
}

impl<'a> Container<'a> {
    /// A read-only container of root, with this machine's userland.
    pub fn new(fixture: &'a Fixture, started: &'a Started) -> Self {
        Self {
            fixture,
            started,
            uid: 0,
            is_read_only: true,
            image: Image::Host,
            root_user: None,
            change: None,
        }
    }

    /// The same container for another user.
    pub fn of(self, uid: u32) -> Self {
        Self { uid, ..self }
    }

    /// The same container with a changed configuration.
    pub fn changed(self, change: Change<'a>) -> Self {
        Self { change: Some(change), ..self }
    }

    /// Makes the files that runc needs for this command.
    pub fn bundle(&self, args: &[&str]) -> Bundle {
        let dir = tempfile::tempdir().unwrap();
        // /tmp may be an overlay, which cannot be the upper layer of another.
        let over = tempfile::tempdir_in("/dev/shm").unwrap();
        for path in [dir.path(), over.path()] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let root = dir.path().join("rootfs");
        for folder in ["etc/pam.d", "proc", "dev", "machine", "usr", "tmp", "var", "run"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for folder in ["upper", "work"] {
            fs::create_dir(over.path().join(folder)).unwrap();
        }
        let termination = over.path().join("termination-log");
        fs::write(&termination, "").unwrap();
        // As kubelet makes it.
        fs::set_permissions(&termination, fs::Permissions::from_mode(0o666)).unwrap();
        for (file, content) in ACCOUNTS {
            fs::write(root.join(file), content).unwrap();
        }
        let mut mounts = vec![
            json!({"destination": "/proc", "type": "proc", "source": "proc"}),
            json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]}),
            bind(&termination, "/dev/termination-log", "rw"),
            bind(&self.fixture.machine(), "/machine", "rw"),
        ];
        mounts.extend(self.image.unpack(&root, over.path()));
        let namespaces = ["pid", "mount", "ipc", "uts", "network"].map(|kind| json!({"type": kind}));
        let mut config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false, "user": {"uid": self.uid, "gid": self.uid}, "args": args, "cwd": "/",
                "env": ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin", "VCUDA_SIM=/machine", "NVIDIA_VISIBLE_DEVICES=all"],
                "capabilities": {"bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES},
            },
            "root": {"path": root, "readonly": self.is_read_only},
            "mounts": mounts,
            "hooks": {},
            "linux": {"namespaces": namespaces, "devices": []},
        });
        if let Some(first) = self.root_user {
            let mapping = json!([{"containerID": 0, "hostID": first, "size": USERS}]);
            config["linux"]["uidMappings"] = mapping.clone();
            config["linux"]["gidMappings"] = mapping;
            let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
            namespaces.push(json!({"type": "user"}));
            self.give_to(first, dir.path(), over.path());
        }
        for edits in &self.started.edits {
            edit(&mut config, edits);
        }
        if let Some(change) = self.change {
            change(&mut config);
        }
        fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
        Bundle { dir, over }
    }

    /// Gives the container's files to the user that is root in it.
    fn give_to(&self, root_user: u32, dir: &Path, over: &Path) {
        // Folders of an image belong to its root; those of this machine's /usr are changed where something is mounted in
        // them.
        for inside in self.started.mounted() {
            if let Ok(inside) = inside.strip_prefix("/usr") {
                let parent = inside.parent().unwrap();
                fs::create_dir_all(over.join("upper").join(parent)).unwrap();
            }
        }
        for path in [dir, over] {
            own(path, root_user);
        }
    }

    /// A command that lets runc run the bundle.
    pub fn command(&self, bundle: &Bundle) -> Command {
        let bundle = bundle.dir.path();
        let id = format!("vcuda-{}", bundle.file_name().unwrap().to_string_lossy());
        let mut command = Command::new("runc");
        if self.root_user.is_some() {
            let aside = bundle.join("dev");
            fs::create_dir_all(&aside).unwrap();
            command = Command::new("unshare");
            command.args(["-m", "sh", "-c", WITH_CARDS, "runc"]);
            command.args([&aside, &self.fixture.driver_root().join("dev")]).arg("runc");
        }
        command
            .arg("--root")
            .arg(bundle.join("state"))
            .args(["run", "-b"])
            .arg(bundle)
            .arg(id.replace('.', ""))
            .stdin(Stdio::null());
        command
    }

    /// Runs this command to its end; `None` without a working runtime.
    pub fn run(&self, args: &[&str]) -> Option<Output> {
        self.run_bundle(&self.bundle(args))
    }

    /// Runs an existing bundle.
    pub fn run_bundle(&self, bundle: &Bundle) -> Option<Output> {
        match self.command(bundle).output() {
            // If it starts without our edits and not with them, that is our fault.
            Ok(output) if is_refused(&output) && !self.starts_without_edits() => {
                let words = text(&output).replace('\n', " ");
                skip(&format!("runc does not work here: {words}"));
                None
            }
            // The shell that makes a user namespace first does not find it.
            Ok(output) if text(&output).contains("exec: runc: not found") => without_runc("not found"),
            Ok(output) => Some(output),
            Err(error) => without_runc(&error.to_string()),
        }
    }

    fn starts_without_edits(&self) -> bool {
        let nothing = Started::default();
        let bare = Container { started: &nothing, image: Image::Host, change: None, ..self.clone() };
        let bundle = bare.bundle(&["true"]);
        bare.command(&bundle).output().is_ok_and(|output| !is_refused(&output))
    }

    /// Runs this command. Returns its output after a check that it succeeded.
    pub fn printed(&self, args: &[&str]) -> String {
        succeeded(&self.run(args).unwrap())
    }
}

/// Reports a test that is skipped as there is no runc.
fn without_runc(why: &str) -> Option<Output> {
    skip(&format!("no runc ({why}); scripts/test.sh installs it where apt-get can"));
    None
}

/// Whether runc itself failed.
fn is_refused(output: &Output) -> bool {
    String::from_utf8_lossy(&output.stderr).contains("runc run failed")
}

fn bind(from: &Path, to: &str, mode: &str) -> Value {
    json!({"destination": to, "source": from, "type": "bind", "options": ["rbind", mode]})
}

/// Gives a folder with its content to the user that is root in a container.
fn own(path: &Path, user: u32) {
    let owner = format!("{user}:{user}");
    let owned = Command::new("chown").args(["-hR", &owner]).arg(path).output();
    succeeded(&owned.unwrap());
    chown(path, Some(user), Some(user)).unwrap();
}

/// Applies container edits to a runtime's configuration, by the CDI specification (0.5.0, "OCI Edits"). Panics for an
/// unknown edit, as none may be skipped.
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
                "hooks" => {
                    // Hook names accepted by the CDI library, which are OCI's.
                    let name = value["hookName"].as_str().unwrap();
                    assert!(
                        [
                            "prestart",
                            "createRuntime",
                            "createContainer",
                            "startContainer",
                            "poststart",
                            "poststop"
                        ]
                        .contains(&name),
                        "{name}"
                    );
                    assert!(value["path"].as_str().unwrap().starts_with('/'), "{value}");
                    let mut hook = value.clone();
                    hook.as_object_mut().unwrap().remove("hookName");
                    let hooks = config["hooks"].as_object_mut().unwrap();
                    let of_name = hooks.entry(name).or_insert(json!([]));
                    of_name.as_array_mut().unwrap().push(hook);
                }
                other => panic!("{other}: {edits}"),
            }
        }
    }
}

/// Path of a test program in a container.
pub fn inside(program: &Path) -> String {
    format!("/app/{}", program.file_name().unwrap().to_string_lossy())
}

/// Opens the simulated machine for all users, as a real GPU's device files are.
pub fn open_machine(fixture: &Fixture) {
    succeeded(&fixture.bare("true").output().unwrap());
    let opened = Command::new("chmod").args(["-R", "a+rwX"]).arg(fixture.machine()).output();
    succeeded(&opened.unwrap());
}
