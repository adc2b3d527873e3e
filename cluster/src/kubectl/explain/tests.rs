//! Tests of the reasons and remedies.

use serde_json::json;

use super::*;

fn evidence(status: serde_json::Value, events: &[(&str, &str)]) -> Evidence {
    let told = |(reason, message): &(&str, &str)| Told {
        reason: (*reason).to_owned(),
        message: (*message).to_owned(),
    };
    Evidence {
        pod: serde_json::from_value(json!({"metadata": {"name": "a"}, "status": status})).unwrap(),
        events: events.iter().map(told).collect(),
        ..Evidence::default()
    }
}

fn first(events: &[(&str, &str)]) -> Finding {
    findings(&evidence(json!({"phase": "Pending"}), events)).remove(0)
}

#[test]
fn a_reason_comes_with_its_remedy() {
    let scheduler = "0/3 nodes are available: 1 Insufficient vcuda.io/memory, 2 node(s) had untolerated taint {a: }. preemption: ...";
    assert!(first(&[("FailedScheduling", scheduler)]).remedy.contains("16 for 4 GiB"));
    let turns = "0/1 nodes are available: 1 Insufficient vcuda.io/suspendable-memory. preemption: ...";
    assert!(first(&[("FailedScheduling", turns)]).remedy.contains("or any at all"));
    let extender = "0/2 nodes are available: 2 vcuda: no GPU has 40 GiB and 40 percent free together.";
    assert!(
        first(&[("Scheduled", "x"), ("FailedScheduling", extender)]).remedy.contains("kubectl vcuda gpus")
    );
    let plugin = "Error: device plugin PreStartContainer rpc failed with err: rpc error: code = FailedPrecondition desc = default/a, \
         container c: annotation vcuda.io/policy \"Burst\": write fixed, burst or best-effort";
    let finding = first(&[("Failed", plugin)]);
    assert!(finding.reason.starts_with("default/a, container c: annotation"), "{finding:?}");
    assert!(finding.remedy.contains("kubectl annotate --overwrite"));
    assert_eq!(first(&[("Other", "something else")]).remedy, NONE);
}

#[test]
fn what_names_a_remedy_comes_first_and_once() {
    let events = [
        ("BackOff", "back-off"),
        ("FailedScheduling", "1 Insufficient vcuda.io/gpu"),
        ("FailedScheduling", "1 Insufficient vcuda.io/gpu"),
    ];
    let all = findings(&evidence(json!({"phase": "Pending"}), &events));
    assert_eq!(all.len(), 2);
    assert_eq!(all[0].source, "FailedScheduling");
}

/// A reader stops at the first remedy that says to wait.
#[test]
fn what_can_be_mended_comes_before_waiting_and_the_past_not_at_all() {
    let no_room = ("FailedScheduling", "0/1 nodes are available: 1 cannot allocate all claims.");
    let wrong = (
        "FailedPrepareDynamicResources",
        "code = Unknown desc = parameters of driver vcuda.io: policy \"brust\"",
    );
    let mut waits = evidence(json!({"phase": "Pending"}), &[no_room, wrong]);
    let sources = |evidence: &Evidence| -> Vec<String> {
        findings(evidence).into_iter().map(|finding| finding.source).collect()
    };
    assert_eq!(sources(&waits), [wrong.0, no_room.0]);
    assert!(findings(&waits)[0].remedy.contains("kubectl replace --force"));
    waits.pod.spec = serde_json::from_value(json!({"nodeName": "n", "containers": []})).unwrap();
    assert_eq!(sources(&waits), [wrong.0], "it has found a node");
    waits.missing_claims = vec!["gpus".to_owned()];
    assert_eq!(findings(&waits)[0].reason, "there is no claim gpus");
    let class = ("FailedScheduling", "device class vcuda.io-hole does not exist");
    let mut unknown = evidence(json!({"phase": "Pending"}), &[class]);
    unknown.claims = vec![serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {}})).unwrap()];
    assert_eq!(sources(&unknown), [class.0], "and not that the claim is not allocated");
    let ended = json!({"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": 3}}});
    let failed = evidence(
        json!({"phase": "Failed", "containerStatuses": [ended]}),
        &[("MissingClusterDNS", "x"), wrong],
    );
    let told: Vec<String> = findings(&failed).into_iter().map(|finding| finding.reason).collect();
    assert_eq!(told, ["container c ended with status 3"]);
}

