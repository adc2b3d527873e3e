//! `vcuda smi` and its relatives show what is on the node: sensors, tenants, processes with their owners, and processes outside of
//! vcuda.
#![expect(clippy::disallowed_methods, reason = "durations, by the wall clock")]

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use vcuda_tests::{Door, Fixture, GIB, MIB, Running, app, holding, skip, soon, succeeded, text};

/// The program without the shim, holding memory.
fn stranger(fixture: &Fixture) -> Running {
    holding(&mut fixture.bare(app("hold", Door::Dlsym)), 200 * MIB)
}

/// Processes outside of vcuda, by PID, with their memory (bytes).
fn outside(fixture: &Fixture) -> Vec<(u64, u64)> {
    let smi = fixture.smi();
    let listed = smi["gpus"][0]["outside_processes"].as_array().unwrap().clone();
    listed
        .iter()
        .map(|process| {
            let bytes = process["memory_used_bytes"].as_u64().unwrap();
            (process["pid"].as_u64().unwrap(), bytes)
        })
        .collect()
}

fn is_shown(fixture: &Fixture, stranger: &Running) {
    let pid = stranger.0.id();
    let is_it = |(seen, bytes): &(u64, u64)| *seen == u64::from(pid) && *bytes >= 200 * MIB;
    soon("the stranger is seen", || outside(fixture).iter().any(is_it));
    let table = fixture.stdout(["smi"]);
    let row = table.lines().find(|line| line.contains("outside vcuda")).unwrap();
    assert!(row.contains(&pid.to_string()) && row.contains("MiB"), "{table}");
    assert!(fixture.stdout(["ps"]).contains("outside vcuda"));
    assert!(fixture.stdout(["smi", "-q"]).contains(&pid.to_string()));
}

#[test]
fn arguments_of_nvidia_smi_without_a_place_here_are_answered() {
    let fixture = Fixture::new();
    let cases: [(&[&str], &str); 4] = [
        (&["smi", "-x"], "--json tells all"),
        (&["smi", "-q", "-d", "MEMORY"], "--query-gpu=FIELDS"),
        (&["smi", "dmon", "-s", "u"], "every column is shown"),
        (&["smi", "-lms", "500"], "there is no -lms"),
    ];
    for (arguments, words) in cases {
        let refused = fixture.output(arguments);
        assert_eq!(refused.status.code(), Some(64), "{arguments:?}");
        assert!(text(&refused).contains(words), "{}", text(&refused));
    }
}

#[test]
fn what_a_gpu_is_is_the_same_with_and_without_a_manager() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let query = || {
        let fields = "--query-gpu=pci.bus_id,compute_cap";
        fixture.stdout(["smi", fields, "--format=csv,noheader"])
    };
    let bare = query();
    let _manager = fixture.manager();
    soon("the manager answers", || fixture.output(["gpu", "list"]).status.success());
    assert_eq!(query(), bare);
    let (bus, capability) = bare.trim().split_once(", ").unwrap();
    assert!(bus.len() == 16 && bus.starts_with("00000000:") && bus.ends_with(".0"), "{bare}");
    assert!(capability.parse::<f64>().is_ok(), "{bare}");
}

#[test]
fn a_process_outside_of_vcuda_has_a_row_without_a_manager() {
    let fixture = Fixture::new();
    let tenant =
        holding(&mut fixture.tenant(&["--memory", "4GiB", "--name", "web"], app("hold", Door::Dlsym)), GIB);
    let stranger = stranger(&fixture);
    is_shown(&fixture, &stranger);
    // The tenant's own process is not outside.
    let pid = u64::from(tenant.0.id());
    assert!(outside(&fixture).iter().all(|(seen, _)| *seen != pid));
    let process = &fixture.smi()["gpus"][0]["tenants"][0]["processes"][0];
    assert_eq!(process["pid"], pid, "{process}");
    assert!(process["command"].as_str().unwrap().contains("hold"), "{process}");
    assert!(process["user"].is_string(), "{process}");
    // Inside the tenant, nothing of others is shown.
    let inside = fixture
        .tenant(&["--name", "web"], vcuda_tests::release_dir().join("vcuda"))
        .args(["smi", "--json"])
        .output()
        .unwrap();
    let inside: Value = serde_json::from_str(&succeeded(&inside)).unwrap();
    assert_eq!(inside["gpus"][0]["outside_processes"].as_array().unwrap().len(), 0);
}

#[test]
fn a_grant_of_memory_that_others_hold_is_made_with_a_warning() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let _manager = fixture.manager();
    let stranger = holding(&mut fixture.bare(app("hold", Door::Dlsym)), 2 * GIB);
    is_shown(&fixture, &stranger);
    let create =
        |name: &str, memory: &str| text(&fixture.output(["grant", "create", name, "--memory", memory]));
    let words = "processes outside vcuda hold";
    assert!(!create("small", "1GiB").contains(words));
    let said = create("large", "21GiB");
    assert!(said.contains("large-2: ") && said.contains(words), "{said}");
    assert!(
        fixture.events().contains("VcudaGrantCreated large-2: large-2 was granted by"),
        "{}",
        fixture.events()
    );
}

