//! Tests of the tracker with possible observations of NVML.

use super::*;

fn facts(number: u8) -> Facts {
    let uuid = GpuUuid::from_bytes([number; 16]);
    let gpu = Gpu { multiprocessors: Some(1), ..Gpu::new(uuid, "a GPU", 1 << 30) };
    Facts { gpu, is_mig: false }
}

fn opened(numbers: &[u8]) -> Observation {
    Observation::Opened(Opened {
        driver_version: "550".to_owned(),
        gpus: numbers.iter().map(|number| facts(*number)).collect(),
        ..Opened::default()
    })
}

fn looked(numbers: &[u8]) -> Observation {
    let load = Load {
        memory_used_bytes: 5,
        utilization_percent: Some(7),
        sensors: Sensors { temperature_celsius: Some(40), ..Sensors::default() },
        is_persistent: Some(true),
        is_slowed_by_heat: false,
    };
    let look = |number: &u8| (GpuUuid::from_bytes([*number; 16]), Ok(load));
    Observation::Looked(numbers.iter().map(look).collect())
}

fn tracker() -> Tracker {
    let policy = Policy { fatal_xids: [48].into(), clean_probes: 2, ..Policy::default() };
    Tracker::new(policy, Record::default())
}

fn reasons(reports: &[Report]) -> Vec<&str> {
    reports.iter().map(|report| &*report.reason).collect()
}

/// The GPUs that can be granted.
fn offered(tracker: &Tracker) -> Vec<u8> {
    let healthy = |gpu: &Gpu| (gpu.health == Health::Healthy).then(|| gpu.uuid.as_bytes()[0]);
    tracker.inventory().gpus.iter().filter_map(healthy).collect()
}

#[test]
fn gpus_come_and_go() {
    let mut tracker = tracker();
    let before = tracker.inventory();
    assert!(before.problem.is_some() && before.gpus.is_empty());
    assert_eq!(reasons(&tracker.apply(opened(&[1, 2]))), [""; 0], "at the start");
    assert_eq!(offered(&tracker), [1, 2]);
    tracker.apply(looked(&[1, 2]));
    let gpu = tracker.inventory().gpus.remove(0);
    assert_eq!((gpu.memory_used_bytes, gpu.utilization_percent), (5, Some(7)));
    // A change of load is not a change of the inventory.
    assert_eq!(reasons(&tracker.apply(opened(&[2, 3]))), ["VcudaGpuAppeared", "VcudaGpuVanished"]);
    assert_eq!((offered(&tracker), tracker.inventory().problem), (vec![2, 3], None));
    // None moves: neither when one is gone, nor when it is back.
    let order = |tracker: &Tracker| -> Vec<u8> {
        tracker.inventory().gpus.iter().map(|gpu| gpu.uuid.as_bytes()[0]).collect()
    };
    assert_eq!(order(&tracker), [1, 2, 3]);
    assert_eq!(reasons(&tracker.apply(opened(&[1, 2, 3]))), ["VcudaGpuAppeared"]);
    assert_eq!((order(&tracker), offered(&tracker)), (vec![1, 2, 3], vec![1, 2, 3]));
}

#[test]
fn without_nvml_nothing_is_offered_and_all_is_remembered() {
    let mut tracker = tracker();
    tracker.apply(opened(&[1]));
    tracker.apply(Observation::Xid(GpuUuid::from_bytes([1; 16]), 48));
    let gone = || Observation::Unusable("the driver is not loaded".to_owned());
    assert_eq!(reasons(&tracker.apply(gone())), ["VcudaNvmlFailed"]);
    assert_eq!(reasons(&tracker.apply(gone())), [""; 0], "told once");
    let inventory = tracker.inventory();
    assert_eq!((inventory.gpus.len(), offered(&tracker)), (1, vec![]));
    assert!(inventory.problem.unwrap().contains("not loaded"));
    // The driver was reloaded, so the fatal error ends after clean looks.
    assert_eq!(reasons(&tracker.apply(opened(&[1]))), ["VcudaNvmlRecovered"]);
    assert_eq!(offered(&tracker), [0_u8; 0]);
    tracker.apply(looked(&[1]));
    assert_eq!(reasons(&tracker.apply(looked(&[1]))), ["VcudaGpuRecovered"]);
    assert_eq!(offered(&tracker), [1]);
}

#[test]
fn one_that_cannot_be_opened_is_not_gone() {
    let mut tracker = tracker();
    tracker.apply(opened(&[1, 2]));
    let one_is_lost = || {
        Observation::Opened(Opened {
            driver_version: "550".to_owned(),
            gpus: vec![facts(2)],
            missing: vec!["GPU 1 cannot be opened".to_owned()],
            ..Opened::default()
        })
    };
    assert_eq!(reasons(&tracker.apply(one_is_lost())), ["VcudaGpuUnhealthy"]);
    assert_eq!(reasons(&tracker.apply(one_is_lost())), [""; 0]);
    let inventory = tracker.inventory();
    assert_eq!((offered(&tracker), inventory.gpus.len()), (vec![2], 2));
    assert_eq!(inventory.gpus[0].uuid, facts(1).gpu.uuid, "it keeps its index");
    assert!(inventory.problem.is_some());
    tracker.apply(opened(&[1, 2]));
    tracker.apply(looked(&[1, 2]));
    assert_eq!(reasons(&tracker.apply(looked(&[1, 2]))), ["VcudaGpuRecovered"]);
}

