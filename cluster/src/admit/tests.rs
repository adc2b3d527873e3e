//! What becomes of pods, by table.

use vcuda_quota::Priority;
use vcuda_quota::pods::bounds::{Bound, Bounds};

use super::*;

mod bounds;

fn pod(limits: Value) -> Value {
    json!({
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits.clone(), "requests": limits}}]},
    })
}

fn admitted(pod: &Value) -> Value {
    admit("team", pod, &Rules::default()).unwrap()
}

fn refused(pod: &Value, rules: &Rules) -> String {
    admit("team", pod, rules).unwrap_err().to_string()
}

/// Rules with this bound for all namespaces.
fn with_bounds(bound: Bound) -> Rules {
    Rules { makes_claims: true, bounds: Bounds::new([("*".to_owned(), bound)].into()), ..Rules::default() }
}

/// Limits of the first container; requests are the same.
fn limits(pod: &Value) -> Value {
    let resources = &pod["spec"]["containers"][0]["resources"];
    assert_eq!(resources["limits"], resources["requests"], "{pod}");
    resources["limits"].clone()
}

#[test]
fn a_pod_without_a_share_stays_as_it_is() {
    let mut plain = pod(json!({"cpu": "1", "nvidia.com/gpu": "1"}));
    plain["spec"]["schedulerName"] = json!("hami-scheduler");
    assert_eq!(admitted(&plain), plain);
    let misspelt =
        json!({"metadata": {"annotations": {"vcuda.io/polcy": "burst"}}, "spec": {"containers": []}});
    assert!(refused(&misspelt, &Rules::default()).contains("vcuda.io/polcy: there is none of this name"));
}

#[test]
fn sizes_become_counts_and_defaults_are_written() {
    let admitted_pod = admitted(&pod(json!({"vcuda.io/memory": "4Gi", "vcuda.io/cores": "30"})));
    assert_eq!(
        limits(&admitted_pod),
        json!({"vcuda.io/gpu": "1", "vcuda.io/memory": "16", "vcuda.io/cores": "30"})
    );
    assert_eq!(admitted_pod["metadata"], json!({"name": "a"}));
    // A second call changes nothing.
    assert_eq!(admitted(&admitted_pod), admitted_pod);

    let unpromised = admitted(&pod(json!({"vcuda.io/memory": "4Gi"})));
    assert_eq!(limits(&unpromised)["vcuda.io/cores"], "1");
    assert_eq!(unpromised["metadata"]["annotations"], json!({"vcuda.io/policy.main": "burst"}));
    assert_eq!(admitted(&unpromised), unpromised);

    let fraction = admitted(&pod(json!({"vcuda.io/memory": "16", "vcuda.io/cores": "12500m"})));
    assert_eq!(limits(&fraction)["vcuda.io/cores"], "13");
    assert_eq!(fraction["metadata"]["annotations"], json!({"vcuda.io/cores.main": "12.5"}));
}