#[test]
fn a_program_whose_grant_was_taken_away_stays_in_sight() {
    let fixture = Fixture::new();
    let _manager = fixture.manager();
    fixture.grant("web", &["--memory", "2GiB"]);
    let program = holding(&mut fixture.in_grant("web", app("hold", Door::Dlsym)), 200 * MIB);
    let pid = program.0.id().to_string();
    soon("it is a tenant's", || fixture.stdout(["ps"]).contains(&pid));
    let refused = fixture.output(["grant", "release", "web"]);
    assert!(text(&refused).contains("--force"), "{}", text(&refused));
    assert_eq!(fixture.stdout(["grant", "release", "web", "--force"]), "web-1 released\n");
    is_shown(&fixture, &program);
}

#[test]
fn the_manager_tells_what_nvml_tells() {
    let fixture = Fixture::new();
    let own = fixture.smi()["gpus"][0].clone();
    let _manager = fixture.manager();
    let managed = fixture.smi()["gpus"][0].clone();
    for key in [
        "temperature_celsius",
        "power_draw_mw",
        "memory_utilization_percent",
        "power_limit_mw",
        "utilization_percent",
    ] {
        assert!(own[key].is_u64() && own[key] == managed[key], "{key}: {own} {managed}");
    }
    let smi = fixture.smi();
    assert!(smi["driver_version"].is_string() && smi["cuda_version"].is_string(), "{smi}");
    let table = fixture.stdout(["smi"]);
    assert!(table.contains("CUDA Version: ") && !table.contains("N/A"), "{table}");
}

/// A process in a PID namespace of its own is shown with its PID here.
#[test]
fn a_container_s_pid_is_translated() {
    let fixture = Fixture::new();
    let works = Command::new("unshare").args(["--pid", "--fork", "true"]).output();
    if !works.is_ok_and(|output| output.status.success()) {
        skip("smi: unshare --pid does not work here");
        return;
    }
    // The host's PID namespace is that of the machine's first process.
    let _first = stranger(&fixture);
    let mut inner = fixture.tenant(&["--memory", "2GiB", "--name", "apart"], "unshare");
    inner.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    let _program = holding(inner.arg(app("hold", Door::Dlsym)), 200 * MIB);
    let process = fixture.smi()["gpus"][0]["tenants"][0]["processes"][0].clone();
    let pid = process["pid"].as_u64().unwrap();
    assert!(process["in_container"].is_null() && pid > 2, "{process}");
    let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    assert!(command.contains("hold"), "{command}");
}

#[test]
fn processes_are_told_in_nvidia_smis_form() {
    let fixture = Fixture::new();
    let stranger = stranger(&fixture);
    let query = "--query-compute-apps=pid,used_memory,gpu_uuid,process_name";
    let rows = fixture.stdout(["smi", query, "--format=csv"]);
    let gpu = fixture.uuid(0);
    let row = format!("{}, ", stranger.0.id());
    let mut lines = rows.lines();
    assert_eq!(lines.next(), Some("pid, used_gpu_memory [MiB], gpu_uuid, process_name"));
    let line = lines.next().unwrap();
    assert!(line.starts_with(&row) && line.contains(&gpu), "{rows}");
    assert_eq!(lines.next(), None);
}

#[test]
fn what_has_no_shares_is_told_at_once() {
    let fixture = Fixture::new();
    let is_at_once = |args: &[&str]| {
        (0..20).any(|_| {
            let begun = Instant::now();
            fixture.stdout(args);
            begun.elapsed() < Duration::from_secs(1)
        })
    };
    // Without tenants there is no share.
    assert!(is_at_once(&["smi"]));
    let tenant = fixture.keep("web", &["--memory", "4GiB"]);
    let _idle = Running::start(tenant.command("sleep").arg("600"));
    for args in [
        &["smi", "-L"][..],
        &["smi", "--query-gpu=count,gpu_name"],
        &["smi", "--query-compute-apps=pid"],
        &["smi", "--query-tenants=name,memory.used"],
    ] {
        assert!(is_at_once(args), "{args:?}");
    }
}

