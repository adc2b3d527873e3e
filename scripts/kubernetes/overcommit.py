"""Scenario of overcommit: suspendable pods with quotas beyond the GPUs' memory run, and others are placed on real memory alone."""
import json

from claim_changes import GIB, template, user
from cluster import CHUNK, container, pod, states

FACTOR = 1.75
# Suspendable pods: two on each of the six GPUs of 80 GiB, of 45 GiB each. At their start they fill their quotas, in turn.
PODS, SIZE = 12, 45
RESOURCE = "vcuda.io/suspendable-memory"


def offered(cluster):
    """Memory that pods are offered on the node in bytes: for all, and for suspendable ones alone."""
    if cluster.mode == "plugin":
        amounts = json.loads(cluster.kubectl("get", "node", "node", "-o", "json"))["status"]["allocatable"]
        return int(amounts["vcuda.io/memory"]) * CHUNK, int(amounts.get(RESOURCE, 0)) * CHUNK
    slices = json.loads(cluster.kubectl("get", "resourceslices", "-o", "json"))["items"]
    devices = [device for one in slices for device in one["spec"].get("devices", [])]
    size = lambda kind: [int(one["capacity"]["memory"]["value"].removesuffix("Gi")) * GIB if one["capacity"]["memory"]["value"].endswith("Gi")
                         else int(one["capacity"]["memory"]["value"].removesuffix("Mi")) << 20
                         for one in devices if one["attributes"]["type"]["string"] == kind]
    # A claim is of one GPU, so what counts for all is the largest.
    return max(size("vcuda"), default=0), sum(size("vcuda-suspendable"))


def suspendable(cluster, name):
    """A pod that may be suspended and fills its quota, and its claim's template."""
    run = f"sh -c 'quota {SIZE * GIB} && exec sleep 100000'"
    if cluster.mode == "plugin":
        one = container(cores=5, run=run)
        del one["resources"]["limits"]["vcuda.io/memory"]
        one["resources"]["limits"][RESOURCE] = str(SIZE * GIB // CHUNK)
        return [pod(name, one)]
    made = template(name, SIZE, 0)
    request = made["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    request["deviceClassName"] = "vcuda.io-suspendable"
    del request["capacity"]["requests"]["cores"]
    return [made, user(name, name, run=run)]


def plain(cluster, name, memory_bytes):
    """A pod that may not be suspended, and its claim's template."""
    if cluster.mode == "plugin":
        return [pod(name, container(memory=memory_bytes // CHUNK, cores=5))]
    made = template(name, 1, 5)
    made["spec"]["spec"]["devices"]["requests"][0]["exactly"]["capacity"]["requests"]["memory"] = str(memory_bytes)
    return [made, user(name, name)]


def granted(cluster):
    """GiB that are granted of each GPU, by UUID."""
    sums = {}
    for grant in cluster.grants():
        for uuid in grant["gpu_uuids"]:
            sums[uuid] = sums.get(uuid, 0) + grant["memory_bytes"] / GIB
    return sums


def overcommit(cluster):
    """Suspendable pods of more than the GPUs' memory all run and fill their quotas; another pod gets real memory, and waits for more."""
    cluster.chart(f"admission.suspendableOvercommit={FACTOR}", "namespaces.default.suspendable=true")
    try:
        cluster.wait(120, "memory for suspendable pods is offered", lambda: offered(cluster)[1])
        common, alone = offered(cluster)
        names = [f"turn-{number}" for number in range(PODS)]
        cluster.create([thing for name in names for thing in suspendable(cluster, name)] + plain(cluster, "plain", 4 * GIB), as_written=True)
        seconds = cluster.wait_phase(names + ["plain"], {"Running"})
        cluster.wait(600, "each has filled its quota", lambda: all("passed quota" in cluster.text(name) for name in names))
        faults = [f"{name} saw {cluster.seen(name)}" for name in names if [total for _, total, _ in cluster.seen(name)] != [SIZE * GIB]]
        most = max(granted(cluster).values())
        faults += [] if most > 80 else [f"no GPU of 80 GiB is granted beyond its memory: {granted(cluster)}"]
        few = [grant["id"] for grant in cluster.grants() if grant.get("suspendable", False) == ("default/plain" in grant["holder"])]
        faults += [f"the wrong grants are suspendable: {few}"] if few else []
        # As much as is offered, and a little more, beside what the plain pod has.
        cluster.create(plain(cluster, "more", common + CHUNK), as_written=True)
        told = lambda: states(cluster.pods()["more"])[1]
        words = "Insufficient vcuda.io/memory" if cluster.mode == "plugin" else "cannot allocate all claims"
        cluster.wait(60, f"a pod for more waits: {words}", lambda: words in told())
        faults += cluster.untouched(names + ["plain"])
        figures = {"offered to all": f"{common / GIB:.0f} GiB", "to suspendable pods": f"{alone / GIB:.0f} GiB",
                   f"{PODS} pods of {SIZE} GiB ran after": f"{seconds:.0f} s", "granted of a GPU of 80 GiB": f"{most:.0f} GiB"}
    finally:
        cluster.remove_all()
        cluster.wait(60, "nothing is left behind", lambda: not cluster.left_behind())
        cluster.chart()
    return figures, faults
