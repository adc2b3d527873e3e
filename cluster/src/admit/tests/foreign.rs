//! Requests of other systems, and the page about them.

use super::super::foreign::{names, resources};
use super::*;

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
/// Annotations and variables by which others ask, with `main` for the container's name.
const OTHERS: &[(&str, &str, &str)] = &[
    (
        "KAI Scheduler, Run:ai",
        "gpu-fraction",
        "part of each GPU's memory and time; needs `cluster.gpuMemory`",
    ),
    ("KAI Scheduler, Run:ai", "gpu-fraction.limit", "part of each GPU's memory; needs `cluster.gpuMemory`"),
    (
        "KAI Scheduler, Run:ai",
        "kai.scheduler/container.main.gpu-memory.portion.limit",
        "the same, as KAI Scheduler's webhook writes it",
    ),
    ("KAI Scheduler, Run:ai", "gpu-memory", "MiB on each GPU"),
    ("KAI Scheduler, Run:ai", "gpu-memory.limit", "size on each GPU, such as `8Gi`"),
    ("KAI Scheduler, Run:ai", "gpu-fraction-num-devices", "GPUs"),
    ("KAI Scheduler, Run:ai", "gpu-fraction-container-name", "the container; without it the first one"),
    ("KAI Scheduler, Run:ai", "kai.scheduler/gpu-compute-sharing-mode", "goes: time is shared in turns here"),
    ("NvFractions", "nvidia.com/container.main.gpu-memory.request", "size on each GPU, if there is no limit"),
    ("NvFractions", "nvidia.com/container.main.gpu-memory.limit", "size on each GPU"),
    ("NvFractions", "nvidia.com/container.main.gpu-compute.portion", "part of each GPU's time"),
    ("NvFractions", "nvidia.com/container.main.gpu-compute.mode", "goes"),
    ("NvFractions", "nvidia.com/container.main.gpus.devices", "goes"),
    (
        "NVIDIA's container toolkit",
        "NVIDIA_GPU_MEMORY_REQUEST",
        "MiB on each GPU of `nvidia.com/gpu`, if there is no limit",
    ),
    ("NVIDIA's container toolkit", "NVIDIA_GPU_MEMORY_LIMIT", "MiB on each GPU of `nvidia.com/gpu`"),
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
gpu-fraction=0.5                                                                            -> 1 80 50
gpu-fraction=0.3333333 gpu-fraction-num-devices=2                                           -> 2 106 66
gpu-fraction=0.3 kai.scheduler/container.main.gpu-memory.portion.limit=0.6                   -> 1 96 30
gpu-memory=4096 gpu-memory.limit=8Gi                                                        -> 1 32 -
nvidia.com/container.main.gpu-memory.request=7680Mi                                         -> 1 30 -
nvidia.com/container.main.gpu-memory.limit=8Gi nvidia.com/container.main.gpu-compute.portion=0.25 -> 1 32 25
nvidia.com/gpu=1 NVIDIA_GPU_MEMORY_LIMIT=3000                                               -> 1 12 -
";

/// A pod whose container asks by these resources, annotations and variables.
fn asking<'a>(request: impl IntoIterator<Item = (&'a str, &'a str)>) -> Value {
    let (mut limits, mut annotations, mut variables) = (Map::new(), Map::new(), Vec::new());
    for (name, value) in request {
        if name.starts_with("NVIDIA_") {
            variables.push(json!({"name": name, "value": value}));
        } else if name.starts_with("vcuda.io/") || resources().any(|one| one == name) {
            limits.insert(name.to_owned(), json!(value));
        } else {
            annotations.insert(name.to_owned(), json!(value));
        }
    }
    let mut pod = pod(limits.into());
    if !annotations.is_empty() {
        pod["spec"]["schedulerName"] = json!("kai-scheduler");
    }
    pod["metadata"]["annotations"] = annotations.into();
    pod["spec"]["containers"][0]["env"] = variables.into();
    pod
}

