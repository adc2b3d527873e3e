//! Unmodified clients from PyPI, without shim and as a tenant of 2 GiB: each gets its normal out-of-memory error and
//! continues. `scripts/test.sh` installs them into `target/clients`; missing ones are skipped with a reason.

use std::path::{Path, PathBuf};
use std::process::Command;

use vcuda_tests::table::row_names;
use vcuda_tests::{Door, Fixture, GIB, MIB, Running, app, release_dir, skip, succeeded, workspace};

/// Interpreter of the clients' environment, if this package is installed there.
fn python(package: &str) -> Option<PathBuf> {
    let python = workspace().join("target/clients/bin/python");
    let found = Command::new(&python).args(["-c", &format!("import {package}")]).output();
    if found.is_ok_and(|o| o.status.success()) {
        return Some(python);
    }
    skip(&format!(
        "{package}: not installed in target/clients (scripts/fetch-clients.sh does where PyPI answers; \
         VCUDA_TEST_LARGE=1 adds numba-cuda)"
    ));
    None
}

fn both_ways(package: &str, script: &str, env: &[(&str, &str)]) {
    let Some(python) = python(package) else { return };
    let script = workspace().join("tests/clients").join(script);
    let fixture = Fixture::new();
    let libraries = nvrtc_folder(&python);
    let mut bare = fixture.bare(&python);
    let mut tenant = fixture.tenant(&["--memory", "2GiB"], &python);
    for command in [&mut bare, &mut tenant] {
        command
            .arg(&script)
            .envs(env.iter().copied())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("HOME", fixture.runtime());
        if let Some(folder) = &libraries {
            command.env("LD_LIBRARY_PATH", folder);
        }
    }
    assert!(succeeded(&bare.output().unwrap()).contains("passed"));
    assert!(succeeded(&tenant.arg((2 * GIB).to_string()).output().unwrap()).contains("passed"));
}

/// Folder of pip's NVRTC, for clients that look it up by name.
fn nvrtc_folder(python: &Path) -> Option<PathBuf> {
    let code = "import nvidia.cuda_nvrtc as n; print(list(n.__path__)[0] + '/lib')";
    let out = Command::new(python).args(["-c", code]).output().ok()?;
    out.status.success().then(|| PathBuf::from(String::from_utf8_lossy(&out.stdout).trim()))
}

vcuda_tests::rows! {
    cuda_bindings: both_ways("cuda.bindings.driver", "bindings.py", &[]),
    cuda_core: both_ways("cuda.core", "core.py", &[]),
    tinygrad: both_ways("tinygrad", "tiny.py", &[("DEV", "CUDA")]),
    nvidia_ml_py: both_ways("pynvml", "nvml.py", &[]),
    numba_cuda: both_ways("numba.cuda", "numba_jit.py", &[]),
    gpustat: monitor("gpustat"),
    nvitop: monitor("nvitop"),
}

/// Runs a monitor beside another tenant, which only the run without the shim may list.
fn monitor(package: &str) {
    let Some(python) = python(package) else { return };
    let script = workspace().join("tests/clients/monitors.py");
    let fixture = Fixture::new();
    let mut neighbour = Running::start(
        fixture.tenant(&["--memory", "8GiB"], app("hold", Door::Dlsym)).arg((600 * MIB).to_string()),
    );
    neighbour.wait_for("holding");
    let mut bare = fixture.bare(&python);
    let mut tenant = fixture.tenant(&["--memory", "2GiB"], &python);
    bare.arg(&script).arg((80 * GIB).to_string());
    tenant.arg(&script).args([(2 * GIB).to_string(), neighbour.0.id().to_string()]);
    for mut command in [bare, tenant] {
        command.env("MONITOR", package).env("PYTHONDONTWRITEBYTECODE", "1").env("HOME", fixture.runtime());
        assert!(succeeded(&command.output().unwrap()).contains("passed"));
    }
}

#[test]
fn the_real_runtimes_resolve_only_hooks() {
    let runtimes = workspace().join("target/clients/cudart");
    let libraries: Vec<PathBuf> = std::fs::read_dir(&runtimes)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("libcudart.so.")))
        .collect();
    if libraries.is_empty() {
        skip(
            "libcudart 11, 12 and 13: not in target/clients/cudart (scripts/test.sh downloads them where PyPI answers)",
        );
    }
    for library in libraries {
        let fixture = Fixture::new();
        let mut command = fixture.tenant(&["--memory", "2GiB"], "python3");
        command.arg(workspace().join("tests/clients/cudart.py")).arg(&library).arg("libvcuda_shim.so");
        assert!(succeeded(&command.output().unwrap()).contains("passed"));
    }
}

/// UCX changes the first instructions of the driver's functions.
#[test]
fn ucx_puts_its_functions_before_the_drivers() {
    let Some(python) = python("libucx") else { return };
    let code = "import libucx, os; print(os.path.join(os.path.dirname(libucx.__file__), 'lib'))";
    let ucx = succeeded(&Command::new(&python).args(["-c", code]).output().unwrap());
    let fixture = Fixture::new();
    let script = workspace().join("tests/clients/ucx.py");
    let cuda: Vec<String> = row_names().into_iter().filter(|name| name.starts_with("cu")).collect();
    let mut bare = fixture.bare(&python);
    let mut tenant = fixture.tenant(&["--memory", "2GiB", "--cores", "50"], &python);
    for (command, library) in [(&mut bare, "libcuda.so.1"), (&mut tenant, "libvcuda_shim.so")] {
        if library == "libvcuda_shim.so" && release_dir().ends_with("quick") {
            skip("ucx: the shim is a dev build, whose functions begin as a debugger needs it");
            return;
        }
        command.arg(&script).arg(ucx.trim()).arg(library).args(&cuda);
        assert!(succeeded(&command.output().unwrap()).contains("passed"));
    }
}
