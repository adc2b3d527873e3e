//! Identity is the GPU's UUID (I10): whatever indices `CUDA_VISIBLE_DEVICES` produces, the right GPU is charged.

use vcuda_tests::{Door, Fixture, GIB, MIB, Running, app, succeeded};

fn uuids(fixture: &Fixture) -> Vec<String> {
    let report = fixture.report();
    report["gpus"].as_array().unwrap().iter().map(|g| g["uuid"].as_str().unwrap().to_owned()).collect()
}

fn used(fixture: &Fixture, gpu: usize) -> u64 {
    fixture.report()["gpus"][gpu]["memory_used_bytes"].as_u64().unwrap()
}

/// Allocates as a tenant on device 0, and checks the GPU by the program, the driver and the ledger.
fn lands_on(fixture: &Fixture, visible: Option<&str>, gpu: usize, count: usize) {
    let mut command =
        fixture.tenant(&["--memory", "4GiB", "--name", "where"], app("where", Door::ProcAddress));
    if let Some(visible) = visible {
        command.env("CUDA_VISIBLE_DEVICES", visible);
    }
    let mut tenant = Running::start(command.arg(GIB.to_string()));
    let line = tenant.wait_for("GPU-");
    assert_eq!(line, format!("{} 0 of {count}", uuids(fixture)[gpu]), "CUDA_VISIBLE_DEVICES={visible:?}");
    for other in 0..3 {
        assert_eq!(
            used(fixture, other) > GIB,
            other == gpu,
            "GPU {other} with CUDA_VISIBLE_DEVICES={visible:?}"
        );
        let tenants = fixture.smi()["gpus"][other]["tenants"].clone();
        let charged = tenants[0]["memory_used_bytes"].as_u64().unwrap_or(0);
        assert_eq!(charged > GIB, other == gpu, "{tenants} on GPU {other} with {visible:?}");
    }
}

#[test]
fn every_form_of_cuda_visible_devices_charges_the_right_gpu() {
    let fixture = Fixture::with_gpus(3, "24GiB");
    let all = uuids(&fixture);
    lands_on(&fixture, None, 0, 3);
    lands_on(&fixture, Some("0"), 0, 1);
    lands_on(&fixture, Some("2,0"), 2, 2);
    lands_on(&fixture, Some("1,7,0"), 1, 1); // an index that is none ends the list
    lands_on(&fixture, Some(&all[2]), 2, 1);
    lands_on(&fixture, Some(&format!("{},{}", all[1], all[0])), 1, 2);
    lands_on(&fixture, Some(&all[1][..16]), 1, 1); // an unambiguous beginning of the UUID
}

#[test]
fn no_visible_device_is_no_device() {
    let fixture = Fixture::with_gpus(3, "24GiB");
    for visible in ["", "-1", "NoDevFiles", "MIG-GPU-00000000-0000-0000-0000-000000000000/1/0"] {
        let mut command = fixture.tenant(&["--memory", "4GiB"], app("where", Door::Dlsym));
        let mut tenant = Running::start(command.env("CUDA_VISIBLE_DEVICES", visible).arg("1"));
        assert_eq!(tenant.wait_for("none"), "none", "{visible:?}");
    }
}

#[test]
fn a_tenant_of_one_gpu_is_limited_on_it_alone() {
    let fixture = Fixture::with_gpus(3, "24GiB");
    let all = uuids(&fixture);
    for gpu in ["1", all[1].as_str()] {
        let mut command = fixture.tenant(&["--gpu", gpu, "--memory", "1GiB"], app("where", Door::Dlsym));
        let mut tenant = Running::start(command.arg((2 * GIB).to_string()));
        assert_eq!(tenant.wait_for("GPU-"), format!("{} 2 of 1", all[1]));
        assert!(used(&fixture, 1) < 600 * MIB);
    }
}

/// Programs such as vLLM take each entry of `CUDA_VISIBLE_DEVICES` for a number. The second GPU is the fastest, which CUDA by
/// default numbers first.
#[test]
fn chosen_gpus_are_told_as_numbers_that_mean_these_gpus_whatever_the_user_had_set() {
    let gpus = "[[gpus]]\nsms = 50\n[[gpus]]\nsms = 132\n[[gpus]]\nsms = 100\n";
    let fixture = Fixture::with_config(gpus);
    let all = uuids(&fixture);
    for (chosen, numbers, first, count) in
        [("0", "0", 0, 1), ("2,1", "2,1", 2, 2), (all[1].as_str(), "1", 1, 1)]
    {
        let quota = ["--gpu", chosen, "--memory", "4GiB"];
        let inherited = [("CUDA_VISIBLE_DEVICES", "1"), ("CUDA_DEVICE_ORDER", "FASTEST_FIRST")];
        let mut shown = fixture.tenant(&quota, "sh");
        shown.args(["-c", "echo $CUDA_VISIBLE_DEVICES"]).envs(inherited);
        assert_eq!(succeeded(&shown.output().unwrap()), format!("{numbers}\n"));
        let mut command = fixture.tenant(&quota, app("where", Door::Dlsym));
        let mut tenant = Running::start(command.envs(inherited).arg(GIB.to_string()));
        assert_eq!(tenant.wait_for("GPU-"), format!("{} 0 of {count}", all[first]));
        for other in 0..3 {
            assert_eq!(used(&fixture, other) > GIB, other == first, "GPU {other} of {chosen}");
        }
    }
}
