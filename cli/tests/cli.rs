//! The built `vcuda`: help, exit codes, messages, and that `run` becomes the command. The libraries are empty files here:
//! what they do is tested by the whole-system tests.
#![expect(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tempfile::TempDir;

/// `vcuda` in a folder with files that have the names of its libraries.
fn installation() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
        fs::create_dir_all(&place).unwrap();
        // Another test run may do the same now, or use the one of an earlier build.
        let aside = place.join(format!("vcuda-{}", std::process::id()));
        fs::hard_link(env!("CARGO_BIN_EXE_vcuda"), &aside).unwrap();
        fs::rename(&aside, place.join("vcuda")).unwrap();
        let _ = fs::remove_file(&aside);
        for library in [
            "libvcuda_shim.so",
            "libvcuda_simulator_cuda.so",
            "libvcuda_simulator_nvml.so",
        ] {
            fs::write(place.join(library), "").unwrap();
        }
        place
    })
}

/// A user with a runtime directory of its own.
struct User {
    home: TempDir,
}

impl User {
    fn new() -> User {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("run")).unwrap();
        User { home }
    }

    fn vcuda(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(installation().join("vcuda"));
        command.args(arguments).stdin(Stdio::null());
        for name in [
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "CUDA_VISIBLE_DEVICES",
            "VCUDA_DIR",
        ] {
            command.env_remove(name);
        }
        command
            .env("XDG_RUNTIME_DIR", self.home.path().join("run"))
            .env("VCUDA_SIM", self.machine());
        command
    }

    fn machine(&self) -> PathBuf {
        self.home.path().join("machine")
    }

    fn containers(&self) -> PathBuf {
        self.home.path().join("run/vcuda/containers")
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.vcuda(arguments).output().unwrap()
    }

    fn stdout(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.stdout(arguments)).unwrap()
    }

    /// A tenant that sleeps until it is killed, once its directory is there.
    fn sleeper(&self, arguments: &[&str], name: &str) -> Sleeper {
        let mut command = self.vcuda(&["run", "--sim", "--name", name]);
        let child = command
            .args(arguments)
            .args(["--", "sleep", "60"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let sleeper = Sleeper(child);
        let end = SystemTime::now() + Duration::from_secs(10);
        while !self.containers().join(name).join("limits").exists() {
            assert!(SystemTime::now() < end, "{name} did not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        sleeper
    }

    /// Exactly one line on stderr that holds `words`, nothing on stdout.
    fn refused(&self, arguments: &[&str], code: i32, words: &str) {
        let output = self.output(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
        assert!(
            stderr.starts_with("vcuda: ") && stderr.contains(words),
            "{arguments:?}: {stderr}"
        );
        assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
    }
}

struct Sleeper(std::process::Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn help_of_every_command_begins_with_examples() {
    let user = User::new();
    let commands = [
        "run",
        "sim",
        "smi",
        "set",
        "doctor",
        "demo",
        "bench",
        "completions",
        "man",
    ];
    for arguments in [vec!["--help"]]
        .into_iter()
        .chain(commands.map(|command| vec![command, "--help"]))
    {
        let help = user.stdout(&arguments);
        assert!(help.starts_with("Examples:\n  vcuda "), "{arguments:?}: {help}");
        assert!(
            !help.contains("doctor-probe") && !help.contains("arbiter"),
            "hidden commands are shown: {help}"
        );
    }
    assert!(user.stdout(&["--version"]).starts_with("vcuda "));
    assert!(user.stdout(&["completions", "bash"]).contains("complete"));
    assert!(user.stdout(&["man"]).contains(".TH vcuda"));
    assert!(user.stdout(&["man", "run"]).contains("vcuda\\-run"));
    user.refused(&["man", "arbiter"], 64, "man arbiter");
}

#[test]
fn wrong_use_is_one_line_that_names_the_value() {
    let user = User::new();
    let run = |option: &str, value: &str, words: &str| {
        user.refused(&["run", "--sim", option, value, "--", "true"], 64, words);
    };
    user.refused(&["sim", "true"], 64, "write it after `--`");
    user.refused(&["doctor", "true"], 64, "write it after `--`");
    user.refused(&["smi", "extra"], 64, "'extra' found (see");
    run("--memory", "12Q", "'12Q'");
    run("--memory", "-1", "'-1'");
    run("--memory", "0", "'0'");
    run("--memory", "4Gib", "'4Gib'");
    run("--memory", "99999999999999999999Gi", "99999999999999999999Gi");
    run("--memory", "81GiB", "80 GiB (85899345920 bytes)");
    run("--cores", "101", "'101'");
    run("--cores", "0", "'0'");
    run("--cores", "half", "'half'");
    run("--gpu", "7", "--gpu 7: this machine has one GPU");
    run("--gpu", "GPU-nonsense", "'GPU-nonsense'");
    run("--gpu", "GPU-0000", "there is GPU-");
    run("--gpu", "MIG-1", "MIG");
    run("--name", "../../etc", "../../etc");
    run("--name", "", "--name");
    run("--policy", "greedy", "'greedy'");
    user.refused(&["run", "--sim"], 64, "no command to run");
    user.refused(&["run", "--sim", "--"], 64, "no command to run");
    user.refused(&["sim"], 64, "no command to run");
    user.refused(&["sim", "--gpus", "17", "--", "true"], 64, "17");
    user.refused(&["frobnicate"], 64, "'frobnicate'");
    user.refused(&["run", "--frob", "--", "true"], 64, "'--frob'");
    user.refused(
        &["set", "nobody", "--memory", "1Gi"],
        64,
        "set nobody: no such tenant",
    );
    user.refused(&["set", "nobody"], 64, "nothing to change");
    user.refused(&[], 64, "--help");
}

#[test]
fn run_becomes_the_command() {
    let user = User::new();
    let shell = |script: &str| user.output(&["run", "--sim", "--memory", "1Gi", "--", "sh", "-c", script]);
    assert_eq!(shell("exit 7").status.code(), Some(7));
    let mut command = user.vcuda(&["run", "--sim", "--", "sh", "-c", "echo $$"]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    assert_eq!(
        String::from_utf8(child.wait_with_output().unwrap().stdout)
            .unwrap()
            .trim(),
        pid
    );

    let mut command = user.vcuda(&["run", "--sim", "--name", "named", "--gpu", "0", "--", "env"]);
    let output = command
        .env("LD_PRELOAD", "libof-the-user.so")
        .env("LD_LIBRARY_PATH", "/of/the/user")
        .output()
        .unwrap();
    let variables = String::from_utf8(output.stdout).unwrap();
    let value = |name: &str| {
        let line = variables
            .lines()
            .find(|line| line.starts_with(&format!("{name}=")));
        line.unwrap_or_else(|| panic!("no {name} in {variables}"))
            .split_once('=')
            .unwrap()
            .1
            .to_owned()
    };
    let shim = installation().join("libvcuda_shim.so");
    assert_eq!(
        value("LD_PRELOAD"),
        format!("{}:libof-the-user.so", shim.display())
    );
    assert_eq!(Path::new(&value("VCUDA_DIR")), user.containers().join("named"));
    assert_eq!(Path::new(&value("VCUDA_SIM")), user.machine());
    let search = value("LD_LIBRARY_PATH");
    let (links, rest) = search.split_once(':').unwrap();
    assert_eq!(rest, "/of/the/user");
    for (name, library) in [
        ("libcuda.so.1", "libvcuda_simulator_cuda.so"),
        ("libnvidia-ml.so.1", "libvcuda_simulator_nvml.so"),
    ] {
        assert_eq!(
            fs::read_link(Path::new(links).join(name)).unwrap(),
            installation().join(library)
        );
    }
    assert!(value("CUDA_VISIBLE_DEVICES").starts_with("GPU-"));
}

#[test]
fn visible_devices_are_left_alone_without_the_option() {
    let user = User::new();
    let mut command = user.vcuda(&[
        "run",
        "--sim",
        "--",
        "sh",
        "-c",
        "echo \"<$CUDA_VISIBLE_DEVICES>\"",
    ]);
    let output = command.env("CUDA_VISIBLE_DEVICES", "0").output().unwrap();
    assert_eq!(output.stdout, b"<0>\n");
}

#[test]
fn what_cannot_be_executed_is_126_or_127() {
    let user = User::new();
    let text = user.home.path().join("text");
    fs::write(&text, "no program").unwrap();
    let text = text.to_str().unwrap();
    for command in [["run", "--sim", "--"].as_slice(), &["sim", "--"]] {
        user.refused(&[command, &["no-such-command"]].concat(), 127, "no-such-command");
        user.refused(&[command, &["./no/such/file"]].concat(), 127, "./no/such/file");
        user.refused(&[command, &[text]].concat(), 126, text);
        user.refused(&[command, &["/"]].concat(), 126, "/");
    }
}

#[test]
fn a_run_inside_a_run_is_refused() {
    let user = User::new();
    let vcuda = installation().join("vcuda");
    let inner = format!("{} run --sim --memory 2Gi -- true", vcuda.display());
    let output = user.output(&["run", "--sim", "--memory", "1Gi", "--", "sh", "-c", &inner]);
    assert_eq!(output.status.code(), Some(64));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("already a tenant"),
        "{output:?}"
    );
}

#[test]
fn runs_of_one_name_share_one_quota() {
    let user = User::new();
    let _first = user.sleeper(&["--memory", "2Gi", "--cores", "30"], "jobs");
    fn join<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
        [&["run", "--sim", "--name", "jobs"], arguments, &["--", "true"]].concat()
    }
    assert!(user.output(&join(&[])).status.success());
    assert!(user.output(&join(&["--memory", "2048Mi"])).status.success());
    user.refused(
        &join(&["--memory", "3Gi"]),
        64,
        "--name jobs: it runs already with --memory 2 GiB",
    );
    user.refused(&join(&["--cores", "40"]), 64, "--cores 30 %");
    user.refused(&join(&["--policy", "burst"]), 64, "--policy fixed");
    user.refused(&join(&["--weight", "2"]), 64, "--weight 300");
    user.refused(&join(&["--priority", "high"]), 64, "--priority normal");
    assert!(
        user.output(&join(&["--weight", "300", "--priority", "normal"]))
            .status
            .success()
    );
    let tenants = user.json(&["smi", "--json"])["gpus"][0]["tenants"].clone();
    assert_eq!(tenants.as_array().unwrap().len(), 1);
    assert_eq!(tenants[0]["name"], "jobs");
}

#[test]
fn set_changes_a_running_tenant() {
    let user = User::new();
    let _tenant = user.sleeper(&["--memory", "2Gi", "--cores", "30"], "live");
    user.stdout(&["set", "live", "--memory", "1.5GiB", "--cores", "12.5"]);
    let tenant = user.json(&["smi", "--json"])["gpus"][0]["tenants"][0].clone();
    assert_eq!(tenant["memory_limit_bytes"], 3_u64 << 29);
    assert_eq!(tenant["core_limit_permille"], 125);
    assert_eq!(tenant["policy"], "fixed");
    user.stdout(&["set", "live", "--policy", "burst"]);
    let tenant = user.json(&["smi", "--json"])["gpus"][0]["tenants"][0].clone();
    let cores = |tenant: &serde_json::Value| {
        ["core_guarantee_permille", "core_limit_permille", "weight"].map(|key| tenant[key].as_u64().unwrap())
    };
    assert_eq!(tenant["policy"], "burst");
    assert_eq!(cores(&tenant), [125, 1000, 125]);
    assert_eq!(tenant["memory_limit_bytes"], 3_u64 << 29);
    user.stdout(&[
        "set",
        "live",
        "--cores-max",
        "50",
        "--weight",
        "7",
        "--priority",
        "low",
    ]);
    let tenant = user.json(&["smi", "--json"])["gpus"][0]["tenants"][0].clone();
    assert_eq!(cores(&tenant), [125, 500, 7]);
    assert_eq!(tenant["priority"], "low");
    assert!(user.stdout(&["smi"]).contains("low priority, weight 7"));
    assert!(user.stdout(&["smi"]).contains("/ 12.5-50 %"));
    user.refused(&["set", "live", "--cores", "60"], 64, "--cores-max 50 %");
    user.refused(
        &["set", "live", "--policy", "fixed", "--cores-max", "50"],
        64,
        "--policy burst",
    );
    user.refused(&["set", "live", "--cores", "0"], 64, "--policy best-effort");
    user.stdout(&["set", "live", "--policy", "best-effort"]);
    let tenant = user.json(&["smi", "--json"])["gpus"][0]["tenants"][0].clone();
    assert_eq!(cores(&tenant), [0, 125, 7]);
    user.refused(&["set", "live", "--memory", "100Gi"], 64, "80 GiB");
    user.refused(&["set", "dead", "--memory", "1Gi"], 64, "running are: live");
}

#[test]
fn dead_directories_are_removed_by_the_next_command() {
    let user = User::new();
    assert!(
        user.output(&["run", "--sim", "--name", "gone", "--", "true"])
            .status
            .success()
    );
    assert!(user.containers().join("gone").exists());
    user.stdout(&["smi", "--json"]);
    assert!(!user.containers().join("gone").exists());
}

#[test]
fn an_existing_machine_is_not_another_one() {
    let user = User::new();
    assert!(
        user.output(&["sim", "--gpus", "2", "--memory", "24GiB", "--", "true"])
            .status
            .success()
    );
    assert!(
        user.output(&["sim", "--gpus", "2", "--", "true"])
            .status
            .success()
    );
    user.refused(&["sim", "--gpus", "3", "--", "true"], 64, "has 2 GPU(s)");
    user.refused(&["sim", "--memory", "80GiB", "--", "true"], 64, "24 GiB per GPU");
    let report = user.json(&["sim", "report", "--json"]);
    assert_eq!(report["gpus"].as_array().unwrap().len(), 2);
    for key in [
        "uuid",
        "memory_total_bytes",
        "memory_used_bytes",
        "memory_peak_bytes",
        "busy_ns",
        "switched_ns",
    ] {
        assert!(!report["gpus"][0][key].is_null(), "{key}");
    }
    assert!(report["processes"].is_array());
    assert!(user.stdout(&["sim", "report"]).contains("24 GiB"));
    let second = user.json(&["smi", "--json"])["gpus"][1]["uuid"]
        .as_str()
        .unwrap()
        .to_owned();
    let shown = user.output(&[
        "run",
        "--sim",
        "--gpu",
        "1",
        "--",
        "sh",
        "-c",
        "echo $CUDA_VISIBLE_DEVICES",
    ]);
    assert_eq!(String::from_utf8(shown.stdout).unwrap().trim(), second);
}

#[test]
fn a_machine_that_cannot_be_is_wrong_use() {
    let user = User::new();
    fs::create_dir(user.machine()).unwrap();
    fs::write(user.machine().join("machine.toml"), "queue_depth = \"many\"").unwrap();
    user.refused(&["run", "--sim", "--", "true"], 64, "machine.toml");
    user.refused(&["smi"], 64, "machine.toml");
}

#[test]
fn a_runtime_directory_that_cannot_be_used_is_named() {
    let user = User::new();
    let run = |place: &str| {
        let mut command = user.vcuda(&["run", "--sim", "--", "true"]);
        command.env("XDG_RUNTIME_DIR", place).output().unwrap()
    };
    for place in ["/proc/no-such-place", "/dev/null"] {
        let output = run(place);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains(place),
            "{output:?}"
        );
    }
}

/// A folder with `vcuda` and nothing else.
fn bare_installation() -> TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::hard_link(env!("CARGO_BIN_EXE_vcuda"), folder.path().join("vcuda")).unwrap();
    folder
}

#[test]
fn missing_parts_are_named() {
    let user = User::new();
    let folder = bare_installation();
    let vcuda = folder.path().join("vcuda");
    for (arguments, missing) in [
        (["run", "--sim", "--", "true"].as_slice(), "libvcuda_shim.so"),
        (["demo", "--sim"].as_slice(), "vcuda-bench"),
        (["bench", "--sim"].as_slice(), "vcuda-bench"),
    ] {
        let mut command = Command::new(&vcuda);
        command
            .args(arguments)
            .env("XDG_RUNTIME_DIR", user.home.path().join("run"));
        let output = command.env_remove("VCUDA_DIR").output().unwrap();
        assert_eq!(output.status.code(), Some(69), "{output:?}");
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        let beginning = format!("vcuda: {missing} is not beside {}", vcuda.display());
        assert!(
            words.starts_with(&beginning) && words.contains("cargo build"),
            "{words}"
        );
    }
}

#[test]
fn demo_and_bench_become_the_program_beside_vcuda() {
    let folder = bare_installation();
    let program = folder.path().join("vcuda-bench");
    let run = |arguments: &[&str]| {
        let mut vcuda = Command::new(folder.path().join("vcuda"));
        vcuda.args(arguments).output().unwrap()
    };
    symlink("/bin/echo", &program).unwrap();
    let arguments = ["bench", "--svg", "a  b.svg", "--only", "split"];
    let output = run(&arguments);
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(told.trim_end(), arguments.join(" "));
    // What cannot be meant is refused before.
    let output = run(&["demo", "--seconds", "1"]);
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");

    fs::remove_file(&program).unwrap();
    symlink("/bin/false", &program).unwrap();
    let output = run(&["demo"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn inside_a_tenant_smi_shows_that_tenant() {
    let user = User::new();
    let _other = user.sleeper(&["--memory", "1Gi"], "other");
    let vcuda = installation().join("vcuda");
    let output = user.output(&[
        "run",
        "--sim",
        "--memory",
        "2Gi",
        "--name",
        "own",
        "--",
        vcuda.to_str().unwrap(),
        "smi",
        "--json",
    ]);
    let inside: Value = serde_json::from_slice(&output.stdout).unwrap();
    let gpu = &inside["gpus"][0];
    assert_eq!(gpu["memory_total_bytes"], 2_u64 << 30);
    assert_eq!(gpu["tenants"].as_array().unwrap().len(), 1);
    assert_eq!(gpu["tenants"][0]["name"], "own");
}

#[test]
fn damaged_limits_are_found_by_the_doctor() {
    let user = User::new();
    let _tenant = user.sleeper(&["--memory", "1Gi"], "hurt");
    fs::write(user.containers().join("hurt/limits"), "rubbish").unwrap();
    let output = user.output(&["doctor", "--sim", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = document["findings"].as_array().unwrap();
    let broken: Vec<&Value> = findings
        .iter()
        .filter(|finding| finding["health"] == "broken")
        .collect();
    assert_eq!(broken.len(), 1, "{document}");
    assert_eq!(broken[0]["link"], "tenant hurt");
    assert!(broken[0]["remedy"].as_str().unwrap().contains("start them again"));
}
