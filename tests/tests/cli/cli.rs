//! Contract of the command line: it becomes the command, its exit codes, its refusals.

use std::io::Write;
use std::process::{Output, Stdio};
use std::time::Duration;

use vcuda_tests::{Door, Fixture, Running, Tmpfs, app, eventually, release_dir, succeeded, text};

/// Checks that stderr has one line that contains `names`, and stdout is empty.
fn refused(output: &Output, code: i32, names: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{}", text(output));
    assert!(stderr.contains(names), "{stderr:?} does not name {names:?}");
    assert!(output.stdout.is_empty(), "{}", text(output));
}

#[test]
fn it_becomes_the_command() {
    let fixture = Fixture::new();
    let out = fixture.tenant(&[], "sh").args(["-c", "exit 7"]).output().unwrap();
    assert_eq!(out.status.code(), Some(7));
    let mut cat = fixture.tenant(&[], "cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    cat.stdin.take().unwrap().write_all(b"through").unwrap();
    assert_eq!(cat.wait_with_output().unwrap().stdout, b"through");
    // The PID is the command's own: there is no wrapper process.
    let mut sleeper = Running::start(fixture.tenant(&[], "sleep").arg("60"));
    let command_line = format!("/proc/{}/cmdline", sleeper.0.id());
    eventually("the process runs the command", Duration::from_secs(60), || {
        std::fs::read(&command_line).unwrap() == b"sleep\x0060\0"
    });
    sleeper.signal(libc::SIGTERM);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&sleeper.finish()), Some(libc::SIGTERM));
}

#[test]
fn wrong_use_is_64_and_names_the_value() {
    let fixture = Fixture::new();
    let run = |args: &[&str]| {
        let mut command = fixture.vcuda(["run", "--sim"]);
        command.args(args).args(["--", "true"]).output().unwrap()
    };
    refused(&run(&["--memory", "12Q"]), 64, "12Q");
    refused(&run(&["--memory", "-1"]), 64, "-1");
    refused(&run(&["--memory", "-1GiB"]), 64, "less than nothing; write for example 4Gi");
    refused(&run(&["--memory", "4096"]), 64, "for example 4096MiB");
    refused(&run(&["--memory", "0"]), 64, "0");
    refused(&run(&["--memory", "99999999999999999999Gi"]), 64, "99999999999999999999Gi");
    refused(&run(&["--memory", "81GiB"]), 64, "80");
    refused(&run(&["--cores", "101"]), 64, "101");
    refused(&run(&["--cores", "x"]), 64, "x");
    refused(&run(&["--gpu", "GPU-nonsense"]), 64, "GPU-nonsense");
    refused(&run(&["--gpu", "7"]), 64, "7");
    refused(&run(&["--name", "../../etc"]), 64, "../../etc");
    refused(&run(&["--name", ""]), 64, "name");
    refused(&run(&["--policy", "greedy"]), 64, "greedy");
    let none = fixture.vcuda(["run", "--sim"]).output().unwrap();
    assert_eq!(none.status.code(), Some(64), "{}", text(&none));
    let mut unknown = fixture.vcuda(["set", "unknown", "--memory", "1GiB"]);
    refused(&unknown.output().unwrap(), 64, "unknown");
    refused(&fixture.vcuda(["frobnicate"]).output().unwrap(), 64, "frobnicate");
}

#[test]
fn a_command_that_cannot_be_run_is_126_or_127() {
    let fixture = Fixture::new();
    refused(&fixture.tenant(&[], "no-such-command-here").output().unwrap(), 127, "no-such-command-here");
    let dir = fixture.runtime().join("a-file");
    std::fs::write(&dir, "not a program").unwrap();
    refused(&fixture.tenant(&[], &dir).output().unwrap(), 126, "a-file");
}

#[test]
fn without_a_gpu_it_says_what_to_do() {
    let fixture = Fixture::new();
    let out = fixture.vcuda(["run", "--memory", "1GiB", "--", "true"]).output().unwrap();
    if out.status.success() {
        vcuda_tests::skip("without_a_gpu_it_says_what_to_do: this machine has a GPU");
        return;
    }
    refused(&out, 64, "--sim");
    let _manager = fixture.manager();
    let create = ["grant", "create", "web", "--memory", "1GiB"];
    succeeded(&fixture.vcuda(create).output().unwrap());
    let granted = fixture.vcuda(["run", "--grant", "web", "--", "true"]).output();
    assert_eq!(text(&granted.unwrap()), text(&out));
}

#[test]
fn help_begins_with_examples_and_json_is_json() {
    let fixture = Fixture::new();
    for sub in ["run", "sim", "smi", "set", "doctor", "demo", "bench"] {
        let help = succeeded(&fixture.vcuda([sub, "--help"]).output().unwrap());
        assert!(help.lines().take(6).any(|l| l.to_lowercase().contains("example")), "{sub}: {help}");
    }
    let report = fixture.report();
    let gpu = &report["gpus"][0];
    for key in
        ["uuid", "memory_total_bytes", "memory_used_bytes", "memory_peak_bytes", "busy_ns", "switched_ns"]
    {
        assert!(!gpu[key].is_null(), "{key} in {gpu}");
    }
    assert_eq!(gpu["memory_total_bytes"], 80 * vcuda_tests::GIB);
}