#[test]
fn a_pod_that_runs_has_only_what_the_manager_finds() {
    let events =
        [("FailedScheduling", "1 Insufficient vcuda.io/gpu"), ("VcudaMemoryDenied", "1 GiB refused")];
    let all = findings(&evidence(json!({"phase": "Running"}), &events));
    assert_eq!(all.iter().map(|finding| finding.source.as_str()).collect::<Vec<_>>(), ["VcudaMemoryDenied"]);
    assert!(findings(&evidence(json!({"phase": "Running"}), &[])).is_empty());
    // Unless a container has ended with an error and does not start again.
    let ended = |exit_code: i32| {
        let state = json!({"terminated": {"exitCode": exit_code}});
        let status = json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state});
        json!({"phase": "Running", "containerStatuses": [status]})
    };
    let lost = [("Failed", "Error: failed to inject CDI devices: unresolvable CDI devices vcuda.io/claim=a")];
    assert!(findings(&evidence(ended(137), &lost))[0].remedy.contains("that folder is full"));
    assert!(findings(&evidence(ended(0), &lost)).is_empty());
}

#[test]
fn a_pod_with_claims_that_does_not_end_is_told_for_what_it_waits() {
    let mut told = evidence(json!({"phase": "Running"}), &[]);
    let claim = json!({"metadata": {"name": "a"}, "spec": {}, "status": {"allocation": {}}});
    told.claims = vec![serde_json::from_value(claim).unwrap()];
    assert!(findings(&told).is_empty());
    told.pod.metadata.deletion_timestamp = serde_json::from_value(json!("2026-11-29T12:00:00Z")).unwrap();
    assert!(findings(&told)[0].remedy.contains("the node's driver"));
}

#[test]
fn states_and_claims_tell_where_no_event_does() {
    let status = json!({"phase": "Failed", "reason": "UnexpectedAdmissionError",
        "message": "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices vcuda.io/gpu"});
    let all = findings(&evidence(status, &[]));
    assert!(
        all[0].source == "UnexpectedAdmissionError" && all[0].remedy.contains("delete the pod"),
        "{all:?}"
    );
    let status = json!({"phase": "Pending", "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false,
        "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}]});
    let mut pending = evidence(status, &[]);
    pending.claims =
        vec![serde_json::from_value(json!({"metadata": {"name": "a-vcuda-x"}, "spec": {}})).unwrap()];
    let all = findings(&pending);
    assert_eq!(all[0].reason, "claim a-vcuda-x is not allocated");
}

/// Nine whole GPUs never fit on a node of one; whether a selector matches is for the author to see.
#[test]
fn a_claim_that_never_fits_is_not_told_to_wait() {
    let no_room = ("FailedScheduling", "0/1 nodes are available: 1 cannot allocate all claims.");
    let mut told = evidence(json!({"phase": "Pending"}), &[no_room]);
    let slice = json!({"metadata": {"name": "s"}, "spec": {"driver": "vcuda.io", "pool": {"name": "n", "generation": 1,
        "resourceSliceCount": 1}, "devices": [{"name": "gpu-0", "capacity": {"memory": {"value": "16Gi"}}}]}});
    told.largest.add_slice(&serde_json::from_value(slice).unwrap());
    let mut with = |count: u32| {
        let exactly = json!({"deviceClassName": "vcuda.io", "count": count, "selectors": [{"cel": {"expression": "false"}}]});
        let requests = json!([{"name": "gpu", "exactly": exactly}]);
        let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}});
        told.claims = vec![serde_json::from_value(claim).unwrap()];
        findings(&told)
    };
    let nine = with(9);
    assert!(nine.len() == 1 && nine[0].remedy.contains("never"), "{nine:?}");
    let one = with(1);
    assert!(one.len() == 2 && one[0].remedy.contains("not evaluated here"), "{one:?}");
}

/// What the page says before the table.
const HEAD: &str = "<!-- Made from cluster/src/kubectl/explain.rs by VCUDA_UPDATE=1 cargo test -p vcuda-cluster remedies -->
# Remedies: why a pod does not start

`kubectl vcuda why POD` looks for these texts in the pod's events and states, from top to bottom, and prints the remedy.
`kubectl describe pod POD` shows the texts themselves. A text that is not here names its remedy itself.

| text | what to do |
|---|---|
";

#[test]
fn the_page_of_remedies_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/generated/remedies.md");
    let mut page = HEAD.to_owned();
    for (text, remedy) in REMEDIES {
        page += &format!("| `{text}` | {remedy} |\n");
    }
    if std::env::var_os("VCUDA_UPDATE").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == page,
        "docs/generated/remedies.md is stale: its first line has the command that writes it"
    );
}
