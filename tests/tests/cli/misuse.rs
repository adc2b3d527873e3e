//! Help, exit codes and messages of the built `vcuda`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use vcuda_tests::{Fixture, Tmpfs, release_dir, skip, text};

use crate::{is_refusal, refused};

#[test]
fn help_of_every_command_begins_with_examples() {
    let fixture = Fixture::new();
    let commands = ["run", "sim", "smi", "set", "doctor", "demo", "bench", "completions", "man"];
    for arguments in [vec!["--help"]].into_iter().chain(commands.map(|command| vec![command, "--help"])) {
        let help = fixture.stdout(&arguments);
        assert!(help.starts_with("Examples:\n  vcuda "), "{arguments:?}: {help}");
        assert!(!help.contains("doctor-probe"), "hidden commands are shown: {help}");
    }
    assert!(fixture.stdout(["--version"]).starts_with("vcuda "));
    assert!(fixture.stdout(["completions", "bash"]).contains("complete"));
    assert!(fixture.stdout(["man"]).contains(".TH vcuda"));
    assert!(fixture.stdout(["man", "run"]).contains("vcuda\\-run"));
    let page = fixture.stdout(["man", "grant", "create"]);
    assert!(page.contains(".TH vcuda-grant-create 1"), "{page}");
    assert!(page.contains(".SH EXAMPLES\n.nf\n  vcuda grant create web \\-\\-memory"), "{page}");
    refused(&fixture, &["man", "arbiter"], 64, "man arbiter");
    refused(&fixture, &["man", "grant", "make"], 64, "man grant make");
}

#[test]
fn wrong_use_is_one_line_that_names_the_value() {
    let fixture = Fixture::new();
    let run = |option: &str, value: &str, words: &str| {
        refused(&fixture, &["run", "--sim", option, value, "--", "true"], 64, words);
    };
    refused(&fixture, &["sim", "true"], 64, "write it after `--`");
    refused(&fixture, &["doctor", "python", "train.py"], 64, "write it after `--`");
    refused(&fixture, &["smi", "extra"], 64, "'extra' (see");
    run("--memory", "12Q", "'12Q'");
    run("--memory", "-1", "'-1'");
    run("--memory", "-1GiB", "less than nothing; write for example 4Gi");
    run("--memory", "0", "'0'");
    run("--memory", "4", "a number without a unit; write for example 4GiB");
    run("--memory", "4294967296", "write 4294967296B if it is bytes");
    run("--memory", "32MiB", "32 MiB is less than 64 MiB");
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
    refused(&fixture, &["run", "--sim"], 64, "no command to run");
    refused(&fixture, &["run", "--sim", "--"], 64, "no command to run");
    refused(&fixture, &["sim"], 64, "no command to run");
    refused(&fixture, &["sim", "--gpus", "17", "--", "true"], 64, "17");
    refused(&fixture, &["frobnicate"], 64, "'frobnicate'");
    refused(&fixture, &["run", "--frob", "--", "true"], 64, "'--frob'");
    refused(&fixture, &["set", "unknown", "--memory", "1Gi"], 64, "set unknown: no such tenant");
    refused(&fixture, &["set", "unknown"], 64, "nothing to change");
}

#[test]
fn alone_it_prints_its_help() {
    let output = Fixture::new().output([""; 0]);
    let help = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{help}");
    assert!(help.contains("Usage: vcuda") && help.contains("doctor"), "{help}");
}

#[test]
fn an_existing_machine_is_not_another_one() {
    let fixture = Fixture::new();
    assert!(fixture.output(["sim", "--gpus", "2", "--memory", "24GiB", "--", "true"]).status.success());
    assert!(fixture.output(["sim", "--gpus", "2", "--", "true"]).status.success());
    refused(&fixture, &["sim", "--gpus", "3", "--", "true"], 64, "has 2 GPU(s)");
    refused(&fixture, &["sim", "--memory", "80GiB", "--", "true"], 64, "24 GiB per GPU");
    let report = fixture.json(["sim", "report", "--json"]);
    assert_eq!(report["gpus"].as_array().unwrap().len(), 2);
    for key in
        ["uuid", "memory_total_bytes", "memory_used_bytes", "memory_peak_bytes", "busy_ns", "switched_ns"]
    {
        assert!(!report["gpus"][0][key].is_null(), "{key}");
    }
    assert!(report["processes"].is_array());
    assert!(fixture.stdout(["sim", "report"]).contains("24 GiB"));
    let shown =
        fixture.output(["run", "--sim", "--gpu", "1", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]);
    assert_eq!(shown.stdout, b"1\n");
}