#[test]
fn annotations_are_checked_in_the_plugins_words() {
    for (annotations, limits, said) in [
        (
            json!({"vcuda.io/policy": "Burst"}),
            json!({"vcuda.io/memory": "16", "vcuda.io/cores": "30"}),
            "annotation vcuda.io/policy \"Burst\": write fixed, burst or best-effort",
        ),
        (
            json!({"vcuda.io/memory": "8Gi"}),
            json!({"vcuda.io/memory": "16", "vcuda.io/cores": "30"}),
            "container main: annotation vcuda.io/memory: 8 GiB is more than the 4 GiB",
        ),
        (
            json!({"vcuda.io/policy.mian": "burst"}),
            json!({"vcuda.io/memory": "16", "vcuda.io/cores": "30"}),
            "no container of this name with a share of a GPU; it has main",
        ),
        (
            json!({"vcuda.io/policy": "best-effort"}),
            json!({"vcuda.io/memory": "16"}),
            "container main: it asks for vcuda.io/gpu: 1 and vcuda.io/memory: 16 and for no vcuda.io/cores: add",
        ),
        (json!({"vcuda.io/mode": "claims"}), json!({"vcuda.io/memory": "16"}), "write plugin or dra"),
        (
            json!({}),
            json!({"vcuda.io/gpu": "2", "vcuda.io/memory": "33", "vcuda.io/cores": "30"}),
            "container main: vcuda.io/memory: 33 is the total for 2 GPUs, which get the same each",
        ),
    ] {
        let mut pod = pod(limits);
        pod["metadata"]["annotations"] = annotations;
        let error = refused(&pod, &Rules::default());
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn tolerations_and_runtime_class_are_added_once() {
    let toleration = json!({"key": "nvidia.com/gpu", "operator": "Exists"});
    let rules = Rules {
        tolerations: vec![toleration.clone()],
        runtime_class: Some("nvidia".to_owned()),
        ..Rules::default()
    };
    let asked = pod(json!({"vcuda.io/memory": "16", "vcuda.io/cores": "30"}));
    let once = admit("team", &asked, &rules).unwrap();
    assert_eq!(once["spec"]["tolerations"], json!([toleration]));
    assert_eq!(once["spec"]["runtimeClassName"], "nvidia");
    assert_eq!(admit("team", &once, &rules).unwrap(), once);
    let mut own = asked;
    own["spec"]["runtimeClassName"] = json!("other");
    assert_eq!(admit("team", &own, &rules).unwrap()["spec"]["runtimeClassName"], "other");
    let plain = pod(json!({"cpu": "1"}));
    assert_eq!(admit("team", &plain, &rules).unwrap(), plain);
}

/// Other systems' resources and their units, as docs/generated/migration.md shows them.
const UNITS: &[(&str, &str, &str)] = &[
    ("HAMi", "nvidia.com/gpu", "GPUs"),
    ("HAMi", "nvidia.com/gpumem", "MiB on each GPU"),
    ("HAMi", "nvidia.com/gpumem-percentage", "percent of each GPU's memory; needs `cluster.gpuMemory`"),
    ("HAMi", "nvidia.com/gpucores", "percent of each GPU's time"),
    ("HAMi", "nvidia.com/priority", "0 becomes the annotation `vcuda.io/priority: high`, 1 `low`"),
    (
        "GaiaGPU (gpu-manager)",
        "tencent.com/vcuda-core",
        "percent; from 100 on whole GPUs, so many as hundreds",
    ),
    ("GaiaGPU (gpu-manager)", "tencent.com/vcuda-memory", "256 MiB"),
    ("qGPU (TKE)", "tke.cloud.tencent.com/qgpu-core", "percent, in fives; from 100 on whole GPUs"),
    ("qGPU (TKE)", "tke.cloud.tencent.com/qgpu-memory", "GiB"),
    (
        "cGPU (ACK), gpushare",
        "aliyun.com/gpu-mem",
        "GiB on one GPU; gpushare also MiB (`cluster.aliyunUnit`)",
    ),
    ("cGPU (ACK), gpushare", "aliyun.com/gpu-core.percentage", "percent"),
    ("Volcano vGPU", "volcano.sh/vgpu-number", "GPUs"),
    ("Volcano vGPU", "volcano.sh/vgpu-memory", "MiB x `--gpu-memory-factor`, on each GPU"),
    (
        "Volcano vGPU",
        "volcano.sh/vgpu-memory-percentage",
        "percent of each GPU's memory; needs `cluster.gpuMemory`",
    ),
    ("Volcano vGPU", "volcano.sh/vgpu-cores", "percent of each GPU's time"),
    ("Koordinator", "koordinator.sh/gpu.shared", "GPUs"),
    ("Koordinator", "koordinator.sh/gpu-core", "percent, a total (to verify for several GPUs)"),
    ("Koordinator", "koordinator.sh/gpu-memory", "bytes, a total, such as `8Gi`"),
    (
        "Koordinator",
        "koordinator.sh/gpu-memory-ratio",
        "percent of a GPU's memory; needs `cluster.gpuMemory`",
    ),
    ("Elastic GPU", "elasticgpu.io/gpu-core", "percent"),
    ("Elastic GPU", "elasticgpu.io/gpu-memory", "not documented, so refused; see `kubectl describe node`"),
];
/// A container's request, and the counts that it becomes, on GPUs of 40 GiB. `-` is what a container without a share of time has.
const CONVERSIONS: &str = "
nvidia.com/gpu=2 nvidia.com/gpumem=3000 nvidia.com/gpucores=30                              -> 2 24 60
nvidia.com/gpu=1 nvidia.com/gpumem=3k                                                       -> 1 12 -
nvidia.com/gpumem=3000 nvidia.com/gpucores=30                                               -> 1 12 30
nvidia.com/gpu=1 nvidia.com/gpumem-percentage=25 nvidia.com/gpucores=30                     -> 1 40 30
tencent.com/vcuda-core=30 tencent.com/vcuda-memory=16                                       -> 1 16 30
tencent.com/vcuda-core=200                                                                  -> 2 320 200
tencent.com/vcuda-memory=16                                                                 -> 1 16 -
tke.cloud.tencent.com/qgpu-core=30 tke.cloud.tencent.com/qgpu-memory=4                      -> 1 16 30
tke.cloud.tencent.com/qgpu-core=100                                                         -> 1 160 100
aliyun.com/gpu-mem=3 aliyun.com/gpu-core.percentage=30                                      -> 1 12 30
aliyun.com/gpu-mem=3                                                                        -> 1 12 -
volcano.sh/vgpu-number=2 volcano.sh/vgpu-memory=3000 volcano.sh/vgpu-cores=30               -> 2 24 60
koordinator.sh/gpu.shared=1 koordinator.sh/gpu-core=50 koordinator.sh/gpu-memory=8Gi        -> 1 32 50
koordinator.sh/gpu.shared=2 koordinator.sh/gpu-core=50 koordinator.sh/gpu-memory=8Gi        -> 2 32 50
koordinator.sh/gpu-core=50 koordinator.sh/gpu-memory-ratio=50                               -> 1 80 50
";

#[test]
fn other_systems_requests_become_ours() {
    let rules = Rules { gpu_memory_bytes: Some(40 << 30), ..Rules::default() };
    for row in CONVERSIONS.trim().lines() {
        let (theirs, ours) = row.split_once("->").unwrap();
        let request: Map<String, Value> = theirs
            .split_whitespace()
            .map(|one| one.split_once('=').unwrap())
            .map(|(name, amount)| (name.to_owned(), json!(amount)))
            .collect();
        let [gpu, memory, cores] = ours.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        let made =
            admit("team", &pod(request.into()), &rules).unwrap_or_else(|error| panic!("{row}: {error}"));
        let counts = json!({
            "vcuda.io/gpu": gpu, "vcuda.io/memory": memory, "vcuda.io/cores": if cores == "-" { "1" } else { cores },
        });
        assert_eq!(limits(&made), counts, "{row}");
        let policy = made.pointer("/metadata/annotations/vcuda.io~1policy.main");
        assert_eq!(policy.is_some(), cores == "-", "{row}");
        assert_eq!(admit("team", &made, &rules).unwrap(), made, "{row}");
    }
}

/// What the page says before its tables.
const PAGE: &str = "<!-- Made from cluster/src/admit/tests.rs by VCUDA_UPDATE=1 cargo test -p vcuda-cluster other_systems -->
# Other systems' requests

What the webhook takes from a container's request ([migration](../migration.md)).

| system | resource | unit |
|---|---|---|
";

#[test]
fn the_page_of_other_systems_is_up_to_date() {
    let mut page = PAGE.to_owned();
    for (system, resource, unit) in UNITS {
        page += &format!("| {system} | `{resource}` | {unit} |\n");
    }
    page += "\nRequests and what they become, on GPUs of 40 GiB and with chunks of 256 MiB. A test makes each of them. Without a share of time \
             a container gets 1 % and, by the annotation `vcuda.io/policy: burst`, idle time.\n\n\
             | request | `vcuda.io/gpu` | `vcuda.io/memory` | `vcuda.io/cores` |\n|---|---|---|---|\n";
    for row in CONVERSIONS.trim().lines() {
        let (theirs, ours) = row.split_once("->").unwrap();
        let theirs: Vec<String> =
            theirs.split_whitespace().map(|one| format!("`{}`", one.replace('=', ": "))).collect();
        let ours: Vec<&str> =
            ours.split_whitespace().map(|count| if count == "-" { "1, burst" } else { count }).collect();
        page += &format!("| {} | {} |\n", theirs.join(", "), ours.join(" | "));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/generated/migration.md");
    if std::env::var_os("VCUDA_UPDATE").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == page,
        "docs/generated/migration.md is stale: its first line has the command that writes it"
    );
}

/// A name that the page lists, and the webhook does not know, would leave a pod Pending for ever.
#[test]
fn other_systems_resources_are_all_on_the_page_and_converted() {
    for (_, name, _) in UNITS {
        let asked = pod(json!({*name: "1"}));
        let is_left = admit("team", &asked, &Rules::default()).is_ok_and(|made| made == asked);
        // Without HAMi's other resources this one asks for whole GPUs.
        assert_eq!(is_left, *name == "nvidia.com/gpu", "{name}");
    }
    let listed: BTreeSet<&str> = UNITS.iter().map(|(_, name, _)| *name).collect();
    assert_eq!(listed, foreign::resources().collect());
}

#[test]
fn units_of_other_systems_follow_their_settings() {
    let rules = Rules {
        aliyun_unit: AliyunUnit::Mebibytes,
        volcano_memory_factor: 10,
        chunk_bytes: 1 << 30,
        ..Rules::default()
    };
    for (theirs, chunks) in [
        (json!({"aliyun.com/gpu-mem": "3000"}), "3"),
        (json!({"volcano.sh/vgpu-memory": "300"}), "3"),
        (json!({"tencent.com/vcuda-memory": "16"}), "4"),
        (json!({"nvidia.com/gpumem": "1025"}), "2"),
    ] {
        let made = admit("team", &pod(theirs.clone()), &rules).unwrap();
        assert_eq!(limits(&made)["vcuda.io/memory"], chunks, "{theirs}");
    }
}

#[test]
fn what_has_no_counterpart_is_refused_with_the_remedy() {
    for (theirs, said) in [
        (
            json!({"nvidia.com/gpumem-percentage": "25"}),
            "nvidia.com/gpumem-percentage: it is a part of a GPU's memory",
        ),
        (json!({"tencent.com/vcuda-core": "100"}), "tencent.com/vcuda-core: it is a part of a GPU's memory"),
        (
            json!({"tencent.com/vcuda-core": "150", "tencent.com/vcuda-memory": "16"}),
            "150 is more than one GPU and not whole",
        ),
        (
            json!({"elasticgpu.io/gpu-memory": "16", "elasticgpu.io/gpu-core": "10"}),
            "its unit is not documented: write vcuda.io/memory",
        ),
        (
            json!({"nvidia.com/gpumem": "3000", "vcuda.io/memory": "16"}),
            "it asks for vcuda.io/memory and for nvidia.com/gpumem",
        ),
        (
            json!({"nvidia.com/gpumem": "3000", "aliyun.com/gpu-mem": "3"}),
            "it asks for aliyun.com/gpu-mem and for nvidia.com/gpumem",
        ),
        (json!({"nvidia.com/gpumem": "3000", "nvidia.com/priority": "2"}), "write 0 for high or 1 for low"),
        (json!({"nvidia.com/gpumem": "1.5"}), "container main: nvidia.com/gpumem: 1.5 is not a whole number"),
        (
            json!({"koordinator.sh/gpu.shared": "2", "koordinator.sh/gpu-memory": "5Gi", "koordinator.sh/gpu-core": "51"}),
            "does not divide by 2",
        ),
    ] {
        let error = refused(&pod(theirs), &Rules::default());
        assert!(error.contains(said), "{error}");
    }
    let mut chosen = pod(json!({"nvidia.com/gpumem": "3000"}));
    chosen["metadata"]["annotations"] = json!({"nvidia.com/use-gpuuuid": "GPU-1"});
    assert!(refused(&chosen, &Rules::default()).contains("choose a node by its labels"));
}

#[test]
fn parts_of_other_systems_go_with_their_resources() {
    let mut theirs = pod(json!({"nvidia.com/gpumem": "3000", "nvidia.com/priority": "0", "cpu": "1"}));
    theirs["metadata"]["labels"] = json!({"koordinator.sh/gpu-isolation-provider": "HAMi-core", "app": "a"});
    theirs["spec"]["schedulerName"] = json!("hami-scheduler");
    theirs["spec"]["containers"][0]["env"] = json!([
        {"name": "CUDA_DEVICE_MEMORY_LIMIT_0", "value": "1g"}, {"name": "GPU_CORE_UTILIZATION_POLICY", "value": "force"},
        {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"},
    ]);
    assert!(refused(&theirs, &Rules::default()).contains("priority high: pods of namespace team"));
    let allows_high = with_bounds(Bound { priority_max: Priority::High, ..Bound::default() });
    let made = admit("team", &theirs, &allows_high).unwrap();
    assert_eq!(
        made["metadata"]["annotations"],
        json!({"vcuda.io/priority.main": "high", "vcuda.io/policy.main": "burst"})
    );
    assert_eq!(made["metadata"]["labels"], json!({"app": "a"}));
    assert_eq!(made["spec"]["schedulerName"], "default-scheduler");
    assert_eq!(
        made["spec"]["containers"][0]["env"],
        json!([{"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"}])
    );
    assert_eq!(limits(&made)["cpu"], "1");

    for (theirs, ours) in [("fixed-share", "fixed"), ("best-effort", "best-effort"), ("burst-share", "burst")]
    {
        let mut qgpu =
            pod(json!({"tke.cloud.tencent.com/qgpu-memory": "4", "tke.cloud.tencent.com/qgpu-core": "30"}));
        qgpu["spec"]["nodeSelector"] =
            json!({"tke.cloud.tencent.com/qgpu-schedule-policy": theirs, "a": "b"});
        let made = admitted(&qgpu);
        assert_eq!(made["metadata"]["annotations"], json!({"vcuda.io/policy": ours}));
        assert_eq!(made["spec"]["nodeSelector"], json!({"a": "b"}));
    }
}

#[test]
fn limits_become_a_claim() {
    let mut asked =
        pod(json!({"vcuda.io/gpu": "2", "vcuda.io/memory": "5000Mi", "vcuda.io/cores": "60", "cpu": "1"}));
    asked["metadata"] = json!({
        "generateName": "web-", "annotations": {"vcuda.io/mode": "dra", "vcuda.io/policy": "burst"},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true}],
    });
    asked["spec"]["initContainers"] = json!([asked["spec"]["containers"][0].clone()]);
    asked["spec"]["initContainers"][0]["name"] = json!("init");
    let rules = Rules { makes_claims: true, ..Rules::default() };
    let made = admit("team", &asked, &rules).unwrap();
    let template = template(&made).unwrap();
    let request = |name: &str| json!({"name": name, "exactly": {"deviceClassName": "vcuda.io", "capacity": {"requests": {"memory": "2500Mi", "cores": "30"}}}});
    assert_eq!(
        template.object["spec"]["spec"]["devices"],
        json!({
            "requests": [request("c0-gpu0"), request("c0-gpu1")],
            "constraints": [{"requests": ["c0-gpu0", "c0-gpu1"], "distinctAttribute": "vcuda.io/uuid"}],
        })
    );
    assert_eq!(
        template.object["metadata"]["ownerReferences"],
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u"}])
    );
    assert_eq!(
        made["spec"]["resourceClaims"],
        json!([{"name": "vcuda", "resourceClaimTemplateName": template.name}])
    );
    let uses = json!([{"name": "vcuda", "request": "c0-gpu0"}, {"name": "vcuda", "request": "c0-gpu1"}]);
    for list in ["containers", "initContainers"] {
        let resources = &made["spec"][list][0]["resources"];
        assert_eq!(resources["limits"], json!({"cpu": "1"}));
        assert_eq!(resources["claims"], uses);
    }
    assert_eq!(made["metadata"]["annotations"]["vcuda.io/policy"], "burst");
    assert_eq!(made["metadata"]["annotations"].get("vcuda.io/mode"), None);
    validate("team", &made, &rules).unwrap();
    // A second call changes nothing; the same request of another owner has another template.
    assert_eq!(admit("team", &made, &rules).unwrap(), made);
    assert_eq!(admit("team", &asked, &rules).unwrap(), made);
    asked["metadata"]["ownerReferences"][0]["uid"] = json!("v");
    let of_another = admit("team", &asked, &rules).unwrap();
    assert_ne!(self::template(&of_another).unwrap().name, template.name);
    // Where no claims are made.
    let error = admit("team", &asked, &Rules::default()).unwrap_err().to_string();
    assert!(error.contains("makes no claims here"), "{error}");
}

/// The template that is made once the API server has the pod.
fn template(made: &Value) -> Option<claims::Template> {
    let mut pod = made.clone();
    pod["metadata"]["namespace"] = json!("team");
    pod["metadata"]["name"] = json!("web-1");
    pod["metadata"]["uid"] = json!("of-the-pod");
    claims::template_of(&serde_json::from_value(pod).unwrap())
}

#[test]
fn a_pod_gets_no_template_but_that_of_a_share() {
    let rules = Rules { mode: Mode::Dra, makes_claims: true, ..Rules::default() };
    let made = admit("team", &pod(json!({"vcuda.io/memory": "16"})), &rules).unwrap();
    assert!(template(&made).is_some());
    let devices = made["metadata"]["annotations"]["claims.vcuda.io/devices"].as_str().unwrap();
    for (from, to) in [
        ("\"vcuda.io\"", "\"vcuda.io-whole\""),
        ("\"exactly\":{", "\"exactly\":{\"adminAccess\":true,"),
        ("{\"requests\"", "{\"config\":[],\"requests\""),
        // Not that of its name.
        ("4Gi", "5Gi"),
    ] {
        let mut other = made.clone();
        other["metadata"]["annotations"]["claims.vcuda.io/devices"] = json!(devices.replacen(from, to, 1));
        assert_ne!(other, made, "{from} in {devices}");
        assert_eq!(template(&other), None, "{to}");
    }
    let mut without = made;
    without["spec"]["resourceClaims"] = json!([]);
    assert_eq!(template(&without), None);
}

#[test]
fn a_claim_that_asks_for_no_time_is_promised_none() {
    let rules = Rules { mode: Mode::Dra, makes_claims: true, ..Rules::default() };
    let asked = pod(json!({"vcuda.io/memory": "1Mi"}));
    let made = admit("team", &asked, &rules).unwrap();
    let template = template(&made).unwrap();
    let requests = &template.object["spec"]["spec"]["devices"]["requests"];
    assert_eq!(requests[0]["exactly"]["capacity"]["requests"], json!({"memory": "64Mi"}));
    // Without a controller the pod is the owner.
    let owner = &template.object["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["uid"]), (&json!("Pod"), &json!("of-the-pod")));
    // The annotation wins over the configuration.
    let mut by_counts = asked;
    by_counts["metadata"]["annotations"] = json!({"vcuda.io/mode": "plugin"});
    let made = admit("team", &by_counts, &rules).unwrap();
    assert_eq!((self::template(&made), &limits(&made)["vcuda.io/memory"]), (None, &json!("1")));
}

#[test]
fn what_would_defeat_the_limits_is_refused_of_pods_with_shares() {
    let rules = Rules::default();
    let mut with = admitted(&pod(json!({"vcuda.io/memory": "16", "vcuda.io/cores": "30"})));
    validate("team", &with, &rules).unwrap();
    with["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    assert!(validate("team", &with, &rules).unwrap_err().to_string().contains("privileged"));
    let mut without = pod(json!({"cpu": "1"}));
    without["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    validate("team", &without, &rules).unwrap();
    without["spec"]["resourceClaims"] = json!([{"name": "vcuda", "resourceClaimTemplateName": "a"}]);
    validate("team", &without, &rules).unwrap_err();
    // The annotation is left over where the other page was not asked.
    let mut missed = pod(json!({"vcuda.io/memory": "16", "vcuda.io/cores": "30"}));
    missed["metadata"]["annotations"] = json!({"vcuda.io/mode": "dra"});
    assert!(
        validate("team", &missed, &rules).unwrap_err().to_string().contains("vcuda.io/mode: there is none")
    );
}
