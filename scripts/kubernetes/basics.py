"""Scenarios of single pods: two on a GPU, new limits while they run, refusals, bounds of namespaces."""
import time

from cluster import CHUNK, Fault, container, pod, states


def two_pods(cluster):
    """Two pods on one GPU, busy at once: each has its own memory and time, and no more."""
    seconds = 20
    asked = {"small": (16, 30), "large": (32, 60)}
    busy = [pod(name, container(memory=memory, cores=cores, run=f"saturate {seconds} 1000000")) for name, (memory, cores) in asked.items()]
    cluster.create(busy)
    cluster.wait_phase(asked, {"Succeeded", "Failed"})
    faults = cluster.wrong_limits(busy)
    figures = {}
    if len({cluster.seen(name)[0][0] for name in asked}) != 1:
        faults.append("they are not on one GPU")
    for name, (_, cores) in asked.items():
        launched = [int(line.split()[1]) for _, line in cluster.log(name) if line.startswith("launched ")]
        share = sum(launched) * 0.001 / seconds * 100
        figures[f"{name} of {cores} %"] = f"{share:.1f} %"
        # What it gets at least depends on who else uses the machine.
        if not 0.5 * cores <= share <= 1.05 * cores:
            faults.append(f"{name} had {share:.1f} % of the time, not {cores} %")
    full = {f"full-{name}": pod(f"full-{name}", container(memory=memory, cores=cores, run=f"quota {memory * CHUNK}"))
            for name, (memory, cores) in asked.items()}
    cluster.create(list(full.values()))
    cluster.wait_phase(full, {"Succeeded", "Failed"})
    exact = [name for name in full if "passed quota" in cluster.text(name)]
    figures["memory exact to the byte"] = f"{len(exact)} of {len(full)}"
    return figures, faults + [f"{name}: {cluster.text(name)[-300:]}" for name in full if name not in exact]


def resize(cluster):
    """A pod that runs is given less and more memory by its annotation."""
    cluster.create([pod("web", container(memory=16, run="poll_limit"))])
    cluster.wait_phase(["web"], {"Running"})
    took, faults = [], []
    for gib in (2, 4, 1, 3, 2):
        begun = time.time()
        cluster.kubectl("annotate", "--overwrite", "pod", "web", f"vcuda.io/memory={gib}Gi")
        answered = time.time()
        said = lambda: [at for at, line in cluster.log("web") if line == f"total {gib << 30}" and at > begun]
        try:
            cluster.wait(60, f"{gib} GiB are seen in the pod", said)
            took.append(max(0.0, said()[0] - answered))
        except Fault as fault:
            faults.append(str(fault))
    figures = {"changes": len(took), "longest after kubectl's end": f"{max(took, default=0):.2f} s"}
    return figures, faults


# Name, (gpu, memory, cores), annotations, what kubelet says of the pod, the documented words.
CONFIG = "CreateContainerConfigError"
# Of claims only some can be so wrong. Those that no GPU could satisfy wait at the scheduler.
REFUSED_CLAIMS = {"percent": "cannot allocate all claims", "large": "cannot allocate all claims", "many": "cannot allocate all claims"}
REFUSED_CLAIMS |= dict.fromkeys(("policy", "name", "container", "more", "bound"), "FailedPrepareDynamicResources")
REFUSED = [
    ("gpu-alone", (1, 0, 0), {}, CONFIG, "asks for vcuda.io/gpu: 1 and for no vcuda.io/memory: add vcuda.io/memory: 16"),
    ("no-gpu", (0, 16, 30), {}, CONFIG, "and for no vcuda.io/gpu: add vcuda.io/gpu: 1"),
    ("no-cores", (1, 16, 0), {}, CONFIG, "and for no vcuda.io/cores: add vcuda.io/cores: 30"),
    ("uneven", (2, 17, 30), {}, CONFIG, "does not divide by 2: ask for 16 or 18"),
    ("percent", (1, 16, 101), {}, CONFIG, "vcuda.io/cores: 101 is more than 1 of 100 percent"),
    ("large", (1, 400, 30), {}, CONFIG, "vcuda.io/memory: 400 is 100 GiB on each of 1 GPUs; the largest"),
    ("many", (9, 9, 9), {}, "UnexpectedAdmissionError", "this node has 8"),
    ("bytes", (1, "4Gi", 30), {}, "Unschedulable", "Insufficient vcuda.io/memory"),
    ("policy", (1, 16, 30), {"vcuda.io/policy": "fast"}, CONFIG, "write fixed, burst or best-effort"),
    ("name", (1, 16, 30), {"vcuda.io/polcy": "burst"}, CONFIG, "there is none of this name"),
    ("container", (1, 16, 30), {"vcuda.io/policy.other": "burst"}, CONFIG, "the pod has no container of this name with a share of a GPU"),
    ("more", (1, 16, 30), {"vcuda.io/memory": "8Gi"}, CONFIG, "annotations only lower"),
    ("bound", (1, 16, 30), {"vcuda.io/priority": "high"}, CONFIG, "at most normal; the bound is namespaces.\"*\" in the manager's configuration"),
]


