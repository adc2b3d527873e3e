//! The manager's inventory on the simulated NVML: errors, lost GPUs, a driver that is unloaded and loaded, processes.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;
use vcuda_machine::{Config, Faults, GpuConfig, Machine, Xid};
use vcuda_tests::{GIB, Running, release_dir};

/// A machine of two GPUs, and the inventory's process on it.
struct Watched {
    place: TempDir,
    machine: Machine,
    inventory: Running,
}

fn config() -> Config {
    Config {
        nvlinks: vec![(0, 1)],
        gpus: vec![GpuConfig { memory_bytes: 8 * GIB, numa_node: 1, ..GpuConfig::default() }; 2],
        ..Config::default()
    }
}

fn inventory(machine: &Path, library: &Path, reopen_ms: &str) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_inventory"));
    command
        .args([library.as_os_str(), reopen_ms.as_ref()])
        .arg(machine.with_file_name("state"))
        .env("VCUDA_SIM", machine)
        .stdin(Stdio::piped());
    Running::start(&mut command)
}

impl Watched {
    fn new() -> Self {
        Self::reopened_each("60000")
    }

    fn reopened_each(reopen_ms: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let machine = Machine::create(&place.path().join("machine"), &config()).unwrap();
        let library = release_dir().join("libvcuda_simulator_nvml.so");
        let inventory = inventory(&place.path().join("machine"), &library, reopen_ms);
        Self { place, machine, inventory }
    }

    /// Kills its process, and starts another.
    fn starts_again(&mut self) {
        self.inventory.kill();
        let library = release_dir().join("libvcuda_simulator_nvml.so");
        self.inventory = inventory(&self.place.path().join("machine"), &library, "60000");
    }

    fn uuid(&self, gpu: usize) -> String {
        self.machine.config().gpus[gpu].uuid.clone()
    }

    fn happens(&self, faults: &Faults) {
        faults.write(&self.place.path().join("machine")).unwrap();
    }

    /// Waits for the next state that contains this text.
    fn state(&mut self, part: &str) -> String {
        self.inventory.wait_for_line(&format!("a state with {part:?}"), |line| {
            line.starts_with("state ") && line.contains(part)
        })
    }

    fn both(&self, first: &str, second: &str) -> String {
        format!("[{} {first}, {} {second}]", self.uuid(0), self.uuid(1))
    }

    fn ask(&mut self, gpu: &str) -> String {
        let stdin = self.inventory.0.stdin.as_mut().unwrap();
        writeln!(stdin, "{gpu}").unwrap();
        self.inventory.wait_for("processes ")
    }
}

fn xids(gpu: &str, numbers: &[u64]) -> Vec<Xid> {
    let raised = |number: &u64| Xid { gpu: gpu.to_owned(), xid: *number };
    numbers.iter().map(raised).collect()
}

#[test]
fn what_nvml_knows_is_shown() {
    let mut watched = Watched::new();
    watched.state(&watched.both("healthy", "healthy"));
    let facts = watched.inventory.wait_for("facts ");
    for part in [
        "memory_total_bytes: 8589934592",
        "multiprocessors: Some(132)",
        "compute_capability: Some((9, 0))",
        "numa_node: Some(1)",
        "pci_bus_id: \"0000:17:00.0\"",
        &format!("nvlinks: [{}]", watched.uuid(1)),
        "driver 580.95.05",
    ] {
        assert!(facts.contains(part), "{part}: {facts}");
    }
}

#[test]
fn processes_are_told_with_their_bytes() {
    let mut watched = Watched::new();
    watched.state(&watched.both("healthy", "healthy"));
    let client = watched.machine.attach(4711, "tenant").unwrap();
    client.context_create(0).unwrap();
    client.take(0, GIB).unwrap();
    let held = watched.machine.config().context_bytes + GIB;
    let (first, second) = (watched.uuid(0), watched.uuid(1));
    assert_eq!(watched.ask(&first), format!("processes Ok([(4711, Some({held}))])"));
    assert_eq!(watched.ask(&second), "processes Ok([])");
    let unknown = "GPU-00000000-0000-0000-0000-000000000000";
    assert_eq!(watched.ask(unknown), format!("processes Err(NoGpu({unknown}))"));
    watched.happens(&Faults { lost: vec![first.clone()], ..Faults::default() });
    assert!(watched.ask(&first).starts_with("processes Err("));
}

