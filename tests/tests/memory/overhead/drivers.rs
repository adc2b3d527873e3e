//! Drivers whose behaviour could make the shim miss memory, or charge it twice.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use vcuda_tests::{Commanded, Door, GIB, MIB, Running, app, eventually, release_dir, succeeded};

use crate::overhead::places::{ROUNDING, apart, assert_exact, granted, machine, on_host, used, within};

/// Allocates pieces until one is refused. Returns their number.
pub(crate) fn fill(process: &mut Commanded, piece_bytes: u64) -> u64 {
    let got = (0..1000).find(|_| process.alloc(piece_bytes) != Some(0));
    got.unwrap()
}

/// NVML lists the process with 0 bytes (drivers 535.113 to 565.57): its context still counts.
#[test]
fn a_process_that_nvml_lists_with_zero_bytes_keeps_to_its_quota() {
    for has_manager in [false, true] {
        let fixture = machine("a100-535-container", "");
        let manager = has_manager.then(|| fixture.manager());
        let command = match has_manager {
            true => granted(&fixture, "a", "2GiB").map(|room| within(&room, "obey")),
            false => apart(&fixture, "2GiB"),
        };
        let Some(mut command) = command else {
            return;
        };
        let mut process = Commanded::start(&mut command);
        assert_eq!(fill(&mut process, 256 * MIB), 6, "of 1638 MiB beside the context");
        assert!(fixture.peak_bytes(0) <= 2 * GIB);
        drop((process, manager));
    }
}

/// No further context was made, so its size is unknown: the first one's size is reserved for it, and if that does not fit,
/// the driver is not asked.
#[test]
fn a_further_context_never_takes_the_gpu_over_the_quota() {
    const QUOTA: u64 = 2 * GIB;
    const CONTEXT: u64 = 300 * MIB;
    let fixture = machine("h200-580", "context_bytes = \"300MiB\"");
    let tenant = fixture.keep("tight", &["--memory", &format!("{QUOTA}B")]);
    let mut process = Commanded::start(&mut tenant.command(app("obey", Door::Dlsym)));
    let (left, _) = process.info();
    assert_eq!(process.alloc(left - CONTEXT + 1), Some(0));
    assert_eq!(process.tell("context"), Some(vec![2]), "one byte too little is left");
    assert!(fixture.peak_bytes(0) <= QUOTA, "{} of {QUOTA}", fixture.peak_bytes(0));
    process.free();
    assert_eq!(process.alloc(left - CONTEXT), Some(0));
    assert_eq!(process.tell("context"), Some(vec![0]), "there is room for it");
    assert!(fixture.peak_bytes(0) <= QUOTA, "{} of {QUOTA}", fixture.peak_bytes(0));
}

/// No NVML tells the context's size, and a neighbour allocates meanwhile, so that it seems too large for the remaining
/// quota. The probe context made to measure it again must fit beside it.
#[test]
fn a_context_made_to_measure_never_takes_the_gpu_over_the_quota() {
    const QUOTA: u64 = 512 * MIB;
    let lines = "context_bytes = \"8MiB\"\n[driver]\ncontext_create_ns = 5_000_000";
    let fixture = machine("h200-580", lines);
    let folder = tempfile::tempdir().unwrap();
    let only = crate::overhead::without_nvml(folder.path());
    let mut neighbour = fixture.bare(app("churn", Door::Dlsym));
    let mut neighbour = Running::start(neighbour.arg("1"));
    neighbour.wait_for("started");
    for attempt in 0..10 {
        let tenant = fixture.keep(&format!("tight{attempt}"), &["--memory", &format!("{QUOTA}B")]);
        let mut command = tenant.command(app("obey", Door::Dlsym));
        // Its first context is measured while no other process allocates.
        neighbour.signal(libc::SIGSTOP);
        let mut process = Commanded::start(command.env("LD_LIBRARY_PATH", &only));
        neighbour.signal(libc::SIGCONT);
        let (left, _) = process.info();
        assert_eq!(process.alloc(left - 9 * MIB), Some(0));
        let made = process.tell("context");
        assert!(matches!(made.as_deref(), Some([0 | 2])), "{made:?}");
        let pid = u64::from(process.0.0.id());
        let report = fixture.report();
        let mut processes = report["processes"].as_array().unwrap().iter();
        let own = processes.find(|process| process["pid"] == pid && process["alive"] == true).unwrap();
        let peak = own["memory_peak_bytes"].as_u64().unwrap();
        assert!(peak <= QUOTA, "{peak} of {QUOTA} in attempt {attempt}");
    }
}