#[test]
fn other_systems_requests_become_ours() {
    let rules = Rules { gpu_memory_bytes: Some(40 << 30), ..Rules::default() };
    for row in CONVERSIONS.trim().lines() {
        let (theirs, ours) = row.split_once("->").unwrap();
        let request = theirs.split_whitespace().map(|one| one.split_once('=').unwrap());
        let [gpu, memory, cores] = ours.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        let made = admit("team", &asking(request), &rules).unwrap_or_else(|error| panic!("{row}: {error}"));
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
const PAGE: &str = "<!-- Made from cluster/src/admit/tests/foreign.rs by VCUDA_UPDATE=1 cargo test -p vcuda-cluster other_systems -->
# Other systems' requests

What the webhook takes from a container's resources, of one named `main` from annotations and variables, those of KAI Scheduler and Run:ai if the pod names their scheduler ([migration](../migration.md)).

| system | name | unit |
|---|---|---|
";

#[test]
fn the_page_of_other_systems_is_up_to_date() {
    let mut page = PAGE.to_owned();
    for (system, resource, unit) in UNITS.iter().chain(OTHERS) {
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
    assert_eq!(listed, resources().collect());
    let listed: BTreeSet<String> = OTHERS.iter().map(|(_, name, _)| (*name).to_owned()).collect();
    assert_eq!(listed, names().collect());
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
            "it asks for nvidia.com/gpumem and for aliyun.com/gpu-mem",
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

/// Parts of a GPU that are refused, and the words.
const REFUSED_FRACTIONS: &[(&[(&str, &str)], &str)] = &[
    (&[("gpu-fraction", "0.5")], "container main: gpu-fraction: it is a part of a GPU's memory"),
    (&[("gpu-fraction", "0.5"), ("gpu-fraction.limit", "0.3")], "the limit of memory is below its request"),
    (&[("gpu-memory.limit", "8192")], "gpu-memory.limit: '8192' is no size of a MiB or more"),
    (&[("gpu-memory.limit", "1Ei")], "gpu-memory.limit: it is more memory than a node has"),
    (&[("gpu-memory", "4294967296")], "gpu-memory: it is more memory than a node has"),
    (&[("nvidia.com/gpumem", "4294967296")], "nvidia.com/gpumem: it is more memory than a node has"),
    (&[("gpu-fraction", "1.5")], "gpu-fraction: 1.5 is no part of a GPU"),
    (&[("gpu-fraction", "0")], "gpu-fraction: 0 is no part of a GPU"),
    (&[("gpu-fraction", "NaN")], "gpu-fraction: NaN is no part of a GPU"),
    (&[("gpu-memory", "4Gx")], "gpu-memory: '4Gx' is no number of MiB"),
    (&[("gpu-memory", "4096"), ("gpu-memory.limit", "2Gi")], "the limit of memory is below its request"),
    (&[("nvidia.com/container.other.gpu-memory.limit", "4Gi")], "the pod has no container of the name"),
    (
        &[("nvidia.com/container.main.gpu-memory.limit", "4Gi"), ("gpu-fraction-container-name", "other")],
        "there are fractions for several containers",
    ),
    (&[("gpu-memory", "4096"), ("runai/shared-gpu-configmap", "a")], "cluster.excludedNamespaces"),
    (&[("gpu-memory", "4096"), ("vcuda.io/memory", "16")], "it asks for vcuda.io/memory and for gpu-memory"),
    (&[("gpu-memory", "4096"), ("nvidia.com/gpu", "1")], "it asks for gpu-memory and for nvidia.com/gpu"),
    (
        &[("vcuda.io/memory", "16"), ("NVIDIA_GPU_MEMORY_LIMIT", "4096")],
        "it asks for vcuda.io/memory and for NVIDIA_GPU_MEMORY_LIMIT",
    ),
    (&[("nvidia.com/gpu", "1"), ("NVIDIA_GPU_MEMORY_LIMIT", "4Gi")], "NVIDIA_GPU_MEMORY_LIMIT"),
    (
        &[("nvidia.com/gpu", "1"), ("NVIDIA_GPU_MEMORY_LIMIT", "4"), ("NVIDIA_GPU_MEMORY_REQUEST", "5")],
        "the limit of memory is below its request",
    ),
];

#[test]
fn a_fraction_that_is_none_or_is_asked_for_twice_is_refused() {
    for (theirs, said) in REFUSED_FRACTIONS {
        let error = refused(&asking(theirs.iter().copied()), &Rules::default());
        assert!(error.contains(said), "{theirs:?}: {error}");
    }
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

/// Annotations and variables that ask go with their scheduler; what asks for nothing stays.
#[test]
fn only_what_asks_for_a_part_is_taken() {
    let mut kai = asking([("gpu-memory", "4096"), ("kai.scheduler/gpu-compute-sharing-mode", "sm-sharing")]);
    kai["metadata"]["annotations"]["a"] = json!("b");
    let made = admitted(&kai);
    assert_eq!(made["metadata"]["annotations"], json!({"a": "b", "vcuda.io/policy.main": "burst"}));
    assert_eq!(made["spec"]["schedulerName"], "default-scheduler");
    let made = admitted(&asking([("nvidia.com/gpu", "1"), ("NVIDIA_GPU_MEMORY_LIMIT", "4096")]));
    assert_eq!(made["spec"]["containers"][0]["env"], json!([]));
    // Without a GPU the variable means nothing, and neither a mode nor a name for another scheduler asks for a part.
    // The last of several counts, and an empty one asks for nothing.
    let mut twice = asking([("nvidia.com/gpu", "1"), ("NVIDIA_GPU_MEMORY_LIMIT", "80000")]);
    let env = twice["spec"]["containers"][0]["env"].as_array_mut().unwrap();
    env.push(json!({"name": "NVIDIA_GPU_MEMORY_LIMIT", "value": "4096"}));
    assert_eq!(limits(&admitted(&twice))["vcuda.io/memory"], "16");
    twice["spec"]["containers"][0]["env"][1]["value"] = json!("");
    assert_eq!(admitted(&twice), twice);
    // An annotation without a domain is KAI Scheduler's only under its scheduler.
    let mut hami = pod(json!({"nvidia.com/gpumem": "3000"}));
    hami["metadata"]["annotations"] = json!({"gpu-memory": "mine"});
    assert_eq!(admitted(&hami)["metadata"]["annotations"]["gpu-memory"], "mine");
    let mut other = asking([("gpu-memory", "4096")]);
    other["spec"]["schedulerName"] = json!("default-scheduler");
    for plain in [
        other,
        asking([("NVIDIA_GPU_MEMORY_LIMIT", "4096")]),
        asking([("nvidia.com/gpu", "1"), ("nvidia.com/container.main.gpu-compute.mode", "time-slicing")]),
    ] {
        assert_eq!(admitted(&plain), plain);
    }
}
