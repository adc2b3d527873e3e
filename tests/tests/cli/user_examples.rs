//! The examples for Slurm and JupyterHub (`deploy/examples`), with a real manager and stand-ins for Slurm and the Hub.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use vcuda_tests::{
    Commanded, Door, GIB, OtherUsers, app, is_other_users, release_dir, skip, succeeded, text, workspace,
};

/// A user that every system has.
const USER: &str = "daemon";
const LIMITS: &str = "[users.\"daemon\"]\nmemory = \"8GiB\"\ncores = \"50\"\n";

/// A command in the node's environment that finds `vcuda` and the stand-ins.
fn command(node: &OtherUsers, program: &Path) -> Command {
    let mut command = Command::new(program);
    node.fixture.environment(&mut command);
    let mut path = OsString::from(stand_ins(node));
    path.push(":");
    path.push(release_dir());
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    command.env("PATH", path);
    command
}

/// Folder of programs in place of Slurm's, which write down how they were called.
fn stand_ins(node: &OtherUsers) -> PathBuf {
    let folder = node.fixture.home().join("slurm");
    fs::create_dir_all(&folder).unwrap();
    for name in ["scontrol", "scancel"] {
        let script = format!("#!/bin/sh\necho {name} \"$@\" >>{}/calls\n", folder.display());
        fs::write(folder.join(name), script).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

struct Job<'n> {
    node: &'n OtherUsers,
    number: &'n str,
}

impl Job<'_> {
    fn script(&self, name: &str) -> Command {
        let mut command = command(self.node, &workspace().join("deploy/examples").join(name));
        command
            .env("SLURM_JOB_ID", self.number)
            .env("SLURM_JOB_USER", USER)
            .env("VCUDA_JOBS", self.node.fixture.home().join("jobs"))
            .env("VCUDA_SHIM", release_dir().join("libvcuda_shim.so"))
            .env("VCUDA_JOB_MEMORY", "6GiB");
        command
    }

    fn run(&self, name: &str) -> Output {
        self.script(name).output().unwrap()
    }
}

fn may_mount(place: &Path) -> bool {
    let (from, to) = (place.join("from"), place.join("to"));
    fs::create_dir(&from).unwrap();
    fs::create_dir(&to).unwrap();
    let mounted = Command::new("mount").arg("--bind").args([&from, &to]).status();
    let is_mounted = mounted.is_ok_and(|status| status.success());
    if is_mounted {
        succeeded(&Command::new("umount").arg(&to).output().unwrap());
    }
    is_mounted
}

#[test]
fn a_job_of_slurm_has_its_grant_and_one_beyond_its_users_limit_is_cancelled() {
    if !is_other_users() {
        return;
    }
    let node = OtherUsers::new();
    if !may_mount(node.fixture.home()) {
        skip("Slurm's prolog: this user may not mount");
        return;
    }
    let _manager = node.manager(LIMITS);
    let (first, second) = (Job { node: &node, number: "7" }, Job { node: &node, number: "8" });
    succeeded(&first.run("slurm-prolog.sh"));
    let listed = || node.fixture.stdout(["grant", "list"]);
    assert!(listed().contains("job-7-1") && listed().contains("user daemon"), "{}", listed());
    // The task's programs have the job's quota.
    let variables = succeeded(&first.run("slurm-task-prolog.sh"));
    let exports: Vec<(&str, &str)> =
        variables.lines().filter_map(|line| line.strip_prefix("export ")?.split_once('=')).collect();
    assert_eq!(exports.len(), 4, "{variables}");
    // A number, as programs such as vLLM take no UUID.
    assert!(exports.contains(&("CUDA_VISIBLE_DEVICES", "0")), "{variables}");
    let mut task = node.fixture.vcuda(["sim", "--"]);
    let mut task = Commanded::start(task.arg(app("obey", Door::Dlsym)).envs(exports.clone()));
    assert_eq!(task.info().1, 6 * GIB);
    drop(task);
    // The user reaches its limits by the job's path, and not by the manager's.
    let limits = |folder: &Path| {
        let mut read = Command::new("setpriv");
        read.args(["--reuid", USER, "--clear-groups", "cat"]);
        read.arg(folder.join("limits")).output().unwrap().status.success()
    };
    let (_, own) = exports.iter().find(|(name, _)| *name == "VCUDA_DIR").unwrap();
    assert!(limits(Path::new(own)));
    assert!(!limits(&node.fixture.runtime().join("vcuda/containers/job-7-1")));
    // The second would be beyond the limit of 8 GiB.
    succeeded(&second.run("slurm-prolog.sh"));
    let calls = fs::read_to_string(stand_ins(&node).join("calls")).unwrap();
    assert!(calls.contains("scancel 8"), "{calls}");
    assert!(calls.contains("user daemon (1) may have 8 GiB of GPU memory"), "{calls}");
    for job in [first, second] {
        succeeded(&job.run("slurm-epilog.sh"));
    }
    assert!(!listed().contains("job-"), "{}", listed());
    assert_eq!(fs::read_dir(node.fixture.home().join("jobs")).unwrap().count(), 0);
}

/// Runs the Hub's configuration with stand-ins for Hub and docker, then its hooks for a user.
const HUB: &str = "
import sys, types
docker, made = types.ModuleType('docker'), []
docker.types = types.ModuleType('docker.types')
docker.types.DeviceRequest = lambda **request: request
sys.modules.update({'docker': docker, 'docker.types': docker.types})
c = types.SimpleNamespace(JupyterHub=types.SimpleNamespace(), DockerSpawner=types.SimpleNamespace())
scope = {'get_config': lambda: c}
exec(open(sys.argv[1]).read(), scope)
def spawner_of(user, server=''):
    return types.SimpleNamespace(user=types.SimpleNamespace(name=user), name=server, extra_host_config={})
spawner = spawner_of('daemon')
getattr(c.DockerSpawner, sys.argv[2])(spawner)
print(spawner.extra_host_config)
servers = [('a.b', ''), ('ab', ''), ('ab', 'x'), ('ab', 'y')]
assert len({scope['grant_of'](spawner_of(*server)) for server in servers}) == 4
";

#[test]
fn a_notebook_server_of_jupyterhub_has_its_grant() {
    if Command::new("python3").arg("--version").output().is_err() {
        skip("JupyterHub's hooks: no python3");
        return;
    }
    let node = OtherUsers::new();
    let _manager = node.manager(LIMITS);
    let hook = |name: &str| {
        let mut hub = command(&node, Path::new("python3"));
        hub.args(["-c", HUB])
            .arg(workspace().join("deploy/examples/jupyterhub_config.py"))
            .arg(name)
            .output()
            .unwrap()
    };
    let given = succeeded(&hook("pre_spawn_hook"));
    assert!(given.contains("vcuda.io/grant=hub-daemon"), "{given}");
    // A second start, as after a crash of the Hub, is the same grant.
    succeeded(&hook("pre_spawn_hook"));
    let listed = || node.fixture.stdout(["grant", "list"]);
    assert!(listed().contains("hub-daemon-") && listed().contains("user daemon"), "{}", listed());
    succeeded(&hook("post_stop_hook"));
    // Beyond the limit, the Hub's user reads why.
    let more = ["grant", "create", "more", "--user", USER, "--memory", "6GiB", "--cores", "10"];
    node.fixture.stdout(more);
    let refused = hook("pre_spawn_hook");
    assert!(!refused.status.success());
    assert!(text(&refused).contains("may have 8 GiB of GPU memory"), "{}", text(&refused));
}