#[test]
fn selectors_and_forms() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let list = fixture.stdout(["smi", "-L"]);
    let second = list.lines().nth(1).unwrap();
    assert!(second.starts_with("GPU 1: ") && second.contains(" (UUID: GPU-"), "{list}");
    let uuid = second.split("UUID: ").nth(1).unwrap().trim_end_matches(')');
    for selector in ["1", uuid, &uuid[..12]] {
        let query = ["smi", "-i", selector, "--query-gpu=index,uuid", "--format=csv,noheader"];
        assert_eq!(fixture.stdout(query), format!("1, {uuid}\n"), "{selector}");
    }
    assert_eq!(
        fixture.stdout(["smi", "--query-gpu=memory.total,memory.used", "-i", "0"]),
        "memory.total [MiB], memory.used [MiB]\n24576 MiB, 0 MiB\n"
    );
    let wrong = fixture.output(["smi", "-i", "7"]);
    assert_eq!(wrong.status.code(), Some(64), "{}", text(&wrong));
    assert!(text(&wrong).contains("-i 7: no such GPU; there is 0 (GPU-"), "{}", text(&wrong));
    let wrong = fixture.output(["smi", "--query-gpu=nonsense"]);
    assert_eq!(wrong.status.code(), Some(64), "{}", text(&wrong));
    assert_eq!(fixture.stdout(["smi", "dmon", "-c", "2"]).lines().count(), 2 + 4);
    // A loop prints again until its reader closes.
    let mut looping = Running::start(&mut fixture.vcuda(["smi", "-l", "1", "-L"]));
    looping.wait_for("GPU 1");
    looping.wait_for("GPU 1");
}

/// Output of `vcuda` on a terminal, which `script` makes, after these keys. `None` without `script`.
fn on_terminal(fixture: &Fixture, line: &str, keys: &str) -> Option<String> {
    let there = Command::new("script").arg("--version").output();
    if !there.is_ok_and(|output| output.status.success()) {
        skip("smi: script(1) is not installed");
        return None;
    }
    let vcuda = vcuda_tests::release_dir().join("vcuda");
    let mut command = Command::new("script");
    fixture.environment(&mut command);
    let line = line.replace("vcuda", &vcuda.display().to_string());
    let line = format!("stty rows 30 cols 100; {line}");
    command.args(["-qec", &line, "/dev/null"]).stdin(Stdio::piped());
    let mut running = command.stdout(Stdio::piped()).spawn().unwrap();
    running.stdin.take().unwrap().write_all(keys.as_bytes()).unwrap();
    Some(succeeded(&running.wait_with_output().unwrap()))
}

#[test]
fn watch_and_top_use_the_alternate_screen_and_give_it_back() {
    let fixture = Fixture::new();
    for (line, keys, word) in [
        ("vcuda smi --watch", "q", "Driver Version: "),
        ("vcuda top", "?xq", "(SIGTERM);"),
        ("timeout --foreground -s TERM 3 vcuda top || [ $? = 124 ]", "", "q"),
        ("timeout --foreground -s HUP 3 vcuda smi --watch || [ $? = 124 ]", "", "Driver"),
    ] {
        let Some(text) = on_terminal(&fixture, line, keys) else {
            return;
        };
        let [enter, leave] = ["\x1b[?1049h", "\x1b[?1049l"].map(|mark| text.find(mark));
        assert!(enter < leave && enter.is_some(), "{line}: {text:?}");
        assert!(text.contains(word), "{line}: {text:?}");
    }
}

/// `ldconfig` is linked statically, so that it works where no library does.
#[test]
fn on_a_terminal_a_run_tells_that_its_program_is_not_limited() {
    let fixture = Fixture::new();
    let line = |program: &str| format!("vcuda run --sim --memory 1GiB -- {program} --version");
    let Some(told) = on_terminal(&fixture, &line("/sbin/ldconfig"), "") else { return };
    if !text(&fixture.output(["doctor", "--sim", "--", "/sbin/ldconfig"])).contains("is linked statically") {
        return skip("smi: ldconfig is dynamic here");
    }
    assert!(
        told.contains("is linked statically: no library can be put before it: the shim does not limit it"),
        "{told}"
    );
    assert!(!on_terminal(&fixture, &line("/usr/bin/env"), "").unwrap_or_default().contains("does not limit"));
}

/// In a terminal, load has a colour, unless the user wants none.
#[test]
fn colour_is_for_terminals_without_no_color() {
    let fixture = Fixture::new();
    let Some(colored) = on_terminal(&fixture, "vcuda smi", "") else {
        return;
    };
    assert!(colored.contains("\x1b[32m"), "{colored:?}");
    let plain = on_terminal(&fixture, "env NO_COLOR=1 vcuda smi", "").unwrap();
    assert!(!plain.contains('\x1b'), "{plain:?}");
    assert!(!fixture.stdout(["smi"]).contains('\x1b'));
}

#[test]
fn a_gpu_that_gets_no_new_tenants_says_why() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let _manager = fixture.manager();
    let said =
        |words: &str| [&["smi"][..], &["smi", "-q"]].iter().all(|args| fixture.stdout(*args).contains(words));
    assert!(!said("no new tenants"));
    fixture.stdout(["gpu", "cordon", "1"]);
    assert!(said("no new tenants: cordoned"));
    let uuids = fixture.stdout(["smi", "--query-gpu=uuid", "--format=csv,noheader"]);
    let lost = format!("lost = [\"{}\"]\n", uuids.lines().next().unwrap());
    std::fs::write(fixture.machine().join("faults.toml"), lost).unwrap();
    soon("the fault is seen", || said("no new tenants: unhealthy: "));
}
