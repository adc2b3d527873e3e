"""Scenarios of what makes and changes pods: Jobs, CronJobs, a resize by Kubernetes, `helm test`."""
import json, subprocess, time

from cluster import CHUNK, NAMESPACE, NODE, Fault, by_claim, container, pod, states
from pods import now_in

TOOLS = NODE.parent / "chart-tools.sh"


def controller(cluster, kind, name, template, **spec):
    """A Job or CronJob of pods like this one, by claims in mode dra; what is to be created as written."""
    templates = []
    if cluster.mode == "dra":
        template, templates = by_claim(template)
    job = {"spec": spec.pop("job", {}) | {"template": {"spec": template["spec"]}}}
    if kind == "Job":
        spec |= job["spec"]
    else:
        spec["jobTemplate"] = job
    return templates + [{"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}]


def delete(cluster, kind, name):
    cluster.kubectl("delete", kind, name, "--ignore-not-found", "--wait=false")


def wrong_of(cluster, template, found):
    """Pods that a controller made of this template and that saw other limits than its."""
    return cluster.wrong_limits([{"metadata": one["metadata"], "spec": template["spec"]} for one in found])


def job(cluster):
    """A Job of 60 short pods, six at once: each has its limits, and none is needed twice."""
    template = pod("", container(memory=12, cores=15, run="sleep 1"))
    cluster.create(controller(cluster, "Job", "short", template, completions=60, parallelism=6, job={"backoffLimit": 0}), as_written=True)
    try:
        seconds = cluster.wait(500, "60 pods have succeeded", lambda: sum(states(one)[0] == "Succeeded" for one in cluster.pods().values()) == 60)
        found = cluster.pods()
        faults = wrong_of(cluster, template, found.values())
        status = json.loads(cluster.kubectl("get", "job", "short", "-o", "json"))["status"]
        # Pods that have ended and are still there hold nothing.
        freed = cluster.wait(60, "nothing is held", lambda: not cluster.left_behind())
    finally:
        delete(cluster, "job", "short")
    return {"pods": len(found), "failed": status.get("failed", 0), "seconds": f"{seconds:.0f}", "nothing held after": f"{freed:.0f} s"}, faults


def cron_job(cluster):
    """A CronJob of each minute: three runs have their limits, and nothing of them is held before the next."""
    template = pod("", container(memory=12, cores=15, run="sleep 1"))
    cluster.create(controller(cluster, "CronJob", "minute", template, schedule="* * * * *", successfulJobsHistoryLimit=5), as_written=True)
    faults = []
    try:
        for number in range(1, 4):
            ended = lambda: [one for one in cluster.pods().values() if states(one)[0] in ("Succeeded", "Failed")]
            cluster.wait(150, f"{number} runs", lambda: len(ended()) == number)
            cluster.wait(50, "nothing is held", lambda: not cluster.left_behind())
        found = list(cluster.pods().values())
        faults += [f"{one['metadata']['name']}: {states(one)}" for one in found if states(one)[0] == "Failed"]
        faults += wrong_of(cluster, template, found)
    finally:
        delete(cluster, "cronjob", "minute")
    return {"runs": len(found)}, faults


def in_place(cluster):
    """A pod's processors are changed while it runs, without and with a restart of its container: its share stays as it is."""
    faults, names = [], {"web": ("NotRequired", 8), "restarts": ("RestartContainer", 12)}
    for name, (way, memory) in names.items():
        made, templates = pod(name, container(memory=memory, cores=20), restartPolicy="Always"), []
        wanted = made
        if cluster.mode == "dra":
            made, templates = by_claim(made)
        app = made["spec"]["containers"][0]
        app["resizePolicy"] = [{"resourceName": "cpu", "restartPolicy": way}]
        app["resources"]["requests"] = {"cpu": "50m"}
        app["resources"]["limits"] = app["resources"].get("limits", {}) | {"cpu": "100m"}
        cluster.create(templates + [made], as_written=True)
        cluster.wait_phase([name], {"Running"})
        faults += cluster.wrong_limits([wanted])
    before = cluster.grants()
    patch = json.dumps({"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "80m"}, "limits": {"cpu": "200m"}}}]}})
    refused = 0
    for name, (way, memory) in names.items():
        status = lambda: cluster.pods()[name]["status"]["containerStatuses"][0]
        try:
            cluster.kubectl("patch", "pod", name, "--subresource", "resize", "--patch", patch)
        except Fault as fault:
            # Kubernetes takes no resize of a container with claims: kubernetes/kubernetes#138641.
            if cluster.mode != "dra" or "only cpu and memory resources are mutable" not in str(fault):
                raise
            refused += 1
            faults += cluster.untouched([name])
        else:
            cluster.wait(90, f"{name} has its processors", lambda: status()["resources"]["limits"]["cpu"] == "200m")
            restarts = int(way == "RestartContainer")
            cluster.wait(90, f"{name} was started {restarts} times again", lambda: status()["restartCount"] == restarts and "running" in status()["state"])
        cluster.wait(30, f"{name} still has its share", lambda: now_in(cluster, name) == [(memory * CHUNK, 200)])
    key = lambda grants: sorted((grant["id"], grant["memory_bytes"]) for grant in grants)
    if key(cluster.grants()) != key(before):
        faults.append(f"the grants were {before} and are {cluster.grants()}")
    return {"pods": len(names), "resizes refused by Kubernetes": refused}, faults


def helm_test(cluster):
    """The pod of `helm test` succeeds, again too, and does not while the node has no driver or plugin; then it says why."""
    python = subprocess.run([TOOLS], capture_output=True, text=True, check=True).stdout.strip()
    words = [python, NODE.parent / "kubernetes/render.py", "--test", cluster.folder / "state/etc/values.yaml", *cluster.settings()]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    phase = lambda: states(cluster.pods(NAMESPACE)["vcuda-test"])[0]
    faults, took = [], []

    def play():
        cluster.kubectl("delete", "-f", "-", "--ignore-not-found", given=text)
        cluster.kubectl("create", "-f", "-", given=text)

    try:
        for _ in range(2):
            play()
            took.append(cluster.wait(120, "it succeeds", lambda: phase() == "Succeeded"))
        cluster.kubectl("-n", NAMESPACE, "delete", "daemonset", "vcuda", "--cascade=foreground", "--timeout=120s")
        play()
        time.sleep(20)
        if phase() not in ("Pending", "Failed"):
            faults.append(f"without a driver it is {phase()}")
        why = cluster.node("run", cluster.folder / "state/programs/kubectl-vcuda", "-n", NAMESPACE, "why", "vcuda-test")
        cluster.chart()
        if phase() == "Pending":
            took.append(cluster.wait(120, "it succeeds after the driver's return", lambda: phase() == "Succeeded"))
    finally:
        cluster.kubectl("delete", "-f", "-", "--ignore-not-found", given=text)
        cluster.chart()
    if "vcuda" not in why:
        faults.append(f"without a driver nothing says why: {why}")
    return {"tests": len(took), "longest": f"{max(took):.0f} s"}, faults
