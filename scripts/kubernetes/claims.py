"""Scenario of shares by claims: the chart in mode dra, Kubernetes' own scheduler places them on GPUs."""
import random, time

from claim_changes import GIB, alone, changed_mode, ill, lost_files, resized, template, user, whole
from cluster import Fault, states, when


def wrong(cluster, asked):
    """Pods that saw other limits than theirs: GiB and percent by name."""
    found = []
    for name, (memory, cores) in asked.items():
        try:
            cluster.wait(120, f"{name} says its limits", lambda: cluster.seen(name))
            seen = [(total, share) for _, total, share in cluster.seen(name)]
        except Fault as fault:
            seen = str(fault)
        if seen != [(memory * GIB, cores * 10)]:
            found.append(f"{name} asked for {memory} GiB, {cores} % and saw {seen}")
    return found


def scarce(cluster):
    """The six GPUs of 80 GiB have place for twelve pods of 40 GiB; a thirteenth waits, not refused, until one goes."""
    names = [f"scarce-{number}" for number in range(13)]
    cluster.create([template("large", 40, 40)] + [user(name, "large") for name in names])
    cluster.wait(120, "twelve of thirteen run", lambda: sorted(cluster.phases(names).values()) == ["Pending"] + ["Running"] * 12)
    waits = next(name for name, phase in cluster.phases(names).items() if phase == "Pending")
    why = states(cluster.pods()[waits])[1]
    faults = [] if "cannot allocate all claims" in why else [f"{waits} waits for: {why}"]
    gone = next(name for name in names if name != waits)
    cluster.kubectl("delete", "pod", gone, "--wait=false")
    seconds = cluster.wait(120, f"{waits} runs", lambda: cluster.phases([waits])[waits] == "Running")
    faults += wrong(cluster, {name: (40, 40) for name in names if name != gone})
    cluster.remove_all()
    return seconds, faults


def many(cluster, drawn):
    """24 pods of random size at once; under them kubelet and the driver are killed, and the chart is rolled out."""
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
    # The new driver is ready before the old one ends, or the rollout would not.
    cluster.chart("plugin.logFilter=info")
    late = {f"late-{number}": (1, 1) for number in range(4)}
    cluster.create([template("late", 1, 1)] + [user(name, "late") for name in late])
    cluster.wait_phase(list(late), {"Running"})
    faults += wrong(cluster, late) + cluster.untouched(list(sizes))
    return sizes | late, seconds, faults


def restarted(cluster, names, moment):
    """Seconds until a container of each of these pods has started after the moment."""
    def all_began():
        found = cluster.pods()
        running = [found[name]["status"]["containerStatuses"][0]["state"].get("running", {}) for name in names]
        return all(when(one.get("startedAt", "1970-01-01T00:00:00Z")) > moment for one in running)

    return cluster.wait(600, "all pods have started again", all_began)


def refused(cluster):
    """A claim with a parameter that there is not: its pod waits, and its events say which."""
    cluster.create([template("typo", 1, 1, {"polcy": "burst"}), user("typo", "typo")])

    def said():
        return "unknown field `polcy`" in cluster.kubectl("get", "events", "--field-selector", "involvedObject.name=typo", "-o", "json")

    cluster.wait(120, "the reason is among its events", said)
    cluster.kubectl("delete", "pod", "typo", "--wait=false")


FOREIGN = """
import json, ssl, sys, urllib.error, urllib.request
token, node = sys.argv[1:]
account = "system:serviceaccount:vcuda-system:vcuda"
slice = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "foreign"},
         "spec": {"driver": "vcuda.io", "nodeName": "another", "pool": {"name": "another", "generation": 1, "resourceSliceCount": 1}}}
request = urllib.request.Request("https://127.0.0.1/apis/resource.k8s.io/v1/resourceslices", json.dumps(slice).encode(), {
    "Authorization": "Bearer " + token, "Content-Type": "application/json", "Impersonate-User": account,
    "Impersonate-Extra-Authentication.kubernetes.io%2fnode-name": node})
try:
    print(urllib.request.urlopen(request, context=ssl._create_unverified_context()).status)
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""


def foreign_slice(cluster):
    """The driver of this node writes a slice of another one: refused. That other node's own driver may."""
    token = (cluster.folder / "state/etc/tokens.csv").read_text().split(",")[0]
    refused = cluster.node("run", "python3", "-c", FOREIGN, token, "node")
    allowed = cluster.node("run", "python3", "-c", FOREIGN, token, "another")
    cluster.kubectl("delete", "resourceslice", "foreign", "--ignore-not-found")
    sentence = 'may not write a slice of node'
    faults = [] if sentence in refused else [f"a slice of another node: {refused[:300]}"]
    return faults + ([] if allowed.startswith("201") else [f"its own slice: {allowed[:300]}"])


def claims(cluster):
    """Shares by claims: scarce, many at once, kills, a wrong parameter, a reboot; zero wrong limits, no pod lost."""
    try:
        seconds, faults = scarce(cluster)
        figures = {"thirteenth of 40 GiB runs after s": round(seconds, 1)}
        seconds, more = resized(cluster)
        figures |= {"new memory felt after s, at most": round(seconds, 2)}
        faults += more + alone(cluster) + whole(cluster)
        seconds, more = lost_files(cluster)
        figures |= {"lost files again after s": round(seconds, 1)}
        faults += more
        seconds, more = ill(cluster)
        figures |= {"evicted from an ill GPU after s": round(seconds, 1)}
        faults += more
        running, seconds, more = many(cluster, random.Random(17))
        figures |= {"24 pods run after s": round(seconds, 1)}
        faults += more
        refused(cluster)
        faults += foreign_slice(cluster)
        faults += changed_mode(cluster)
        moment = time.time()
        cluster.node("reboot", seconds=900)
        ready = time.time() - moment
        seconds = restarted(cluster, list(running), moment)
        figures |= {"node ready after a reboot after s": round(ready, 1), "and all pods again after s": round(seconds, 1)}
        lost = [name for name in running if name not in cluster.pods()]
        faults += [f"{name} is lost" for name in lost] + wrong(cluster, running)
        figures |= {"pods": 13 + len(running), "wrong limits": len([fault for fault in faults if "saw" in fault]), "lost": len(lost)}
    finally:
        cluster.remove_all()
        cluster.wait(90, "nothing is left behind", lambda: not cluster.left_behind())
        cluster.chart()
    return figures, faults