#[test]
fn an_applications_error_is_counted_and_another_makes_a_gpu_unhealthy() {
    let mut watched = Watched::new();
    watched.state(&watched.both("healthy", "healthy"));
    let second = watched.uuid(1);
    watched.happens(&Faults { xids: xids(&second, &[31]), ..Faults::default() });
    let state = watched.state("xids [1 of 31]");
    assert!(state.contains(&watched.both("healthy", "healthy")), "{state}");
    watched.happens(&Faults { xids: xids(&second, &[31, 94]), ..Faults::default() });
    let told = watched.inventory.wait_for("event VcudaGpuUnhealthy");
    assert!(told.contains(&second) && told.contains("XID 94"), "{told}");
    // It continues to answer.
    watched.inventory.wait_for("event VcudaGpuRecovered");
    watched.state(&format!("{} xids [1 of 31, 1 of 94]", watched.both("healthy", "healthy")));
}

#[test]
fn gpus_that_vanish_and_appear_are_followed() {
    let mut watched = Watched::reopened_each("500");
    watched.state(&watched.both("healthy", "healthy"));
    watched.happens(&Faults { absent: vec![watched.uuid(0)], ..Faults::default() });
    let told = watched.inventory.wait_for("event VcudaGpuVanished");
    assert!(told.contains(&watched.uuid(0)), "{told}");
    watched.state(&watched.both("unhealthy: NVML does not list it any more", "healthy"));
    watched.happens(&Faults { mig: vec![watched.uuid(1)], ..Faults::default() });
    // The first GPU is back (a similar event within 30 s is not reported again), the other one is in MIG mode.
    watched.state(&watched.both(
        "healthy",
        "unhealthy: it is in MIG mode: its instances are isolated by the hardware and are not shared",
    ));
}

#[test]
fn a_library_that_is_not_there_is_waited_for() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("machine");
    Machine::create(&dir, &config()).unwrap();
    let library = place.path().join("libnvidia-ml.so.1");
    let mut inventory = inventory(&dir, &library, "60000");
    let told = inventory.wait_for("event VcudaNvmlFailed");
    assert!(told.contains("libnvidia-ml.so.1") && told.contains("nvml_library"), "{told}");
    std::os::unix::fs::symlink(release_dir().join("libvcuda_simulator_nvml.so"), &library).unwrap();
    inventory.wait_for("event VcudaGpuAppeared");
}

#[test]
fn the_health_of_a_gpu_outlives_the_manager() {
    let mut watched = Watched::new();
    watched.state(&watched.both("healthy", "healthy"));
    let (first, second) = (watched.uuid(0), watched.uuid(1));
    // One by one, as NVML returns the last number for all of them.
    let mut errors = xids(&first, &[48]);
    let happens = |watched: &Watched, errors: &[Xid]| {
        watched.happens(&Faults { xids: errors.to_vec(), ..Faults::default() });
    };
    happens(&watched, &errors);
    watched.state(&watched.both("unhealthy: XID 48", "healthy"));
    for _ in 0..2 {
        errors.extend(xids(&second, &[94]));
        happens(&watched, &errors);
        watched.state(&watched.both("unhealthy: XID 48", "unhealthy: XID 94"));
        // Both are as before, though the errors are not repeated; non-fatal trouble ends with clean looks.
        watched.starts_again();
        watched.state(&watched.both("unhealthy: XID 48", "unhealthy: XID 94"));
        watched.state(&watched.both("unhealthy: XID 48", "healthy"));
    }
    // A reset that no manager has seen, as the driver was changed meanwhile.
    watched.happens(&Faults {
        xids: errors,
        driver_version: Some("570.86.15".to_owned()),
        ..Faults::default()
    });
    watched.starts_again();
    watched.state(&watched.both("healthy", "healthy"));
    watched.starts_again();
    watched.state(&watched.both("healthy", "healthy"));
}

#[test]
fn an_nvml_that_hangs_is_reported_and_no_caller_waits_for_it() {
    let mut watched = Watched::new();
    watched.state(&watched.both("healthy", "healthy"));
    let hangs = Faults { hangs: true, ..Faults::default() };
    watched.happens(&hangs);
    let told = watched.inventory.wait_for("event VcudaNvmlFailed");
    assert!(told.contains("NVML has not answered for 2 s"), "{told}");
    let why = "unhealthy: NVML has not answered for 2 s: a GPU or its driver hangs";
    watched.state(&watched.both(why, why));
    let first = watched.uuid(0);
    assert_eq!(watched.ask(&first), "processes Err(Late)");
    watched.happens(&Faults::default());
    watched.inventory.wait_for("event VcudaNvmlRecovered");
    watched.state(&watched.both("healthy", "healthy"));
    assert_eq!(watched.ask(&first), "processes Ok([])");
}
