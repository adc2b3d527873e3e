//! What pods and claims may choose in a namespace.

use vcuda_quota::pods::bounds::Chosen;
use vcuda_quota::{Priority, Quota};

use super::*;

/// `fixed` or `best-effort`, low, 50 % of `burst`, weight 300.
fn strict() -> Rules {
    with_bounds(Bound {
        policies: vec![Policy::Fixed, Policy::BestEffort],
        priority_max: Priority::Low,
        cores_max_permille: 500,
        weight_max: 300,
        suspendable: false,
    })
}

/// Annotations of a pod of 4 GiB and 30 %, mode of the pod, and what of them is outside the bounds of [`strict`]; `-` is nothing.
const CHOICES: &[(&str, &str, &str)] = &[
    ("", "plugin", "-"),
    ("vcuda.io/policy=best-effort vcuda.io/priority=low vcuda.io/weight=300", "plugin", "-"),
    ("vcuda.io/policy=burst", "plugin", "policy burst: pods of namespace team may have fixed or best-effort"),
    (
        "vcuda.io/policy.main=burst",
        "dra",
        "policy burst: pods of namespace team may have fixed or best-effort",
    ),
    ("vcuda.io/priority=normal", "plugin", "priority normal: pods of namespace team may have at most low"),
    ("vcuda.io/priority.main=high", "dra", "priority high: pods of namespace team may have at most low"),
    ("vcuda.io/weight=301", "plugin", "weight 301: pods of namespace team may have at most 300"),
    ("vcuda.io/weight=301", "dra", "weight 301: pods of namespace team may have at most 300"),
    ("vcuda.io/suspendable=false", "plugin", "-"),
    ("vcuda.io/suspendable=true", "plugin", "suspendable true: pods of namespace team may not be suspended"),
    (
        "vcuda.io/suspendable.main=true",
        "dra",
        "suspendable true: pods of namespace team may not be suspended",
    ),
];

/// Annotations of such a text.
fn annotations(text: &str) -> Value {
    let pairs = text.split_whitespace().map(|pair| pair.split_once('=').unwrap());
    pairs.map(|(key, value)| (key.to_owned(), json!(value))).collect::<Map<_, _>>().into()
}

#[test]
fn annotations_are_within_the_bounds_of_the_namespace_in_the_managers_words() {
    for (chosen, mode, said) in CHOICES {
        let mut asked = pod(json!({"vcuda.io/memory": "4Gi", "vcuda.io/cores": "30"}));
        asked["metadata"]["annotations"] = annotations(&format!("{chosen} vcuda.io/mode={mode}"));
        let answer = admit("team", &asked, &strict()).map_err(|refusal| refusal.to_string());
        match *said {
            "-" => {
                let made = answer.unwrap_or_else(|error| panic!("{chosen}: {error}"));
                validate("team", &made, &strict()).unwrap();
            }
            said => {
                let place = "; the bound is namespaces.\"*\" in the manager's configuration";
                assert_eq!(answer.unwrap_err(), format!("container main: {said}{place}"), "{chosen}");
                // Of a namespace that has more, the same pod is admitted, and the other page refuses what this one missed.
                let free = with_bounds(Bound {
                    priority_max: Priority::High,
                    suspendable: true,
                    ..Bound::default()
                });
                let made = admit("team", &asked, &free).unwrap();
                validate("team", &made, &free).unwrap();
                let missed = validate("team", &made, &strict()).map_err(|refusal| refusal.to_string());
                // Whether a claim promises time is not known there: without a promise, burst is best-effort.
                let is_known = *mode == "plugin" || !said.starts_with("policy");
                assert_eq!(missed.is_err(), is_known, "{chosen} {missed:?}");
            }
        }
    }
}

#[test]
fn the_managers_own_check_agrees() {
    let bounds = strict().bounds;
    for policy in Policy::ALL {
        for (priority, weight, most) in [
            (Priority::Low, None, None),
            (Priority::High, Some(300), Some(500)),
            (Priority::Low, Some(301), Some(501)),
        ] {
            let change = QuotaChange {
                policy: Some(policy),
                priority: Some(priority),
                weight,
                cores_max_permille: most.filter(|_| policy == Policy::Burst),
                ..QuotaChange::default()
            };
            let quota = Quota::fixed(Some(1 << 30), 300).merge(&change).unwrap();
            let chosen =
                Chosen { policy: true, priority: true, cores_max: change.cores_max_permille.is_some() };
            let of_manager = bounds.check("team", &bounds.clamped("team", &quota, chosen));
            assert_eq!(bounds.check_change("team", &change, 300), of_manager, "{change:?}");
        }
    }
}

