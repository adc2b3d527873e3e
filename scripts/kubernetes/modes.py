"""Scenario of two releases of the chart, one of each mode, on two nodes: the nodes' label says whose each node is."""
import json, subprocess

from cluster import NAMESPACE, NODE, container, pod, states

TOOLS = NODE.parent / "chart-tools.sh"
RELEASES = {"plugin": "vcuda", "dra": "shares-vcuda"}
# An object alone, without a kubelet: a pod that is sent there never starts.
OTHER = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other", "labels": {"kubernetes.io/hostname": "other"}},
         "status": {"capacity": {"cpu": "8", "memory": "8Gi", "pods": "10"}, "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"},
                    "conditions": [{"type": "Ready", "status": "True"}]}}


def rendered(cluster, mode):
    python = subprocess.run([TOOLS], capture_output=True, text=True, check=True).stdout.strip()
    words = [python, NODE.parent / "kubernetes/render.py", cluster.folder / "state/etc/values.yaml", "--release", RELEASES[mode].split("-")[0],
             f"mode={mode}", "modeLabel=true"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def label(cluster, **modes):
    for node, mode in modes.items():
        cluster.kubectl("label", "--overwrite", "node", node, f"vcuda.io/mode={mode}")


def where(cluster):
    """Nodes of each release's pods that are not about to end, and whether the real node's one is ready."""
    found, ready = {}, False
    for one in cluster.pods(NAMESPACE).values():
        if "deletionTimestamp" not in one["metadata"]:
            owner, node = one["metadata"]["ownerReferences"][0]["name"], one["spec"].get("nodeName", "nowhere")
            found.setdefault(owner, []).append(node)
            conditions = {each["type"]: each["status"] for each in one["status"].get("conditions", [])}
            ready |= node == "node" and conditions.get("Ready") == "True"
    return found, ready


def landed(cluster, node, other):
    """The real node has this mode's pod, ready, the other node the other's, and no node both. A share then runs on the real one."""
    label(cluster, node=node, other=other)
    wanted = {RELEASES[node]: ["node"], RELEASES[other]: ["other"]}
    seconds = cluster.wait(240, f"each release is on its own node: {wanted}", lambda: where(cluster) == (wanted, True))
    cluster.mode = node
    made = pod("share-" + node, container())
    cluster.create([made])
    cluster.wait_phase(["share-" + node], {"Running"}, 120)
    faults = cluster.wrong_limits([made])
    if node == "plugin":
        # Kubelet takes away what a driver has left 30 s after its end.
        cluster.wait(90, "the driver's slices have gone", lambda: not json.loads(cluster.kubectl("get", "resourceslices", "-o", "json"))["items"])
    # Of the other mode, a pod finds no node: the one that has it takes part by its label alone, without a kubelet.
    cluster.mode = other
    cluster.create([pod("not-" + node, container())])
    cluster.wait(60, f"a pod of mode {other} finds no node", lambda: "Unschedulable" in states(cluster.pods()["not-" + node])[1])
    cluster.remove_all()
    cluster.wait(60, "nothing is left behind", lambda: not cluster.left_behind())
    return seconds, faults


def modes(cluster):
    """Two releases by modeLabel on two nodes: each is on the nodes of its label alone, also after the labels are exchanged."""
    before, charts = cluster.mode, {mode: rendered(cluster, mode) for mode in RELEASES}
    cluster.kubectl("create", "-f", "-", given=json.dumps(OTHER))
    try:
        for text in charts.values():
            cluster.kubectl("apply", "-f", "-", given=text)
        cluster.wait(120, "without a label no node has a release", lambda: where(cluster)[0] == {})
        first, faults = landed(cluster, "dra", "plugin")
        second, more = landed(cluster, "plugin", "dra")
    finally:
        cluster.mode = before
        cluster.remove_all()
        cluster.kubectl("delete", "-f", "-", "--ignore-not-found", "--wait=false", given=charts["dra"])
        cluster.kubectl("label", "nodes", "node", "other", "vcuda.io/mode-")
        # No kubelet ends what is there.
        cluster.kubectl("delete", "node", "other")
        cluster.kubectl("-n", NAMESPACE, "delete", "pods", "--field-selector", "spec.nodeName=other", "--force", "--grace-period=0")
        cluster.wait(120, "the other node's pods have gone", lambda: "other" not in str(where(cluster)[0]))
        cluster.chart()
    return {"on their nodes after": f"{first:.0f} s", "after the labels' exchange": f"{second:.0f} s"}, faults + more