#[test]
fn a_full_or_unwritable_runtime_directory_is_refused() {
    let fixture = Fixture::new();
    let mut command = fixture.tenant(&["--memory", "1GiB"], "true");
    refused(
        &command.env("XDG_RUNTIME_DIR", "/proc/no-such-place").output().unwrap(),
        1,
        "/proc/no-such-place",
    );
    let output =
        fixture.tenant(&["--memory", "1GiB"], "true").env("XDG_RUNTIME_DIR", "/dev/full").output().unwrap();
    assert!(!output.status.success());
}

#[test]
fn dead_directories_are_removed_by_the_next_command() {
    let fixture = Fixture::new();
    succeeded(&fixture.tenant(&["--memory", "1GiB", "--name", "gone"], "true").output().unwrap());
    let containers = fixture.runtime().join("vcuda/containers");
    succeeded(&fixture.tenant(&["--memory", "1GiB", "--name", "next"], "true").output().unwrap());
    assert!(!containers.join("gone").exists());
    assert!(fixture.smi()["gpus"][0]["tenants"].as_array().unwrap().is_empty());
}

#[test]
fn damaged_limits_give_no_memory() {
    let hold = app("hold", Door::Dlsym);
    type Damage = fn(&std::path::Path);
    let damages: [(&str, Damage); 4] = [
        ("truncated", |p| std::fs::File::options().write(true).open(p).unwrap().set_len(100).unwrap()),
        ("missing", |p| std::fs::remove_file(p).unwrap()),
        ("zeroed", |p| {
            let size = usize::try_from(std::fs::metadata(p).unwrap().len()).unwrap();
            std::fs::write(p, vec![0; size]).unwrap();
        }),
        ("of another version", |p| {
            let mut bytes = std::fs::read(p).unwrap();
            bytes[8..16].fill(0xee);
            std::fs::write(p, bytes).unwrap();
        }),
    ];
    for (what, damage) in damages {
        let fixture = Fixture::new();
        // The shell is the tenant; the program under it starts after the damage.
        let mut shell = fixture.tenant(&["--memory", "4GiB", "--name", "hurt"], "sh");
        shell.args(["-c", "read line; exec \"$0\" 1048576"]).arg(&hold).stdin(Stdio::piped());
        let mut tenant = Running::start(&mut shell);
        let limits = fixture.runtime().join("vcuda/containers/hurt/limits");
        eventually("the directory is there", Duration::from_secs(5), || limits.exists());
        damage(&limits);
        tenant.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
        // A context needs memory too, so the program does not get as far as its own allocations.
        assert!(!tenant.finish().success(), "{what}");
        assert_eq!(fixture.report()["gpus"][0]["memory_peak_bytes"], 0, "{what}");
    }
}

#[test]
fn the_doctor_tries_a_command_as_a_tenant() {
    let fixture = Fixture::new();
    let output = fixture.vcuda(["doctor", "--sim", "--", "true"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("limit seen by CUDA") && !said.contains("probe"), "{said}");
}

#[test]
fn the_environment_only_lowers() {
    let fixture = Fixture::new();
    let hold = app("hold", Door::Dlsym);
    let mut low = Running::start(
        fixture
            .tenant(&["--memory", "4GiB"], "env")
            .arg("VCUDA_MEMORY=1GiB")
            .arg(&hold)
            .arg((vcuda_tests::GIB).to_string()),
    );
    assert_eq!(low.wait_for("holding"), "holding 0 denied 1");
    let mut high = Running::start(
        fixture
            .tenant(&["--memory", "1GiB"], "env")
            .arg("VCUDA_MEMORY=8GiB")
            .arg(&hold)
            .arg((2 * vcuda_tests::GIB).to_string()),
    );
    assert_eq!(high.wait_for("holding"), "holding 0 denied 1");
}

#[test]
fn the_libraries_are_found_beside_the_executable() {
    for name in ["vcuda", "libvcuda_shim.so", "libvcuda_simulator_cuda.so", "libvcuda_simulator_nvml.so"] {
        assert!(release_dir().join(name).exists(), "{name}");
    }
}

#[test]
fn a_full_and_a_read_only_disk_are_refused_with_one_line() {
    let fixture = Fixture::new();
    for (options, says) in [("size=64k", "space"), ("ro", "ead-only")] {
        let Some(disk) = Tmpfs::new(options) else { return };
        let mut command = fixture.tenant(&["--memory", "1GiB"], "true");
        let output = command.env("XDG_RUNTIME_DIR", disk.path()).output().unwrap();
        refused(&output, 1, says);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(&*disk.path().to_string_lossy()), "{stderr}");
        assert_eq!(stderr.trim().lines().count(), 1, "{stderr}");
    }
}
