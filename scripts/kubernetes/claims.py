"""Scenario of shares by claims: the chart in mode dra, Kubernetes' own scheduler places them on GPUs."""
import random

from cluster import Fault, container, pod, states

GIB = 1 << 30


def template(name, memory, cores, parameters=None):
    """A template of claims with one share of one GPU: memory in GiB, cores in percent."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "vcuda.io",
                                          "capacity": {"requests": {"memory": f"{memory}Gi", "cores": str(cores)}}}}
    devices = {"requests": [request]}
    if parameters:
        opaque = {"driver": "vcuda.io", "parameters": {"apiVersion": "vcuda.io/v1alpha1", "kind": "VcudaConfig"} | parameters}
        devices["config"] = [{"requests": ["gpu"], "opaque": opaque}]
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name}, "spec": {"spec": {"devices": devices}}}


def user(name, template_name, **more):
    """A pod whose container uses a claim of this template."""
    one = container(**more) | {"resources": {"claims": [{"name": "gpu"}]}}
    return pod(name, one, restartPolicy="Always", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": template_name}])


def wrong(cluster, asked):
    """Pods that saw other limits than theirs: GiB and percent by name."""
    found = []
    for name, (memory, cores) in asked.items():
        try:
            cluster.wait(60, f"{name} says its limits", lambda: cluster.seen(name))
            seen = [(total, share) for _, total, share in cluster.seen(name)]
        except Fault as fault:
            seen = str(fault)
        if seen != [(memory * GIB, cores * 10)]:
            found.append(f"{name} asked for {memory} GiB, {cores} % and saw {seen}")
    return found


def scarce(cluster):
    """Of three pods of 40 GiB, one GPU of 80 has place for two; the third waits, not refused, until one goes."""
    names = ["scarce-1", "scarce-2", "scarce-3"]
    cluster.create([template("large", 40, 40)] + [user(name, "large") for name in names])
    cluster.wait(120, "two of three run", lambda: sorted(cluster.phases(names).values()) == ["Pending", "Running", "Running"])
    waits = [name for name, phase in cluster.phases(names).items() if phase == "Pending"][0]
    why = states(cluster.pods()[waits])[1]
    faults = [] if "cannot allocate all claims" in why else [f"{waits} waits for: {why}"]
    gone = next(name for name in names if name != waits)
    cluster.kubectl("delete", "pod", gone, "--wait=false")
    seconds = cluster.wait(120, "the third runs", lambda: cluster.phases([waits])[waits] == "Running")
    faults += wrong(cluster, {name: (40, 40) for name in names if name != gone})
    cluster.remove_all()
    return seconds, faults


def many(cluster, drawn):
    """24 pods of random size at once, 104 GiB and 200 % at most; then kubelet and the driver are killed under them."""
    sizes = {f"size-{number}": (drawn.randint(1, 4), drawn.randint(1, 8)) for number in range(24)}
    things = [template(name, memory, cores) for name, (memory, cores) in sizes.items()]
    cluster.create(things + [user(name, name) for name in sizes])
    seconds = cluster.wait_phase(list(sizes), {"Running"})
    faults = wrong(cluster, sizes)
    for service in ("kubelet", "plugin"):
        if service == "kubelet":
            cluster.node("stop", "kubelet", "KILL")
            cluster.node("start", "kubelet")
        else:
            cluster.node("run", "kill", "-KILL", str(cluster.program("plugin")))
    late = {f"late-{number}": (1, 1) for number in range(4)}
    cluster.create([template("late", 1, 1)] + [user(name, "late") for name in late])
    cluster.wait_phase(list(late), {"Running"})
    faults += wrong(cluster, late) + cluster.untouched(list(sizes))
    return sizes | late, seconds, faults


def refused(cluster):
    """A claim with a parameter that there is not: its pod waits, and its events say which."""
    cluster.create([template("typo", 1, 1, {"polcy": "burst"}), user("typo", "typo")])

    def said():
        return "unknown field `polcy`" in cluster.kubectl("get", "events", "--field-selector", "involvedObject.name=typo", "-o", "json")

    cluster.wait(120, "the reason is among its events", said)
    cluster.kubectl("delete", "pod", "typo", "--wait=false")


def claims(cluster):
    """Shares by claims: scarce, many at once, kills, a wrong parameter, a reboot; zero wrong limits, no pod lost."""
    cluster.chart("mode=dra")
    try:
        seconds, faults = scarce(cluster)
        figures = {"third of 40 GiB runs after s": round(seconds, 1)}
        running, seconds, more = many(cluster, random.Random(17))
        figures |= {"24 pods run after s": round(seconds, 1)}
        faults += more
        refused(cluster)
        cluster.node("reboot", seconds=900)
        seconds = cluster.wait_phase(list(running), {"Running"}, 600)
        figures |= {"all run again after a reboot after s": round(seconds, 1)}
        lost = [name for name in running if name not in cluster.pods()]
        faults += [f"{name} is lost" for name in lost] + wrong(cluster, running)
        figures |= {"pods": len(running) + 4, "wrong limits": len([fault for fault in faults if "saw" in fault]), "lost": len(lost)}
        cluster.remove_all()
        cluster.wait(60, "nothing is left behind", lambda: not cluster.left_behind())
    finally:
        cluster.kubectl("delete", "resourceclaimtemplates", "--all")
        cluster.chart()
    return figures, faults
