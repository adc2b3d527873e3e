//! Tests of `vcuda run` and of the tenants that it makes.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use vcuda_tests::release_dir;

use crate::user::User;

#[test]
fn run_becomes_the_command() {
    let user = User::new();
    let shell = |script: &str| user.output(&["run", "--sim", "--memory", "1Gi", "--", "sh", "-c", script]);
    assert_eq!(shell("exit 7").status.code(), Some(7));
    let mut command = user.vcuda(&["run", "--sim", "--", "sh", "-c", "echo $$"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let pid = child.id().to_string();
    assert_eq!(String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap().trim(), pid);

    let mut command = user.vcuda(&["run", "--sim", "--name", "named", "--gpu", "0", "--", "env"]);
    let output = command
        .env("LD_PRELOAD", "libof-the-user.so")
        .env("LD_LIBRARY_PATH", "/of/the/user")
        .output()
        .unwrap();
    let variables = String::from_utf8(output.stdout).unwrap();
    let value = |name: &str| {
        let line = variables.lines().find(|line| line.starts_with(&format!("{name}=")));
        line.unwrap_or_else(|| panic!("no {name} in {variables}")).split_once('=').unwrap().1.to_owned()
    };
    let shim = release_dir().join("libvcuda_shim.so");
    assert_eq!(value("LD_PRELOAD"), format!("libof-the-user.so:{}", shim.display()));
    assert_eq!(Path::new(&value("VCUDA_DIR")), user.containers().join("named"));
    assert_eq!(Path::new(&value("VCUDA_SIM")), user.machine());
    let search = value("LD_LIBRARY_PATH");
    let [front, links, rest] = search.split(':').collect::<Vec<_>>()[..] else {
        panic!("{search}");
    };
    assert_eq!(rest, "/of/the/user");
    assert!(Path::new(front).join("libcuda.so.1").is_file());
    for (name, library) in
        [("libcuda.so.1", "libvcuda_simulator_cuda.so"), ("libnvidia-ml.so.1", "libvcuda_simulator_nvml.so")]
    {
        assert_eq!(fs::read_link(Path::new(links).join(name)).unwrap(), release_dir().join(library));
    }
    assert_eq!(value("CUDA_VISIBLE_DEVICES"), "0");
    assert_eq!(value("CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
}

#[test]
fn visible_devices_are_left_alone_without_the_option() {
    let user = User::new();
    let mut command = user.vcuda(&["run", "--sim", "--", "sh", "-c", "echo \"<$CUDA_VISIBLE_DEVICES>\""]);
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
    let vcuda = release_dir().join("vcuda");
    let inner = format!("{} run --sim --memory 2Gi -- true", vcuda.display());
    let output = user.output(&["run", "--sim", "--memory", "1Gi", "--", "sh", "-c", &inner]);
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("already a tenant"), "{output:?}");
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
    user.refused(&join(&["--memory", "3Gi"]), 64, "--name jobs: it runs already with --memory 2 GiB");
    user.refused(&join(&["--cores", "40"]), 64, "--cores 30 %");
    user.refused(&join(&["--policy", "burst"]), 64, "--policy fixed");
    user.refused(&join(&["--weight", "2"]), 64, "--weight 300");
    user.refused(&join(&["--priority", "high"]), 64, "--priority normal");
    assert!(user.output(&join(&["--weight", "300", "--priority", "normal"])).status.success());
    let tenants = user.json(&["smi", "--json"])["gpus"][0]["tenants"].clone();
    assert_eq!(tenants.as_array().unwrap().len(), 1);
    assert_eq!(tenants[0]["name"], "jobs");
}

#[test]
fn set_changes_a_running_tenant() {
    let user = User::new();
    let _tenant = user.sleeper(&["--memory", "2Gi", "--cores", "30"], "live");
    let told = user.stdout(&["set", "live", "--memory", "1.5GiB", "--cores", "12.5"]);
    assert_eq!(told, "live resized to 1.5 GiB, 12.5 % fixed\n");
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
    user.stdout(&["set", "live", "--cores-max", "50", "--weight", "7", "--priority", "low"]);
    let tenant = user.json(&["smi", "--json"])["gpus"][0]["tenants"][0].clone();
    assert_eq!(cores(&tenant), [125, 500, 7]);
    assert_eq!(tenant["priority"], "low");
    assert!(user.stdout(&["smi"]).contains("low priority, weight 7"));
    assert!(user.stdout(&["smi"]).contains("/ 12.5-50 %"));
    user.refused(&["set", "live", "--cores", "60"], 64, "--cores-max 50 %");
    user.refused(&["set", "live", "--policy", "fixed", "--cores-max", "50"], 64, "--policy burst");
    user.refused(&["set", "live", "--cores", "0"], 64, "--policy best-effort");
    user.stdout(&["set", "live", "--policy", "best-effort"]);
    let tenant = user.json(&["smi", "--json"])["gpus"][0]["tenants"][0].clone();
    assert_eq!(cores(&tenant), [0, 125, 7]);
    user.refused(&["set", "live", "--memory", "100Gi"], 64, "80 GiB");
    user.refused(&["set", "dead", "--memory", "1Gi"], 64, "running are: live");
    // Several at once, or none.
    let _other = user.sleeper(&["--memory", "2Gi"], "other");
    user.refused(&["set", "live", "dead", "--memory", "3Gi"], 64, "set dead");
    let told = user.stdout(&["set", "live", "other", "--memory", "3Gi"]);
    assert_eq!(told.lines().count(), 2, "{told}");
    assert!(told.ends_with("other resized to 3 GiB, no guarantee (what is left)\n"), "{told}");
}

#[test]
fn a_quota_without_a_unit_is_refused_and_a_small_one_warned_of() {
    let user = User::new();
    let run = |memory: &str, words: &str| {
        user.refused(&["run", "--sim", "--memory", memory, "--", "true"], 64, words);
    };
    run("4", "a number without a unit; write for example 4GiB");
    run("4294967296", "4294967296B for bytes");
    run("32MiB", "32 MiB is less than 64 MiB");
    let small = user.output(&["run", "--sim", "--memory", "128MiB", "--", "true"]);
    assert!(small.status.success(), "{small:?}");
    let words = String::from_utf8(small.stderr).unwrap();
    assert!(words.contains("--memory 128 MiB: a CUDA context alone"), "{words}");
    let roomy = user.output(&["run", "--sim", "--memory", "1073741824B", "--", "true"]);
    assert!(roomy.status.success(), "{roomy:?}");
    assert!(!String::from_utf8(roomy.stderr).unwrap().contains("vcuda: "));
}

#[test]
fn the_doctor_notes_more_time_than_there_is_and_no_missing_driver() {
    let user = User::new();
    let long = "a-tenant-with-a-name-of-a-pipeline-that-is-long";
    let _one = user.sleeper(&["--memory", "1Gi", "--cores", "60"], long);
    let _two = user.sleeper(&["--memory", "1Gi", "--cores", "70"], "two");
    // VCUDA_SIM is set: the simulated machine takes the place of the driver.
    let doctor = || String::from_utf8(user.output(&["doctor"]).stdout).unwrap();
    let told = doctor();
    assert!(!told.contains("NVIDIA driver"), "{told}");
    assert!(told.contains("the guarantees of its tenants add up to 130 % of its time"), "{told}");
    assert!(told.contains(&format!("tenant {long}  GPU-")), "{told}");
    // Without promises there is nothing to note.
    user.stdout(&["set", long, "two", "--policy", "best-effort"]);
    assert!(!doctor().contains("guarantees"));
}

#[test]
fn help_and_version_are_commands_too() {
    let user = User::new();
    assert_eq!(user.stdout(&["version"]), user.stdout(&["--version"]));
    assert_eq!(user.stdout(&["help", "run"]), user.stdout(&["run", "--help"]));
    user.refused(&["smo"], 64, "'smi'");
}

#[test]
fn dead_directories_are_removed_by_the_next_command() {
    let user = User::new();
    assert!(user.output(&["run", "--sim", "--name", "gone", "--", "true"]).status.success());
    assert!(user.containers().join("gone").exists());
    user.stdout(&["smi", "--json"]);
    assert!(!user.containers().join("gone").exists());
}

#[test]
fn inside_a_tenant_smi_shows_that_tenant() {
    let user = User::new();
    let _other = user.sleeper(&["--memory", "1Gi"], "other");
    let vcuda = release_dir().join("vcuda");
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
    let broken = findings.iter().filter(|finding| finding["health"] == "broken");
    let links: Vec<&str> = broken.clone().map(|finding| finding["link"].as_str().unwrap()).collect();
    assert_eq!(links, ["tenant hurt"], "{document}");
    assert!(broken.clone().next().unwrap()["remedy"].as_str().unwrap().contains("docs/operations.md"));
}
