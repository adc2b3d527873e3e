//! Oversubscription: a quota that a GPU cannot give is refused at once, with the figure, and managed memory counts in full.
//! Quotas that together exceed the GPU are reported.

use std::process::Output;

use vcuda_tests::{Door, Fixture, GIB, MIB, Running, app, succeeded, text};

const MACHINE: &str = "[[gpus]]\nmemory_bytes = \"8GiB\"\n[[gpus]]\nmemory_bytes = \"4GiB\"\n";

/// Checks for a usage error of one line with the requested and available sizes (bytes) and the GPU.
fn is_refused(output: &Output, asked: u64, has: u64, uuid: &str) {
    assert_eq!(output.status.code(), Some(64), "{}", text(output));
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(words.trim().lines().count(), 1, "{words}");
    for figure in [asked.to_string(), has.to_string(), uuid.to_owned()] {
        assert!(words.contains(&figure), "no {figure} in {words}");
    }
    assert!(output.stdout.is_empty());
}

#[test]
fn a_quota_beyond_the_gpu_is_refused_with_the_figure() {
    let fixture = Fixture::with_config(MACHINE);
    let report = fixture.report();
    let uuid = |gpu: usize| report["gpus"][gpu]["uuid"].as_str().unwrap();
    let run = |quota: &[&str]| fixture.tenant(quota, "true").output().unwrap();
    let over = format!("{}B", 8 * GIB + 1);
    // Without --gpu each GPU must have room, so the smallest decides.
    is_refused(&run(&["--memory", "5GiB"]), 5 * GIB, 4 * GIB, uuid(1));
    is_refused(&run(&["--gpu", "0", "--memory", &over]), 8 * GIB + 1, 8 * GIB, uuid(0));
    is_refused(&run(&["--gpu", "0", "--gpu", "1", "--memory", "8GiB"]), 8 * GIB, 4 * GIB, uuid(1));
    for quota in [&["--memory", "4GiB"][..], &["--gpu", "0", "--memory", "8GiB"]] {
        succeeded(&run(quota));
    }
    // A later change is refused too, and the quota stays.
    let poll = app("poll_limit", Door::Dlsym);
    let mut running = Running::start(&mut fixture.tenant(&["--memory", "2GiB", "--name", "grows"], poll));
    running.wait_for("total");
    let set = |memory: &str| fixture.output(["set", "grows", "--memory", memory]);
    is_refused(&set("5GiB"), 5 * GIB, 4 * GIB, uuid(1));
    let quota = |gpu: usize| fixture.smi()["gpus"][gpu]["tenants"][0]["memory_limit_bytes"].clone();
    assert_eq!([quota(0), quota(1)], [2 * GIB, 2 * GIB]);
    succeeded(&set("4GiB"));
    assert_eq!(running.wait_for(&format!("total {}", 4 * GIB)), format!("total {}", 4 * GIB));
    // The refused commands left nothing behind.
    assert_eq!(fixture.smi()["gpus"][0]["tenants"].as_array().unwrap().len(), 1);
}

#[test]
fn managed_memory_is_charged_in_full() {
    let fixture = Fixture::with_config(MACHINE);
    for door in Door::ALL {
        let mut command = fixture.tenant(&["--memory", "2GiB"], app("managed", door));
        succeeded(&command.arg((48 * MIB + 1).to_string()).output().unwrap());
    }
}

/// If quotas add up to more than there is, each is valid, but the reason for a refusal must be visible.
#[test]
fn doctor_reports_quotas_that_add_up_to_more_than_there_is() {
    let fixture = Fixture::with_config(MACHINE);
    let notes = || {
        let findings = fixture.findings();
        let findings = findings.iter();
        let notes = findings.filter(|one| one["link"] == "quotas" && one["health"] == "note");
        notes.map(|one| one["seen"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let _one = fixture.keep("one", &["--gpu", "0", "--memory", "5GiB"]);
    let _whole = fixture.keep("whole", &[]);
    assert!(notes().is_empty(), "{:?}", notes());
    let _two = fixture.keep("two", &["--memory", "3.5GiB"]);
    let found = notes();
    let uuid = fixture.uuid(0);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains(&uuid) && found[0].contains("8.5 GiB of 8 GiB"), "{found:?}");
}
