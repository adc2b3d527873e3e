//! Slow start of NVML, as when hundreds of processes start: no process waits for it, no quota is exceeded meanwhile, and
//! earlier charges are corrected when it answers.

use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use vcuda_region::DeviceIndex;
use vcuda_region::usage_reader::UsageReader;
use vcuda_tests::{Commanded, Door, Fixture, GIB, MIB, Running, app, eventually};

use crate::overhead::drivers::fill;
use crate::overhead::places::{
    CONTEXT_BYTES, ROUNDING, assert_exact, churns, end, granted, isolated, machine, used, within,
};

/// A machine with this driver, on which each start of NVML takes this time.
fn slow(profile: &str, seconds: f64) -> Fixture {
    let ns = seconds * 1e9;
    machine(profile, &format!("[driver]\nnvml_init_ns = {ns:.0}"))
}

#[test]
fn a_first_context_does_not_wait_for_nvml_and_the_quota_holds() {
    let start_seconds = 30.0;
    let fixture = slow("h200-580", start_seconds);
    let tenant = fixture.keep("fast", &["--memory", "2GiB"]);
    let start = || Commanded::start(&mut tenant.command(app("obey", Door::Dlsym)));
    let began = SystemTime::now();
    let mut process = start();
    assert_exact(&fixture, &mut process, "before NVML answers");
    assert_eq!(fill(&mut process, 256 * MIB), 6, "of 1638 MiB beside the context");
    // Two processes of a tenant whose context size is known: one without room, and one with it.
    assert!(!is_ready(&mut tenant.command(app("obey", Door::Dlsym))));
    drop(process);
    start().fills_to_the_byte();
    assert!(fixture.peak_bytes(0) <= 2 * GIB);
    assert!(began.elapsed().unwrap().as_secs_f64() < start_seconds / 2.0);
}

/// Whether `obey` gets a context; the reason for a failure is on stderr.
fn is_ready(command: &mut Command) -> bool {
    let mut running = Running::start(command.stderr(Stdio::null()));
    running.next_line().is_ok_and(|line| line == "ready")
}

/// Memory that only NVML shows counts from its answer on, even if the process makes no calls.
#[test]
fn what_was_charged_before_nvml_answers_is_corrected_then() {
    // Long enough for the checks before the answer, also on a machine that stalls for seconds.
    let fixture = slow("h200-580", 6.0);
    let tenant = fixture.keep("late", &["--memory", "2GiB"]);
    let mut command = tenant.command(app("obey", Door::Dlsym));
    let mut process = Commanded::start(command.arg("private"));
    assert_exact(&fixture, &mut process, "before NVML answers");
    assert_eq!(process.tell("unseen 104857600"), Some(vec![0]));
    // Not by `vcuda smi`, which waits for NVML itself.
    let usage = UsageReader::open(&tenant.directory()).unwrap();
    let books = || usage.memory(DeviceIndex::new(0).unwrap()).unwrap().used_bytes;
    assert!(books() + 90 * MIB < fixture.used_bytes(), "NVML has answered already");
    eventually("NVML's word is charged", Duration::from_secs(20), || {
        books().abs_diff(fixture.used_bytes()) <= ROUNDING
    });
    process.lives();
}

/// The manager's figure is used until the process's NVML has started, without neighbours' memory.
#[test]
fn the_manager_tells_before_nvml_does() {
    let fixture = slow("a100-535-container", 2.0);
    let _manager = fixture.manager();
    let Some(room) = granted(&fixture, "a", "2GiB") else {
        return;
    };
    let _neighbours = churns(&fixture);
    for _ in 0..3 {
        let mut process = Commanded::start(&mut within(&room, "obey"));
        let told = used(&mut process);
        assert!(told.abs_diff(CONTEXT_BYTES) <= ROUNDING, "{told}");
        end(&fixture, process);
    }
}

/// Processes of the same tenant allocate and free while a further context is measured on the whole GPU.
#[test]
fn neighbours_of_the_tenant_are_in_no_figure_before_nvml_answers() {
    for round in 0..4 {
        let fixture = slow("h200-580", 60.0);
        let tenant = fixture.keep("busy", &["--memory", "8GiB"]);
        let start = || Commanded::start(&mut tenant.command(app("obey", Door::Dlsym)));
        // The tenant then knows the size of first contexts, but not of further ones.
        let mut process = start();
        assert_exact(&fixture, &mut process, "one context");
        let neighbours = ["1", "2"].map(|seed| {
            let mut churn = Running::start(tenant.command(app("churn", Door::Dlsym)).arg(seed));
            churn.wait_for("started");
            churn
        });
        assert_eq!(process.tell("context"), Some(vec![0]));
        drop(neighbours);
        eventually("the dead are gone", Duration::from_secs(20), || {
            used(&mut process) < GIB && fixture.used_bytes() < GIB
        });
        assert_exact(&fixture, &mut process, &format!("two contexts, round {round}"));
    }
}

/// The shim asks before the first context which process NVML lists by its PID. If the answer comes too late, it does not
/// use the list, even with a matching entry.
#[test]
fn another_process_of_the_same_number_is_not_taken_for_this_one() {
    for seconds in [0.0, 1.0] {
        let fixture = slow("t4-470", seconds);
        let mut other = Running::start(fixture.bare(app("hold", Door::Dlsym)).arg(GIB.to_string()));
        other.wait_for("holding");
        let number = other.0.id().to_string();
        let mut command = fixture.tenant(&["--memory", "4GiB"], app("as_pid", Door::Dlsym));
        command.arg(number).arg(app("obey", Door::Dlsym));
        let Some(mut command) = isolated(&fixture, &command) else {
            return;
        };
        let other_bytes = fixture.used_bytes();
        let mut process = Commanded::start(&mut command);
        let own_bytes = || fixture.used_bytes() - other_bytes;
        // Longer than NVML takes to answer.
        let end = SystemTime::now() + Duration::from_millis(1500);
        while SystemTime::now() < end {
            let told = used(&mut process);
            assert!(told.abs_diff(own_bytes()) <= ROUNDING, "{told} of {}", own_bytes());
        }
    }
}