#[test]
fn a_share_without_a_promise_of_time_is_best_effort_by_a_claim() {
    let mut asked = pod(json!({"vcuda.io/memory": "4Gi"}));
    asked["metadata"]["annotations"] =
        annotations("vcuda.io/mode=dra vcuda.io/policy=burst vcuda.io/cores-max=60");
    admit("team", &asked, &strict()).unwrap();
    // By counts it is promised 1 %, and borrows.
    asked["metadata"]["annotations"] = annotations("");
    assert!(refused(&asked, &strict()).contains("policy burst: pods of namespace team"));
}

/// A claim with a request of each kind: `gpu` of 4 GiB and 30 %, `idle` without time, one of a list, one of another driver.
fn claim(parameters: Value, requests: Value) -> Value {
    let share = |cores: &str| json!({"deviceClassName": "vcuda.io", "capacity": {"requests": {"memory": "4Gi", "cores": cores}}});
    let mut large = share("60");
    large["name"] = json!("large");
    json!({"metadata": {"name": "c"}, "spec": {"devices": {
        "requests": [
            {"name": "gpu", "exactly": share("30")},
            {"name": "idle", "exactly": {"deviceClassName": "shares", "capacity": {"requests": {"memory": "4Gi"}}}},
            {"name": "either", "firstAvailable": [large, {"name": "small", "deviceClassName": "vcuda.io"}]},
            {"name": "nic", "exactly": {"deviceClassName": "nic.example.com"}},
            {"name": "see", "exactly": {"deviceClassName": "vcuda.io", "adminAccess": true}},
        ],
        "config": [
            {"requests": requests, "opaque": {"driver": "vcuda.io", "parameters": parameters}},
            {"opaque": {"driver": "nic.example.com", "parameters": {"polcy": 7}}},
        ],
    }}})
}

fn config(more: Value) -> Value {
    let mut config = json!({"apiVersion": "vcuda.io/v1alpha1", "kind": "VcudaConfig"});
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    config
}

#[test]
fn claims_are_within_the_bounds_of_the_namespace_in_the_managers_words() {
    for (parameters, requests, said) in [
        (json!({}), json!([]), "-"),
        (json!({"policy": "best-effort", "priority": "low", "weight": 300}), json!([]), "-"),
        (json!({"policy": "burst"}), json!(["idle", "nic", "see"]), "-"),
        (json!({"policy": "burst", "whole": true}), json!([]), "-"),
        (
            json!({"policy": "burst"}),
            json!([]),
            "request gpu: policy burst: pods of namespace team may have fixed or best-effort",
        ),
        (json!({"policy": "burst"}), json!(["either"]), "request either/large: policy burst: pods"),
        (json!({"policy": "burst"}), json!(["either/small"]), "-"),
        (
            json!({"priority": "normal"}),
            json!(["idle"]),
            "request idle: priority normal: pods of namespace team may have at most low",
        ),
        (
            json!({"weight": "301"}),
            json!(["either/small"]),
            "request either/small: weight 301: pods of namespace team may have at most 300",
        ),
        (
            json!({"suspendable": true}),
            json!(["idle"]),
            "request idle: suspendable true: pods of namespace team may not be suspended",
        ),
        (json!({"priority": "high"}), json!(["nic", "see"]), "-"),
        (json!({"polcy": "burst"}), json!([]), "parameters of driver vcuda.io: unknown field `polcy`"),
        (
            json!({"weight": 0}),
            json!(["gpu"]),
            "parameters of driver vcuda.io: weight \"0\": write a whole number of 1 to 10000",
        ),
    ] {
        let alone = claim(config(parameters), requests);
        let template = json!({"metadata": {"name": "t"}, "spec": {"spec": alone["spec"]}});
        for object in [alone, template] {
            let answer = validate_claim("team", &object, &strict()).map_err(|refusal| refusal.to_string());
            match (said, answer) {
                ("-", answer) => answer.unwrap(),
                (said, answer) => {
                    let refusal = answer.unwrap_err();
                    assert!(refusal.starts_with(said), "{refusal}");
                }
            }
        }
    }
}

