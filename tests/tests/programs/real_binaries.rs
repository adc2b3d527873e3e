//! NVIDIA's own binaries and tools that read NVML, unmodified: each release of the driver's libraries in Debian, the CUDA
//! runtimes 11, 12 and 13, `nvidia-smi`, nvtop. `scripts/fetch-binaries.sh` and `scripts/fetch-clients.sh` fetch them;
//! missing ones are skipped with a reason. No GPU is needed. gpustat and nvitop are in `clients.rs`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use vcuda_tests::{Door, Fixture, GIB, MIB, Running, app, skip, succeeded, text, workspace};

/// Driver releases of Debian 11, 12, 13 and experimental.
const RELEASES: [&str; 4] = ["470", "535", "550", "555"];
const SHIM: &str = "libvcuda_shim.so";

/// Folder of fetched files, if it is complete.
fn fetched(name: &str) -> Option<PathBuf> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    let folder = target.join("binaries").join(name);
    if folder.join(".complete").exists() {
        return Some(folder);
    }
    skip(&format!(
        "{name}: not in target/binaries (scripts/fetch-binaries.sh fetches it where Debian's non-free packages answer)"
    ));
    None
}

/// Folders of the real drivers' libraries.
fn drivers() -> BTreeMap<&'static str, PathBuf> {
    let libraries = |release: &&'static str| {
        let folder = fetched(&format!("driver-{release}"))?;
        Some((*release, folder.join("usr/lib/x86_64-linux-gnu/nvidia/current")))
    };
    RELEASES.iter().filter_map(libraries).collect()
}

/// A command with this driver's libraries, without the shim.
fn bare(fixture: &Fixture, libraries: &Path, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    fixture.environment(&mut command);
    command.env_remove("VCUDA_SIM").env("LD_LIBRARY_PATH", libraries);
    command
}

/// The same as a tenant of 1 GiB: the quota needs a GPU, here the simulated one; the program's driver is the real one.
fn tenant(fixture: &Fixture, libraries: &Path, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = fixture.tenant(&["--memory", "1GiB"], "env");
    command.arg(format!("LD_LIBRARY_PATH={}", libraries.display())).arg(program);
    command
}

fn stderr_figure(output: &Output, name: &str) -> u64 {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let row = errors.lines().find_map(|line| line.strip_prefix(name));
    row.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or_else(|| panic!("no {name} in {errors}"))
}

#[test]
fn every_look_up_is_answered_as_by_the_driver_alone() {
    let lookups = app("hardware/lookups", Door::Dlsym);
    for (release, libraries) in drivers() {
        let fixture = Fixture::new();
        let alone = succeeded(&bare(&fixture, &libraries, &lookups).output().unwrap());
        let output = tenant(&fixture, &libraries, &lookups).arg(SHIM).output().unwrap();
        let as_tenant = succeeded(&output);
        assert!(stderr_figure(&output, "look_ups") > 50_000, "{release}");
        assert!(stderr_figure(&output, "hooked_answers") > 5_000, "{release}");
        let mut pairs = alone.lines().zip(as_tenant.lines());
        assert_eq!(pairs.find(|(bare, tenant)| bare != tenant), None, "{release}");
        assert_eq!(alone.lines().count(), as_tenant.lines().count(), "{release}");
    }
}

/// Answers by "NAME FLAGS" at each version that `lookups` requested, up to CUDA 12.4, which is driver 550's own.
fn answers(lookups: &str) -> BTreeMap<String, Vec<(u32, String)>> {
    let mut table = BTreeMap::new();
    for line in lookups.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        // Flags 3 are no documented value.
        if words[0] == "dlsym" || words[1] == "3" {
            continue;
        }
        let ranges = words[2..].iter().map(|word| {
            let (range, answer) = word.split_once(':').unwrap();
            let from: u32 = range.split_once('-').unwrap().0.parse().unwrap();
            (from, answer.to_owned())
        });
        table.insert(
            format!("{} {}", words[0], words[1]),
            ranges.filter(|(from, _)| *from <= 12_040).collect(),
        );
    }
    table
}

#[test]
fn the_simulated_driver_routes_as_the_550_does() {
    let Some(libraries) = drivers().remove("550") else {
        return;
    };
    let lookups = app("hardware/lookups", Door::Dlsym);
    let fixture = Fixture::new();
    let real = answers(&succeeded(&bare(&fixture, &libraries, &lookups).output().unwrap()));
    let simulated = answers(&succeeded(&fixture.bare(&lookups).output().unwrap()));
    let mut compared = 0;
    for (question, answer) in &real {
        let Some(ours) = simulated.get(question) else {
            continue;
        };
        assert_eq!(answer, ours, "{question}");
        compared += 1;
    }
    assert!(compared > 1500, "only {compared} names and flags are known to both");
}