def requests(cluster):
    """What cannot be granted is refused, in the documented words."""
    refused = REFUSED
    if cluster.mode == "dra":
        refused = [(name, amounts, annotations, REFUSED_CLAIMS[name], words if annotations else "")
                   for name, amounts, annotations, _, words in REFUSED if name in REFUSED_CLAIMS]
    cluster.create([pod("bad-" + name, container(gpu=gpu, memory=memory, cores=cores), annotations)
                    for name, (gpu, memory, cores), annotations, _, _ in refused])
    right, faults = 0, []
    for name, _, _, reason, words in refused:
        told = lambda: cluster.said("bad-" + name)
        try:
            cluster.wait(300, f"bad-{name} is {reason} with {words!r}", lambda: reason in told() and words in told())
            right += 1
        except Fault as fault:
            faults.append(f"{fault}; it says: {told()[:400]}")
    return {"refused as documented": f"{right} of {len(refused)}"}, faults


BOUNDED = [
    ("policy", {"vcuda.io/policy": "fixed"}, "policy fixed: pods of namespace batch may have best-effort"),
    ("priority", {"vcuda.io/priority": "normal"}, "priority normal: pods of namespace batch may have at most low"),
    ("weight", {"vcuda.io/weight": "101"}, "weight 101: pods of namespace batch may have at most 100"),
]


def bounds(cluster):
    """Namespaces with bounds of their own: what is more is refused, defaults follow the bound."""
    faults, right = [], 0

    def within(name, annotations, **more):
        made = pod(name, container(memory=4, cores=5), annotations)
        made["metadata"] |= more
        return made

    for namespace in ("batch", "critical"):
        cluster.create([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}])
    try:
        allowed = [within("plain", {}, namespace="batch"), within("high", {"vcuda.io/priority": "high"}, namespace="critical")]
        cluster.create(allowed + [within("more-" + name, annotations, namespace="batch") for name, annotations, _ in BOUNDED])
        for name, namespace, wanted in [("plain", "batch", ("best-effort", "low")), ("high", "critical", ("fixed", "high"))]:
            cluster.wait(300, f"{name} runs", lambda: states(cluster.pods(namespace)[name])[0] == "Running")
            has = [(grant["policy"], grant["priority"]) for grant in cluster.grants() if f"{namespace}/{name}" in grant.get("holder", "")]
            right += has == [wanted]
            faults += [] if has == [wanted] else [f"{namespace}/{name} has {has}, not {wanted}"]
        for name, _, words in BOUNDED:
            told = lambda: cluster.said("more-" + name, "batch")
            cluster.wait(300, f"more-{name} is refused with {words!r}", lambda: words in told())
            right += 1
    finally:
        for namespace in ("batch", "critical"):
            cluster.remove_all(namespace)
            cluster.kubectl("delete", "namespace", namespace)
    return {"as the bounds say": f"{right} of {len(BOUNDED) + 2}"}, faults


def limits(cluster):
    """The driver's own memory limit behind the quota: strict containers start only if they have it, from before their first program."""
    names = [f"held-{number}" for number in range(6)]
    figures, faults = {}, []
    for setting, is_limited in [("false", False), ("true", True)]:
        cluster.chart("plugin.strict=true", f"manager.driverLimits={setting}")
        cluster.create([pod(name, container(memory=8, cores=5, run="hold 1")) for name in names])
        words = "the driver does not limit the container"
        if is_limited:
            figures["held by the driver after"] = f"{cluster.wait_phase(names, {'Running'}):.1f} s"
            faults += cluster.wrong_limits([pod(name, container(memory=8, cores=5)) for name in names])
        else:
            cluster.wait(120, f"each pod says {words!r}", lambda: all(words in cluster.said(name) for name in names))
            figures["refused without the power"] = len(names)
        held = cluster.held_by_driver()
        if held != len(names) * is_limited:
            faults.append(f"driverLimits={setting}: {held} are held")
        cluster.remove_all()
    cluster.chart()
    return figures, faults