/// Kubernetes would round 16 bytes up to the least share.
#[test]
fn a_claims_memory_has_a_unit() {
    let refusal = |class: &str, memory: &str| {
        let exactly = json!({"deviceClassName": class, "capacity": {"requests": {"memory": memory}}});
        let spec = json!({"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}});
        validate_claim("team", &json!({"spec": {"spec": spec}}), &strict())
            .err()
            .map(|refusal| refusal.to_string())
    };
    let said = "request gpu: memory: '16' is less than 1 MiB, as a number without a unit is bytes: write for example 4Gi";
    assert_eq!(refusal("vcuda.io", "16").as_deref(), Some(said));
    assert!(refusal("vcuda.io-suspendable", "16").is_some());
    assert_eq!((refusal("vcuda.io", "16Gi"), refusal("gpu.example.com", "16")), (None, None));
}

#[test]
fn a_claims_maximum_is_bounded_and_its_annotations_win() {
    let rules = with_bounds(Bound { cores_max_permille: 500, ..Bound::default() });
    let refusal = |most: u32, annotations: Value| {
        let mut claim = claim(config(json!({"policy": "burst", "coresMax": most})), json!([]));
        claim["metadata"]["annotations"] = annotations;
        validate_claim("team", &claim, &rules).map_err(|refusal| refusal.to_string())
    };
    refusal(50, json!({})).unwrap();
    assert!(
        refusal(51, json!({}))
            .unwrap_err()
            .contains("request gpu: cores-max 51 %: pods of namespace team may have at most 50 %")
    );
    // The promise is the least maximum.
    assert!(refusal(61, json!({"vcuda.io/cores-max": "50"})).is_ok());
    assert!(refusal(50, json!({"vcuda.io/priority": "high"})).unwrap_err().contains("priority high"));
    assert!(
        refusal(50, json!({"vcuda.io/prority": "low"})).unwrap_err().contains("there is none of this name")
    );
    // Pods that use a claim of theirs, of unknown amounts.
    let mut user = json!({"metadata": {"annotations": annotations("vcuda.io/priority=high")}, "spec": {"containers": [{"name": "main"}]}});
    validate("team", &user, &rules).unwrap();
    user["spec"]["containers"][0]["resources"] = json!({"claims": [{"name": "gpu"}]});
    assert!(
        validate("team", &user, &rules).unwrap_err().to_string().starts_with("container main: priority high")
    );
}

/// Asking for the memory that suspendable pods take turns in is asking to be suspendable.
#[test]
fn memory_for_suspendable_pods_is_for_namespaces_that_may_have_them() {
    let free = |mode| Rules { mode, ..with_bounds(Bound { suspendable: true, ..Bound::default() }) };
    let mut asked = pod(json!({"vcuda.io/suspendable-memory": "4Gi", "vcuda.io/cores": "30"}));
    let refused = admit("team", &asked, &strict()).unwrap_err().to_string();
    assert!(refused.contains("suspendable true: pods of namespace team may not be suspended"), "{refused}");
    let made = admit("team", &asked, &free(Mode::Plugin)).unwrap();
    assert_eq!(limits(&made)["vcuda.io/suspendable-memory"], "16");
    validate("team", &made, &free(Mode::Plugin)).unwrap();
    let claimed = admit("team", &asked, &free(Mode::Dra)).unwrap();
    let template = super::template(&claimed).unwrap().object;
    assert_eq!(
        template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"],
        "vcuda.io-suspendable"
    );
    assert_eq!(limits(&claimed).get("vcuda.io/suspendable-memory"), None);
    asked["metadata"]["annotations"] = json!({"vcuda.io/suspendable": "false"});
    let refused = admit("team", &asked, &free(Mode::Plugin)).unwrap_err().to_string();
    assert!(refused.contains("it asks for memory that suspendable containers take turns in"), "{refused}");
}