#[test]
fn a_gpu_of_the_ledger_that_nvml_does_not_list_is_a_problem_and_told_once() {
    let mut tracker = tracker();
    let named = |grants: &[(u8, usize)]| -> Named {
        grants.iter().map(|(number, grants)| (GpuUuid::from_bytes([*number; 16]), *grants)).collect()
    };
    assert_eq!(reasons(&tracker.name(named(&[(1, 2)]))), [""; 0], "NVML has not answered");
    tracker.apply(opened(&[2]));
    assert_eq!(reasons(&tracker.name(named(&[(1, 2), (2, 1)]))), ["VcudaGpuVanished"]);
    assert_eq!(reasons(&tracker.name(named(&[(1, 2), (2, 1), (3, 0)]))), ["VcudaGpuVanished"], "a cordon");
    let problem = tracker.inventory().problem.unwrap();
    for part in [
        "2 grant(s) are on a GPU that NVML does not list: GPU-01010101-",
        "a cordoned GPU is not listed by NVML: GPU-03030303-",
    ] {
        assert!(problem.contains(part), "{problem}");
    }
    // It comes, and goes again: the second time it is told by what sees it go.
    tracker.apply(opened(&[1, 2]));
    assert_eq!(reasons(&tracker.name(named(&[(1, 2)]))), [""; 0]);
    assert_eq!(tracker.inventory().problem, None);
    assert_eq!(reasons(&tracker.apply(opened(&[2]))), ["VcudaGpuVanished"]);
    assert_eq!(reasons(&tracker.name(named(&[(1, 2)]))), [""; 0]);
    assert!(tracker.inventory().problem.is_some());
    tracker.name(named(&[]));
    assert_eq!(tracker.inventory().problem, None, "its grants have ended");
}

#[test]
fn xids_are_counted_also_of_what_is_gone() {
    let mut tracker = tracker();
    let uuid = GpuUuid::from_bytes([1; 16]);
    tracker.apply(opened(&[1]));
    assert_eq!(reasons(&tracker.apply(Observation::Xid(uuid, 31))), [""; 0], "an application's");
    assert_eq!(reasons(&tracker.apply(Observation::Xid(uuid, 79))), ["VcudaGpuUnhealthy"]);
    tracker.apply(opened(&[]));
    tracker.apply(opened(&[1]));
    tracker.apply(Observation::Xid(uuid, 31));
    let xids = tracker.inventory().xids;
    assert_eq!(xids.into_iter().collect::<Vec<_>>(), [((uuid, 31), 2), ((uuid, 79), 1)]);
    assert_eq!(offered(&tracker), [1], "what came back is another one");
}

#[test]
fn a_gpu_in_mig_mode_is_shown_and_not_offered() {
    let mut tracker = tracker();
    tracker.apply(opened(&[1]));
    let divided = Opened {
        driver_version: "550".to_owned(),
        gpus: vec![Facts { is_mig: true, ..facts(1) }],
        ..Opened::default()
    };
    assert_eq!(reasons(&tracker.apply(Observation::Opened(divided))), ["VcudaGpuChanged"]);
    assert_eq!((offered(&tracker), tracker.inventory().gpus.len()), (vec![], 1));
}

#[test]
fn deafness_is_a_problem_and_no_more() {
    let mut tracker = tracker();
    tracker.apply(opened(&[1]));
    tracker.apply(Observation::Xids(Err("XIDs are not watched".to_owned())));
    assert!(tracker.inventory().problem.is_some());
    assert_eq!(offered(&tracker), [1]);
    // It follows from a worse one.
    tracker.apply(Observation::Unusable("the driver is not loaded".to_owned()));
    assert_eq!(tracker.inventory().problem.as_deref(), Some("the driver is not loaded"));
    tracker.apply(opened(&[1]));
    assert!(tracker.inventory().problem.is_some());
    tracker.apply(Observation::Xids(Ok(())));
    assert_eq!(tracker.inventory().problem, None);
}

#[test]
fn a_gpu_that_does_not_answer_has_no_readings() {
    let lost = Observation::Looked(vec![(GpuUuid::from_bytes([1; 16]), Err("GPU is lost".to_owned()))]);
    let unusable = Observation::Unusable("the driver is not loaded".to_owned());
    for silence in [lost, unusable, opened(&[2])] {
        let mut tracker = tracker();
        tracker.apply(opened(&[1]));
        tracker.apply(looked(&[1]));
        let readings = |tracker: &Tracker| {
            let gpu = tracker.inventory().gpus.remove(0);
            (gpu.utilization_percent, gpu.sensors.temperature_celsius)
        };
        assert_eq!(readings(&tracker), (Some(7), Some(40)));
        tracker.apply(silence);
        assert_eq!(readings(&tracker), (None, None));
    }
}
