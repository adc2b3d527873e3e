"""Scenario of many nodes that are objects alone: pods that the real scheduler places in a second, and how it fills GPUs in a day."""
import random, time

import admission
from extender import configure, entry, restart_scheduler
from fleet import GPU_GIB, GPUS, Api, Fleet

# The burst: every node is free.
NODES, PODS = 1000, 1000
# The day: GPUs that pods of random size and stay come to and leave, in steps of half an hour.
DAY_NODES, STEPS, LOAD, STAY = 16, 48, 0.8, 8
# GiB and percent, with weights. A free place counts as a piece if the large size does not fit in it.
SIZES = {(4, 10): 4, (8, 20): 4, (10, 25): 3, (16, 20): 3, (20, 30): 3, (24, 40): 2, (40, 50): 2, (80, 100): 1}
LARGE = 40, 50


def drawn(generator, number):
    return generator.choices(list(SIZES), list(SIZES.values()), k=number)


def burst(fleet):
    """Pods at once: how many are placed in a second."""
    sizes = drawn(random.Random(5), PODS)
    begun = time.monotonic()
    fleet.add({f"burst-{number}": size for number, size in enumerate(sizes)})
    fleet.settle(600)
    last = max(moment for _, moment in fleet.bound.values())
    _, faults = fleet.used()
    if len(fleet.bound) != PODS:
        faults.append(f"{PODS - len(fleet.bound)} pods found no place among {NODES * GPUS} free GPUs")
    return PODS / (last - begun), faults


def needed(gpus):
    """GPUs that would do for what these give out, if shares could be cut."""
    return max(sum(gib for gib, _ in gpus.values()) / GPU_GIB, sum(percent for _, percent in gpus.values()) / 100)


def pieces(gpus):
    """Part of the free memory that lies on GPUs where the large size does not fit."""
    every = list(gpus.values()) + [[0, 0]] * (DAY_NODES * GPUS - len(gpus))
    free = [(GPU_GIB - gib, 100 - percent) for gib, percent in every]
    return sum(gib for gib, percent in free if gib < LARGE[0] or percent < LARGE[1]) / max(1, sum(gib for gib, _ in free))


def day(fleet):
    """Pods come and go: GPUs in use for each that is needed, the free memory in pieces, and pods that waited."""
    generator = random.Random(24)
    mean = sum(weight * max(gib / GPU_GIB, percent / 100) for (gib, percent), weight in SIZES.items()) / sum(SIZES.values())
    living = round(DAY_NODES * GPUS * LOAD / mean)
    ends, made, waited, faults, samples = {}, 0, set(), [], []
    for step in range(STEPS):
        gone = [name for name, end in ends.items() if end <= step]
        fleet.remove(gone)
        for name in gone:
            del ends[name]
        number = living if step == 0 else sum(generator.random() < 1 / STAY for _ in range(living))
        new = {f"day-{made + place}": size for place, size in enumerate(drawn(generator, number))}
        made += number
        ends |= {name: step + 1 + generator.expovariate(1 / STAY) for name in new}
        fleet.add(new)
        fleet.settle(300)
        if fleet.waiting:
            # Those that waited before may have a place now: their turn comes within a second.
            time.sleep(1.5)
            fleet.settle(60)
        waited |= fleet.waiting
        gpus, wrong = fleet.used()
        faults += wrong
        samples.append((len(gpus) / needed(gpus), pieces(gpus)))
    average = lambda place: sum(sample[place] for sample in samples[STEPS // 4:]) / (STEPS - STEPS // 4)
    figures = {"pods": made, "GPUs in use for each needed": f"{average(0):.2f}", "free memory in pieces": f"{average(1) * 100:.0f} %",
               "waited": len(waited)}
    if fleet.mode == "plugin":
        figures["sent where no GPU had room"] = len(fleet.ever_refused)
    return figures, faults


def with_fleet(api, mode, nodes, work):
    """The figures of work on a fleet, and what was wrong or stayed."""
    fleet = Fleet(api, mode, nodes)
    try:
        fleet.make()
        figures, faults = work(fleet)
    finally:
        left = fleet.close()
    return figures, faults + left


# kube-scheduler's own way to fill nodes, by the processors that their pods ask for.
PACKED = [{"schedulerName": "default-scheduler", "pluginConfig": [{"name": "NodeResourcesFit", "args": {
    "scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}}}]}]
QUICK = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}


def set_controllers(cluster, which):
    """Controllers that run. The nodes' own would miss kubelets."""
    file = cluster.folder / "state/etc/controllers"
    file.write_text(which) if which else file.unlink(missing_ok=True)
    cluster.node("stop", "kube-controller-manager")
    cluster.node("start", "kube-controller-manager")


def scale(cluster):
    """1,000 nodes of 8 GPUs without kubelets: pods placed in a second; a day of pods that come and go on 16 of them."""
    set_controllers(cluster, "*,-node-lifecycle-controller,-taint-eviction-controller")
    more = {}
    if cluster.mode == "plugin":
        cluster.chart("cluster.enabled=true", "cluster.extender.enabled=true")
        admission.scale(cluster, 1)
        more = {"extenders": [entry(cluster)]}
    api, figures, faults = None, {}, []
    try:
        configure(cluster, **QUICK, **more)
        api = Api(cluster)
        rate, wrong = with_fleet(api, cluster.mode, NODES, burst)
        figures |= {"nodes": NODES, "pods at once": PODS, "placed in a second": f"{rate:.1f}"}
        faults += wrong
        ways = {"packed": {"profiles": PACKED}, "": {}} if cluster.mode == "dra" else {"": more}
        for name, way in ways.items():
            configure(cluster, **QUICK, **way)
            found, wrong = with_fleet(api, cluster.mode, DAY_NODES, day)
            figures |= {f"{name} {key}".strip(): value for key, value in found.items()}
            faults += wrong
    finally:
        if api:
            api.close()
        (cluster.folder / "state/etc/scheduler.yaml").unlink(missing_ok=True)
        restart_scheduler(cluster)
        set_controllers(cluster, "")
        if cluster.mode == "plugin":
            admission.remove(cluster)
    return figures, faults