/// Whether or not NVML's figure includes managed memory, the overhead is unchanged. A pool takes whole pieces of 2 MiB.
#[test]
fn managed_memory_is_no_overhead_and_hides_none() {
    for (how, counts_managed) in [("managed", false), ("managed", true), ("pooled", false), ("pooled", true)]
    {
        let fixture = machine("h200-580", &format!("[driver]\nnvml_counts_managed = {counts_managed}"));
        let mut process = Commanded::start(&mut on_host(&fixture, "4GiB"));
        let before = used(&mut process);
        assert_eq!(process.tell(&format!("{how} 314572800")), Some(vec![0]));
        // Longer than the interval at which the shim asks NVML.
        let end = SystemTime::now() + Duration::from_millis(600);
        while SystemTime::now() < end {
            let now = used(&mut process);
            assert_eq!(now, before + 300 * MIB, "{how}, counts: {counts_managed}");
            assert_exact(&fixture, &mut process, "with managed memory");
        }
        process.free();
        eventually("it is given back", Duration::from_secs(2), || used(&mut process) == before);
    }
}

/// A primary context made by no call that the shim sees counts from its first use on.
#[test]
fn a_context_made_by_private_interfaces_is_charged_if_nvml_lists_no_process() {
    let fixture = machine("wsl2", "");
    let mut process = Commanded::start(on_host(&fixture, "2GiB").arg("private"));
    assert_exact(&fixture, &mut process, "a private context");
    drop(process);
    let mut process = Commanded::start(on_host(&fixture, "2GiB").arg("private"));
    assert_eq!(process.alloc(MIB), Some(0));
    assert_exact(&fixture, &mut process, "a private context and an array");
    fill(&mut process, 256 * MIB);
    assert!(fixture.peak_bytes(0) <= 2 * GIB);
}

/// A program that only launches is charged at its first launch, whether or not its launches are metered.
#[test]
fn a_context_made_by_private_interfaces_is_charged_at_a_launch() {
    for cores in ["50", "100"] {
        let fixture = machine("wsl2", "");
        let tenant = fixture.keep("a", &["--memory", "2GiB", "--cores", cores]);
        let mut command = tenant.command(app("obey", Door::Dlsym));
        let mut process = Commanded::start(command.arg("private"));
        assert_eq!(tenant.used_bytes(), 0);
        assert_eq!(process.tell("launch 1"), Some(vec![0]));
        let (told, given) = (tenant.used_bytes(), fixture.used_bytes());
        assert!(told.abs_diff(given) <= ROUNDING, "--cores {cores}: {told} of {given}");
    }
}

/// The driver takes 2 MiB for each block that it has begun.
#[test]
fn what_the_driver_rounds_up_is_counted() {
    for (profile, piece_bytes) in
        [("wsl2", 2 * MIB + 1), ("wsl2", 1), ("h200-580", 2 * MIB + 1), ("h200-580", 1)]
    {
        let fixture = machine(profile, "[driver]\nallocation_unit_bytes = \"2MiB\"");
        let mut process = Commanded::start(&mut on_host(&fixture, "600MiB"));
        assert!(fill(&mut process, piece_bytes) >= 20, "{profile} {piece_bytes}");
        // Memory that was rounded up before the shim knew the rounding.
        let (told, given, peak) = (used(&mut process), fixture.used_bytes(), fixture.peak_bytes(0));
        assert!(given <= told + 18 * MIB, "{profile} {piece_bytes}: {told} of {given}");
        assert!(peak <= 618 * MIB, "{profile} {piece_bytes}: {peak}");
    }
}

