"""Scenarios of the chart: upgrades, strict containers, a reboot with it and with host services in its place."""
import json, subprocess, time

from cluster import CHUNK, NAMESPACE, NODE, Fault, container, deployment, pod, states, when
from failures import under_load


def at(line):
    """Time of a line of the plugin's log."""
    return when(json.loads(line)["timestamp"])


def the_chart(cluster):
    """The chart's pod that is not about to end."""
    return next(name for name, found in cluster.pods(NAMESPACE).items() if "deletionTimestamp" not in found["metadata"])


def plugin_log(cluster, name):
    return [line for line in cluster.kubectl("-n", NAMESPACE, "logs", name, "-c", "plugin").splitlines() if line.startswith("{")]


def rolled_out(cluster, *settings):
    """The chart with these values: bare pods made meanwhile, the seconds in which no plugin was registered, faults."""
    old = the_chart(cluster)
    follow = [NODE, cluster.folder, "run", "kubectl", "-n", NAMESPACE, "logs", "-f", "--tail=1", old, "-c", "plugin"]
    told = subprocess.Popen(follow, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    rollout = subprocess.Popen([NODE, cluster.folder, "chart", *cluster.settings(*settings)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    made, began = [], time.monotonic()
    # To the end of the old plugin and of the rollout, and a moment longer.
    last = None
    while last is None or time.monotonic() < last + 3:
        made.append(pod(f"new-{len(settings)}-{len(made)}", container(memory=1, cores=1)))
        cluster.create(made[-1:])
        if last is None and told.poll() is not None and rollout.poll() is not None:
            last = time.monotonic()
        if time.monotonic() > began + 300:
            told.kill()
            raise Fault("the chart's old pod does not end")
    said = rollout.communicate()[1]
    faults = [f"the rollout: {said[-300:]}"] if rollout.returncode else []
    ended = [line for line in told.communicate()[0].splitlines() if "ending" in line]
    # The plugin's three resources; the driver's one socket.
    words, times = ("registered with kubelet", 3) if cluster.mode == "plugin" else ("offered to kubelet", 1)
    registered = [line for line in plugin_log(cluster, the_chart(cluster)) if words in line]
    if not ended or len(registered) < times:
        return made, 0.0, faults + [f"the logs do not tell of the turn: {ended}, {registered}"]
    return made, at(registered[times - 1]) - at(ended[0]), faults


def upgrade(cluster):
    """Another image, and back, under load: running pods go on, new ones are bound or, in the window, refused for good."""
    busy = under_load(cluster)
    names = [one["metadata"]["name"] for one in busy]
    cluster.node("run", "ctr", "-n", "k8s.io", "images", "tag", "--force", "localhost/vcuda:node", "localhost/vcuda:next")
    made, gaps, faults = [], [], []
    for settings in (["image.tag=next"], []):
        more, gap, wrong = rolled_out(cluster, *settings)
        made, gaps, faults = made + more, gaps + [gap], faults + wrong
        faults += cluster.untouched(names)
    new = [one["metadata"]["name"] for one in made]
    cluster.wait_phase(new, {"Running", "Failed"}, 180)
    found = cluster.pods()
    refused = {name: states(found[name])[1] for name in new if states(found[name])[0] == "Failed"}
    # The window that the documents name, and no other reason.
    faults += [f"{name}: {words}" for name, words in refused.items() if "UnexpectedAdmissionError" not in words] + cluster.lost(len(refused))
    faults += cluster.wrong_limits(busy + [one for one in made if one["metadata"]["name"] not in refused])
    return {"running pods": len(busy), "longest without a plugin": f"{max(gaps):.2f} s", "new pods meanwhile": len(new),
            "of them refused for good": len(refused)}, faults


def strict(cluster):
    """Containers start only if their limits are proved in them."""
    faults = []
    cluster.chart("plugin.strict=true", "manager.driverLimits=true")
    try:
        held = pod("held", container(memory=8, run=f"quota {8 * CHUNK}"))
        # Without a C library, and so without the shim.
        other = pod("other", container(memory=8) | {"image": "localhost/pause:node", "command": ["/usr/bin/pause"]})
        cluster.create([held, other])
        cluster.wait_phase(["held"], {"Succeeded", "Failed"})
        if "passed quota" not in cluster.text("held"):
            faults.append(f"held: {cluster.text('held')[-300:]}")
        words = "/usr/local/bin/vcuda: no such file or directory"
        try:
            cluster.wait(120, f"the other pod does not start: {words}", lambda: words in cluster.text("other"))
        except Fault as fault:
            faults.append(f"{fault}; it says: {states(cluster.pods()['other'])}, {cluster.text('other')[-300:]!r}")
        faults += cluster.wrong_limits([held])
    finally:
        cluster.remove_all()
        cluster.chart()
    return {"with the shim": "runs", "without it": "does not start"}, faults


def containers(found):
    return {one.get("containerID") for one in found.get("status", {}).get("containerStatuses", [])}


def rebooted(cluster, kind):
    """The node loses its power: seconds until all pods run again or are refused for good, how many are, and faults."""
    share = container(memory=4, cores=5)
    bare = [pod(f"{kind}-{number}", share, restartPolicy="Always") for number in range(5)]
    names = [one["metadata"]["name"] for one in bare]
    cluster.create([*bare, deployment("kept", 5, pod("", share))])
    cluster.wait(300, "10 pods run", lambda: [states(one)[0] for one in cluster.pods().values()] == ["Running"] * 10)
    before = set().union(*map(containers, cluster.pods().values()))
    begun = time.monotonic()
    cluster.node("reboot", seconds=900)

    def settled():
        """The pods, once they are what they stay: they run in other containers than before, or have failed."""
        found = cluster.pods().values()
        runs = [one for one in found if states(one)[0] == "Running" and not containers(one) & before]
        failed = [one for one in found if states(one)[0] == "Failed"]
        made = [one for one in runs if one["metadata"]["name"] not in names]
        return (runs, failed) if len(made) == 5 and len(runs) + len(failed) == len(found) else None

    cluster.wait(300, "all pods run again or are refused, and the deployment is whole", settled)
    again = time.monotonic() - begun
    runs, failed = settled()
    words = [states(one)[1] for one in failed]
    faults = [told for told in words if "UnexpectedAdmissionError" not in told] + cluster.lost(len(failed))
    return again, len(failed), faults + cluster.wrong_limits([one | {"spec": bare[0]["spec"]} for one in runs])


def reboot(cluster):
    """The node loses its power: a deployment is whole again; pods start again or are refused for good, and a controller makes others."""
    again, lost, faults = rebooted(cluster, "bare")
    return {"deployment whole after": f"{again:.0f} s", "refused for good": f"{lost} of 10"}, faults


def host_services(cluster):
    """Manager and plugin as services that start before kubelet: three reboots lose no pod."""
    losses, longest, faults = [], 0.0, []
    cluster.node("host-services", "on", seconds=900)
    try:
        for number in range(3):
            again, lost, wrong = rebooted(cluster, f"bare-{number}")
            losses, longest, faults = losses + [lost], max(longest, again), faults + wrong
            cluster.remove_all()
    finally:
        cluster.remove_all()
        cluster.node("host-services", "off", seconds=900)
    if sum(losses):
        faults.append(f"pods were refused for good: {losses}")
    return {"reboots": len(losses), "deployment whole after": f"{longest:.0f} s", "refused for good": sum(losses)}, faults
