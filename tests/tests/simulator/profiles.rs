//! Profiles of real drivers: each key has the effect described in `simulator/machine/src/config/driver.rs`, as seen by real programs,
//! and documented behaviour is the same on all of them.

use std::path::Path;
use std::process::{Command, Stdio};

use vcuda_machine::Config;
use vcuda_tests::virtual_time::{lab, shares};
use vcuda_tests::{Door, Fixture, MIB, Running, app, skip, succeeded};

/// Output of `profile` on a machine with this file.
fn told(machine: &str, words: &[&str]) -> String {
    let fixture = Fixture::with_config(machine);
    let mut command = fixture.bare(app("profile", Door::Dlsym));
    let output = command.args(words).output().unwrap();
    succeeded(&output).trim().to_owned()
}

fn named(profile: &str) -> String {
    format!("profile = \"{profile}\"\n")
}

/// libcudart asks for the driver's private tables, and then fails with a message that does not say why.
#[test]
fn a_program_of_the_cuda_runtime_is_told_what_the_simulator_is_for() {
    let code = "import ctypes\n\
                cuda, table, uuid = ctypes.CDLL('libcuda.so.1'), ctypes.c_void_p(), (ctypes.c_byte * 16)()\n\
                for _ in range(2): assert cuda.cuGetExportTable(ctypes.byref(table), uuid) != 0";
    let output = Fixture::new().bare("python3").args(["-c", code]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("need a real GPU").count(), 1, "{said}");
}

#[test]
fn a_call_that_is_named_ends_a_capture_unless_it_is_relaxed() {
    let [global, thread_local, relaxed] = ["0", "1", "2"];
    for profile in Config::profiles() {
        let told = |mode| told(&named(profile), &["capture", mode]);
        assert_eq!(told(global), "call 900 end 901", "{profile}");
        assert_eq!(told(thread_local), "call 0 end 0", "{profile}");
        assert_eq!(told(relaxed), "call 0 end 0", "{profile}");
    }
    let nothing = "[driver]\ncapture_invalidating = []\n";
    assert_eq!(told(nothing, &["capture", global]), "call 0 end 0");
}

#[test]
fn a_green_context_is_current_to_one_thread_where_the_profile_says() {
    assert_eq!(told(&named("gb10"), &["green"]), "second 201 later 0");
    assert_eq!(told(&named("h200-580"), &["green"]), "second 0 later 0");
}

#[test]
fn launches_return_when_the_profile_says() {
    assert_eq!(told(&named("h200-580"), &["blocks"]), "query 600");
    let blocking = "[driver]\nlaunch_blocks = true\n";
    assert_eq!(told(blocking, &["blocks", "short"]), "query 0");
}

#[test]
fn a_pair_of_events_says_what_the_profile_says() {
    assert_eq!(told(&named("h200-580"), &["pair"]), "pair 0");
    assert_eq!(told(&named("a100-535-container"), &["pair"]), "pair 2000");
    let mixed = "[driver]\nevent_record_ns = 40000\nevent_pair_ns = 7000\n";
    assert_eq!(told(mixed, &["pair"]), "pair 7000");
}

#[test]
fn an_allocation_takes_whole_units() {
    for (profile, unit) in [("h200-580", 1), ("a100-535-container", 2 * MIB)] {
        let used = |bytes: &[&str]| {
            let fixture = Fixture::with_profile(profile);
            let mut hold = Running::start(fixture.bare(app("hold", Door::Dlsym)).args(bytes));
            hold.wait_for("holding");
            fixture.used_bytes()
        };
        assert_eq!(used(&["1", "1"]) - used(&[]), 2 * unit, "{profile}");
    }
}

#[test]
fn the_driver_looks_itself_up_by_the_processs_dlsym() {
    for (profile, lookups) in [("h200-580", 0), ("wsl2", 1)] {
        let fixture = Fixture::with_profile(profile);
        let output = fixture.bare(app("own_dlsym", Door::Link)).output().unwrap();
        assert_eq!(succeeded(&output).trim(), format!("looked up {lookups}"), "{profile}");
    }
}

/// Whether this user can make namespaces of these kinds.
fn may_unshare(kinds: &[&str]) -> bool {
    let mut command = Command::new("unshare");
    command.args(kinds).arg("true").stderr(Stdio::null());
    let may = command.status().is_ok_and(|status| status.success());
    if !may {
        skip(&format!("profiles: unshare {} does not work here", kinds.join(" ")));
    }
    may
}

#[test]
fn device_files_decide_which_gpus_there_are() {
    if !may_unshare(&["-m"]) {
        return;
    }
    let fixture = Fixture::with_config("[driver]\ndevice_nodes = true\n[[gpus]]\n[[gpus]]\n[[gpus]]\n");
    let program = app("profile", Door::Dlsym);
    let enter = "mount -t tmpfs tmpfs /dev && touch /dev/nvidia1 /dev/nvidia2 && exec \"$@\"";
    let mut command = fixture.bare("unshare");
    command.args(["-m", "sh", "-c", enter, "enter"]).arg(&program);
    assert_eq!(succeeded(&command.arg("devices").output().unwrap()).trim(), "devices 2 2");
    if !Path::new("/dev/nvidia0").exists() {
        let output = fixture.bare(&program).arg("devices").output().unwrap();
        assert!(!output.status.success(), "no device file, no device");
    }
}

const PID_NAMESPACE: [&str; 4] = ["--pid", "--fork", "--mount-proc", "--kill-child"];
const HELD: u64 = 300 * MIB;