#[test]
fn the_real_runtimes_end_alike_without_a_gpu() {
    let runtimes = workspace().join("target/clients/cudart");
    let script = workspace().join("tests/clients/cudart_without_gpu.py");
    let Some(libraries) = drivers().remove("550") else {
        return;
    };
    for version in ["11.0", "12", "13"] {
        let runtime = runtimes.join(format!("libcudart.so.{version}"));
        if !runtime.exists() {
            skip(&format!("libcudart {version}: not in target/clients/cudart (scripts/fetch-clients.sh)"));
            continue;
        }
        let fixture = Fixture::new();
        let [alone, as_tenant] =
            [bare(&fixture, &libraries, "python3"), tenant(&fixture, &libraries, "python3")]
                .map(|mut command| succeeded(&command.arg(&script).arg(&runtime).output().unwrap()));
        assert!(alone.lines().count() > 10, "{alone}");
        assert_eq!(alone, as_tenant, "{version}");
    }
}

/// A tenant of 4 GiB beside another one, as shown by `nvidia-smi` of each release on the simulated NVML.
#[test]
fn nvidia_smi_shows_the_quota_and_nothing_else_changes() {
    for release in RELEASES {
        let Some(folder) = fetched(&format!("driver-{release}")) else {
            continue;
        };
        let smi = folder.join("usr/lib/nvidia/current/nvidia-smi");
        let fixture = Fixture::new();
        let mut neighbour = Running::start(
            fixture.tenant(&["--memory", "8GiB"], app("hold", Door::Dlsym)).arg((600 * MIB).to_string()),
        );
        neighbour.wait_for("holding");
        let ask = |arguments: &[&str]| {
            [fixture.bare(&smi), fixture.tenant(&["--memory", "4GiB"], &smi)].map(|mut command| {
                let output = command.args(arguments).output().unwrap();
                (output.status.code(), succeeded(&output))
            })
        };
        let query = ["--query-gpu=memory.total", "--format=csv,noheader"];
        let [alone, as_tenant] = ask(&query);
        assert_eq!(alone, (Some(0), "81920 MiB\n".to_owned()), "{release}");
        assert_eq!(as_tenant, (Some(0), "4096 MiB\n".to_owned()), "{release}");
        for same in
            [&["-L"][..], &["--query-gpu=name,uuid,driver_version,pci.bus_id,compute_mode", "--format=csv"]]
        {
            let [alone, as_tenant] = ask(same);
            assert_eq!(alone, as_tenant, "{release} {same:?}");
        }
        let [(_, alone), (_, as_tenant)] = ask(&[]);
        assert!(as_tenant.contains("/   4096MiB") || as_tenant.contains("/  4096MiB"), "{as_tenant}");
        assert_eq!(alone.lines().count(), as_tenant.lines().count(), "{alone}{as_tenant}");
        // Processes come from tables that the shim does not see: never more than without it.
        let pid = format!(" {} ", neighbour.0.id());
        assert!(alone.contains(&pid) || !as_tenant.contains(&pid), "{as_tenant}");
    }
}

#[test]
fn nvtop_shows_the_quota() {
    let Some(folder) = fetched("nvtop") else { return };
    let nvtop = folder.join("usr/bin/nvtop");
    let loads = Command::new(&nvtop).arg("--version").output().unwrap();
    if !loads.status.success() {
        skip(&format!("nvtop does not run here: {}", text(&loads)));
        return;
    }
    let fixture = Fixture::new();
    let mut neighbour = Running::start(
        fixture.tenant(&["--memory", "8GiB"], app("hold", Door::Dlsym)).arg((600 * MIB).to_string()),
    );
    neighbour.wait_for("holding");
    let script = workspace().join("tests/clients/monitors.py");
    for (mut command, limit) in
        [(fixture.bare("python3"), 80 * GIB), (fixture.tenant(&["--memory", "4GiB"], "python3"), 4 * GIB)]
    {
        command
            .arg(&script)
            .arg(limit.to_string())
            .env("MONITOR", "nvtop")
            .env("NVTOP", &nvtop)
            .env("HOME", fixture.runtime());
        if limit == 4 * GIB {
            command.arg(neighbour.0.id().to_string());
        }
        assert!(succeeded(&command.output().unwrap()).contains("passed"));
    }
}