/// If NVML does not tell the GPU's memory, the CUDA driver does.
#[test]
fn a_gpu_whose_memory_nvml_does_not_tell_gets_quotas() {
    let fixture = machine("gb10", "");
    let manager = fixture.manager();
    let room = granted(&fixture, "a", "2GiB");
    let status = fixture.stdout(["gpu", "list", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["gpus"][0]["memory_total_bytes"], 119 * GIB, "{status}");
    if let Some(room) = room {
        let mut process = Commanded::start(&mut within(&room, "obey"));
        process.fills_to_the_byte();
    }
    drop(manager);
}

/// As on a real machine, where nothing says that the GPU is simulated.
#[test]
fn the_command_line_finds_such_a_gpu_through_the_driver() {
    let fixture = machine("gb10", "");
    let libraries = tempfile::tempdir().unwrap();
    for (library, name) in [("cuda", "libcuda.so.1"), ("nvml", "libnvidia-ml.so.1")] {
        let from = release_dir().join(format!("libvcuda_simulator_{library}.so"));
        std::os::unix::fs::symlink(from, libraries.path().join(name)).unwrap();
    }
    // Default path of the simulated driver's machine.
    std::fs::create_dir_all(fixture.runtime().join("vcuda")).unwrap();
    std::os::unix::fs::symlink(fixture.machine(), fixture.runtime().join("vcuda/machine")).unwrap();
    let real = |args: &[&str]| {
        let mut command = fixture.vcuda(args);
        command.env_remove("VCUDA_SIM").env("LD_LIBRARY_PATH", libraries.path());
        command
    };
    let smi = succeeded(&real(&["smi", "--json"]).output().unwrap());
    let smi: serde_json::Value = serde_json::from_str(&smi).unwrap();
    assert_eq!(smi["gpus"][0]["memory_total_bytes"], 119 * GIB, "{smi}");
    let mut tenant = real(&["run", "--memory", "1GiB", "--"]);
    let mut process = Commanded::start(tenant.arg(app("obey", Door::Dlsym)));
    process.fills_to_the_byte();
    assert!(fixture.peak_bytes(0) <= GIB);
}

/// Listens at a tenant's socket, and answers like this. Prints "heard BYTES" for each message before the answer.
pub(crate) fn other_manager(socket: &Path, answer: &str) -> Running {
    const LISTEN: &str = "
import socket, sys
one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
one.bind(sys.argv[1]); one.listen(64); print('listening', flush=True)
held = []
while True:
    peer, _ = one.accept()
    held.append(peer)
    heard = peer.recv(300)
    print('heard', len(heard), flush=True)
    if heard and sys.argv[2]: peer.send(bytes.fromhex(sys.argv[2]))
";
    let mut command = Command::new("python3");
    command.args(["-c", LISTEN]).arg(socket).arg(answer);
    let mut running = Running::start(command.stdin(Stdio::null()));
    running.wait_for("listening");
    running
}

/// The previous release's manager takes the question for a registration; a stopped one does not answer.
#[test]
fn a_manager_without_an_answer_changes_nothing() {
    let accepted = "766375616e7377720100000000000000";
    for answer in [accepted, "", "00"] {
        let fixture = machine("wsl2", "");
        let tenant = fixture.made("a", 2 * GIB);
        let _manager = other_manager(&tenant.directory().join("manager.sock"), answer);
        let mut process = Commanded::start(&mut tenant.command(app("obey", Door::Dlsym)));
        assert_exact(&fixture, &mut process, answer);
        process.fills_to_the_byte();
    }
}
