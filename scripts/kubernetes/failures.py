"""Scenarios of load and of failures: many pods at once, restarts and kills under load, idle pods."""
import random, time

from cluster import Fault, container, pod, states

BUSY = 12


def mixed(cluster):
    """200 pods at once of all sizes, more than fit: each waits for its place, and has its own limits."""
    drawn = random.Random(1)

    def one(name):
        gpus = drawn.choice([1, 1, 1, 1, 2])
        return container(name, gpus, gpus * drawn.randint(1, 48), gpus * drawn.randint(5, 40), "sleep 2")

    made = [pod(f"mixed-{number}", [one(name) for name in ["app", "beside"][: drawn.choice([1, 1, 1, 2])]]) for number in range(200)]
    names = [one["metadata"]["name"] for one in made]
    begun = time.monotonic()
    cluster.create(made)
    cluster.wait(1200, "200 pods have ended", lambda: set(cluster.phases(names).values()) <= {"Succeeded", "Failed"})
    took = time.monotonic() - begun
    failed = [f"{name}: {states(found)[1]}" for name, found in cluster.pods().items() if states(found)[0] == "Failed"]
    wrong = cluster.wrong_limits([one for one in made if not any(words.startswith(one["metadata"]["name"] + ":") for words in failed)])
    return {"pods": len(made), "seconds": f"{took:.0f}", "failed": len(failed), "wrong limits": len(wrong)}, failed + wrong


def under_load(cluster):
    """Busy pods, each with a share of its own."""
    made = [pod(f"busy-{number}", container(memory=4 + number, cores=5 + number, run="saturate 100000 20000000")) for number in range(BUSY)]
    cluster.create(made)
    cluster.wait_phase([one["metadata"]["name"] for one in made], {"Running"})
    return made


def new_pod(cluster, name):
    """A bare pod made now: seconds until it runs, and how many were refused for good before."""
    begun = time.monotonic()
    for number in range(30):
        each = f"{name}-{number}"
        cluster.wait(60, "the API server takes a pod", lambda: cluster.create([pod(each, container(memory=2, cores=5))]) is None)
        cluster.wait(240, f"{each} runs or is refused", lambda: cluster.phases([each])[each] in ("Running", "Failed"))
        if cluster.phases([each])[each] == "Running":
            return time.monotonic() - begun, number
        time.sleep(2)
    raise Fault(f"{name}: 30 pods were refused")


def disturbed(cluster, rounds):
    """What running pods notice of each disturbance, and how long until a new pod runs: none may be touched."""
    made = under_load(cluster)
    names = [one["metadata"]["name"] for one in made]
    took, refused, faults = {}, 0, []
    for name, disturb in rounds:
        try:
            disturb()
            seconds, lost = new_pod(cluster, name)
            faults += cluster.lost(lost)
            took[name] = seconds
            refused += lost
            cluster.kubectl("delete", "pod", f"{name}-{lost}", "--wait=false")
        except Fault as fault:
            faults.append(f"{name}: {fault}")
        faults += [f"after {name}: {words}" for words in cluster.untouched(names)]
    faults += cluster.wrong_limits(made)
    slowest = max(took, key=took.get, default="none")
    return {"rounds": len(rounds), "running pods": len(made), "longest until a new pod runs": f"{took.get(slowest, 0):.1f} s ({slowest})",
            "new pods refused for good": refused, "touched": len(faults)}, faults


def kubelet(cluster):
    """Kubelet restarts 50 times under load."""

    def restart():
        cluster.node("stop", "kubelet")
        cluster.node("start", "kubelet")

    return disturbed(cluster, [(f"kubelet-{number}", restart) for number in range(50)])


def kills(cluster):
    """SIGKILL of the plugin, the manager, containerd and the API server under load, three times each."""

    def program(of):
        return lambda: cluster.node("run", "kill", "-KILL", str(cluster.program(of)))

    def service(name):
        def disturb():
            cluster.node("stop", name, "KILL")
            cluster.node("start", name)
        return disturb

    ways = {"plugin": program("plugin"), "manager": program("manager"), "containerd": service("containerd"),
            "api-server": service("kube-apiserver")}
    return disturbed(cluster, [(f"{name}-{number}", way) for number in range(3) for name, way in ways.items()])


def idle(cluster):
    """100 pods that hold memory and do nothing: processor time of manager and plugin."""
    made = [pod(f"idle-{number}", container(memory=4, cores=5, run="hold 1048576")) for number in range(100)]
    names = [one["metadata"]["name"] for one in made]
    cluster.create(made)
    cluster.wait_phase(names, {"Running"}, 600)
    time.sleep(30)
    running = {name: cluster.program(name) for name in ("manager", "plugin")}
    before = {name: cluster.processor_seconds(process) for name, process in running.items()}
    begun = time.monotonic()
    time.sleep(60)
    # Read before the checks, whose commands in the containers ask the manager.
    took = time.monotonic() - begun
    after = {name: cluster.processor_seconds(process) for name, process in running.items()}
    figures = {"pods": len(made)}
    for name in running:
        figures[f"{name} of a core"] = f"{(after[name] - before[name]) / took * 100:.2f} %"
    return figures, cluster.untouched(names) + cluster.wrong_limits(made)