#[test]
fn a_machine_that_cannot_be_is_wrong_use() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.machine()).unwrap();
    fs::write(fixture.machine().join("machine.toml"), "queue_depth = \"many\"").unwrap();
    refused(&fixture, &["run", "--sim", "--", "true"], 64, "machine.toml");
    refused(&fixture, &["smi"], 64, "machine.toml");
}

#[test]
fn a_runtime_directory_that_cannot_be_used_is_named() {
    let fixture = Fixture::new();
    let run = |place: &Path, status: i32, words: &str| {
        let mut command = fixture.tenant(&["--memory", "1GiB"], "true");
        let output = command.env("XDG_RUNTIME_DIR", place).output().unwrap();
        is_refusal(&output, status, words);
        is_refusal(&output, status, place.to_str().unwrap());
    };
    for place in ["/proc/no-such-place", "/dev/null"] {
        run(Path::new(place), 1, place);
    }
    for (options, status, says) in [("size=64k", 69, "space"), ("ro", 1, "ead-only")] {
        let Some(disk) = Tmpfs::new(options) else { return };
        run(disk.path(), status, says);
    }
}

/// `vcuda run` of this user, started by another program.
fn run_by(fixture: &Fixture, starter: &[&str]) -> Output {
    let run = fixture.vcuda(["run", "--sim", "--memory", "1GiB", "--", "true"]);
    let mut command = Command::new(starter[0]);
    command.args(&starter[1..]).arg(run.get_program()).args(run.get_args());
    for (name, value) in run.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.output().unwrap()
}

#[test]
fn few_open_files_and_a_missing_proc_are_named() {
    let fixture = Fixture::new();
    let mut cases = vec![
        (vec!["prlimit", "--nofile=8:8"], Some("`ulimit -n` allows 8 open files, and 12 are needed")),
        (vec!["prlimit", "--nofile=16:16"], Some("`ulimit -n` allows 16")),
        (vec!["prlimit", "--nofile=32:32"], None),
    ];
    let apart = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "sh"];
    match run_by(&fixture, &["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /proc"]).status.success()
    {
        true => cases.push((apart.to_vec(), Some("/proc"))),
        false => skip("misuse: unshare --mount does not work here"),
    }
    for (starter, words) in cases {
        let output = run_by(&fixture, &starter);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), words.is_none(), "{starter:?}: {output:?}");
        assert_eq!(stderr.lines().count(), words.iter().count(), "{starter:?}: {stderr}");
        assert!(stderr.contains(words.unwrap_or_default()), "{starter:?}: {stderr}");
    }
}

/// A folder with only `vcuda`.
fn bare_installation() -> TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::copy(release_dir().join("vcuda"), folder.path().join("vcuda")).unwrap();
    folder
}

#[test]
fn missing_parts_are_named() {
    let fixture = Fixture::new();
    let folder = bare_installation();
    let vcuda = folder.path().join("vcuda");
    for (arguments, missing) in [
        (["run", "--sim", "--", "true"].as_slice(), "libvcuda_shim.so"),
        (["demo", "--sim"].as_slice(), "vcuda-bench"),
        (["bench", "--sim"].as_slice(), "vcuda-bench"),
    ] {
        let mut command = Command::new(&vcuda);
        command.args(arguments).env("XDG_RUNTIME_DIR", fixture.runtime());
        let output = command.env_remove("VCUDA_DIR").output().unwrap();
        assert_eq!(output.status.code(), Some(69), "{output:?}");
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        let beginning = format!("vcuda: {missing} is not beside {}", vcuda.display());
        assert!(words.starts_with(&beginning) && words.contains("cargo build"), "{words}");
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
    // Impossible arguments are refused first.
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
fn where_there_is_no_gpu_a_users_own_manager_says_so() {
    let fixture = Fixture::new();
    let said = |args: &[&str]| {
        let mut command = fixture.vcuda(args);
        command
            .env_remove("VCUDA_SIM")
            .env_remove("VCUDA_MANAGER")
            .env("VCUDA_MANAGER_NVML", "/nonexistent/libnvidia-ml.so.1");
        text(&command.output().unwrap())
    };
    let refused = said(&["grant", "create", "web", "--memory", "1GiB"]);
    assert!(refused.contains("no GPU can be given now: NVML (/nonexistent/libnvidia-ml.so.1)"), "{refused}");
    let refused = said(&["gpu", "cordon", "0"]);
    assert!(refused.contains("GPU 0: the node has no such GPU; there is none\n"), "{refused}");
}