/// NVML's list for a caller: pairs of PID and bytes, or NVML's error code.
fn listed(asker: &mut Running) -> Result<Vec<(u32, u64)>, String> {
    asker.tell("ask");
    let line = asker.wait_for("");
    let Some(entries) = line.strip_prefix("listed") else {
        return Err(line);
    };
    let pairs = entries.split_whitespace().filter_map(|entry| entry.split_once(':'));
    Ok(pairs.map(|(pid, bytes)| (pid.parse().unwrap(), bytes.parse().unwrap())).collect())
}

fn asks(command: &mut Command) -> Running {
    Running::start(command.stdin(Stdio::piped()))
}

/// PIDs of a process, from this namespace's to its own.
fn pids_of(pid: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap();
    line.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// NVML's lists on the host and inside, for a process with memory that is the second one of a PID namespace.
fn lists(profile: &str) -> [Result<Vec<(u32, u64)>, String>; 2] {
    let fixture = Fixture::with_profile(profile);
    let [hold, list] = ["hold", "nvml_list"].map(|name| app(name, Door::Dlsym));
    // The first process to use the machine is the host's.
    let mut host = asks(&mut fixture.bare(&list));
    let _ = listed(&mut host);
    let script = format!("{} {HELD} & exec {}", hold.display(), list.display());
    let mut inside = asks(fixture.bare("unshare").args(PID_NAMESPACE).args(["sh", "-c", &script]));
    inside.wait_for("holding");
    let mut host = asks(&mut fixture.bare(&list));
    [listed(&mut host), listed(&mut inside)]
}

#[test]
fn nvml_lists_what_the_profile_says() {
    if !may_unshare(&PID_NAMESPACE) {
        return;
    }
    for profile in ["h200-580", "a100-535-container", "t4-470", "gb10"] {
        let [host, inside] = lists(profile);
        let host = host.unwrap();
        let [(_, bytes)] = host[..] else { panic!("{profile}: {host:?}") };
        // Whole granules, including the memory of the program's module.
        let least = Config::of_profile(profile).unwrap().context_bytes + HELD;
        assert!((least..=least + 4 * MIB).contains(&bytes), "{profile}: {bytes}");
        let entry = match profile {
            "a100-535-container" => vec![(2, 0)],
            "t4-470" => host,
            "gb10" => vec![(2, bytes); 2],
            _ => vec![(2, bytes)],
        };
        assert_eq!(inside.unwrap(), entry, "{profile}");
    }
    // The programs use the list of compute processes.
    assert_eq!(lists("mps"), [Ok(Vec::new()), Ok(Vec::new())]);
    let not_supported = || Err("FAIL 3".to_owned());
    assert_eq!(lists("wsl2"), [not_supported(), not_supported()]);
}

#[test]
fn the_hosts_list_is_by_the_hosts_numbers() {
    if !may_unshare(&PID_NAMESPACE) {
        return;
    }
    let fixture = Fixture::new();
    let list = app("nvml_list", Door::Dlsym);
    let mut host = asks(&mut fixture.bare(&list));
    assert_eq!(listed(&mut host), Ok(Vec::new()));
    let mut inside = fixture.bare("unshare");
    inside.args(PID_NAMESPACE).arg(app("hold", Door::Dlsym)).arg("1");
    let mut inside = Running::start(&mut inside);
    inside.wait_for("holding");
    let [(pid, _)] = listed(&mut host).unwrap()[..] else { panic!("one process") };
    let pids = pids_of(pid);
    assert_eq!((pids[0], pids.last()), (pid, Some(&1)), "{pids:?}");
}

/// Programs of documented behaviour in areas where drivers differ.
const CONFORMANCE: [&str; 6] = ["capture", "context", "green", "memory", "pool", "stream"];

/// Runs them without shim, and as a tenant.
#[test]
fn documented_behaviour_is_the_same_on_every_profile() {
    for profile in Config::profiles() {
        for name in CONFORMANCE {
            let program = app(&format!("conformance/{name}"), Door::Dlsym);
            let fixture = Fixture::with_profile(profile);
            succeeded(&fixture.bare(&program).output().unwrap());
            let quota = ["--memory", "10GiB", "--cores", "90"];
            succeeded(&fixture.tenant(&quota, &program).output().unwrap());
        }
    }
}

#[test]
fn a_quota_holds_to_the_byte_on_every_profile() {
    for profile in Config::profiles() {
        let fixture = Fixture::with_profile(profile);
        let mut command = fixture.tenant(&["--memory", "2GiB"], app("quota", Door::Dlsym));
        let output = command.arg((2048 * MIB).to_string()).output().unwrap();
        assert!(succeeded(&output).contains("passed quota"), "{profile}");
    }
}

/// Kernels of 10 us to 20 ms, launched ahead or each waited for, with all costs of events and orders of time slices.
#[test]
fn a_cap_holds_on_every_profile() {
    let program = app("saturate", Door::Dlsym);
    for profile in Config::profiles() {
        let machine = named(profile);
        for (kernel_ns, cap) in [("10000", 60), ("100000", 30), ("1000000", 60), ("20000000", 30)] {
            for how in ["kernel", "sync"] {
                let cores = cap.to_string();
                let lab = lab(&machine, &program, &[(&["--cores", &cores], &["60", kernel_ns, how])]);
                let (share, cap) = (shares(&lab)[0], f64::from(cap));
                assert!(
                    (share - cap).abs() <= cap / 100.0,
                    "{profile}, {kernel_ns} ns, {how}: {share:.2} % under a cap of {cap}"
                );
            }
        }
    }
}
