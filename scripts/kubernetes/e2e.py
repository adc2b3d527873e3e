#!/usr/bin/env python3
"""Runs the scenarios on the node of scripts/kubernetes-node.sh and prints one table; see scripts/kubernetes-e2e.sh."""
import argparse, json, pathlib, subprocess, sys, time

import admission, basics, chart, claims, controllers, extender, failures, kinds, modes, overcommit, pods, scale, troubles
from cluster import Cluster, Fault

SCENARIOS = {
    "two-pods": basics.two_pods, "resize": basics.resize, "requests": basics.requests, "bounds": basics.bounds, "limits": basics.limits, "kinds": kinds.kinds,
    "crashes": pods.crashes, "deletions": pods.deletions, "mixed": failures.mixed, "drain": pods.drain,
    "kubelet": failures.kubelet, "kills": failures.kills, "idle": failures.idle, "leaked": pods.leaked,
    "upgrade": chart.upgrade, "strict": chart.strict, "reboot": chart.reboot, "host-services": chart.host_services,
    "admission": admission.admission, "policy": admission.policy, "extender": extender.extender, "claims": claims.claims,
    "admitted-claims": admission.admitted_claims, "modes": modes.modes, "full-disk": troubles.full_disk, "in-place": controllers.in_place, "job": controllers.job,
    "cron-job": controllers.cron_job, "namespace": troubles.namespace, "frozen": troubles.frozen, "loops": troubles.loops,
    "helm-test": controllers.helm_test, "overcommit": overcommit.overcommit, "scale": scale.scale,
}
# What deleted pods may leave, and for how long.
LEFT_SECONDS = 90
# Those of one mode alone. The others are played in both: their pods ask by counts or by claims.
PLUGIN_ALONE = {"host-services", "admission", "policy", "extender"}
DRA_ALONE = {"claims", "admitted-claims", "modes"}


def play(cluster, name):
    """One scenario, on a node without pods: its figures, what fell short, its seconds."""
    begun = time.monotonic()
    figures, faults = {}, []
    try:
        figures, faults = SCENARIOS[name](cluster)
    except (Fault, subprocess.TimeoutExpired, LookupError, ValueError) as error:
        faults = [f"{type(error).__name__}: {error}"]
    try:
        cluster.remove_all()
        cluster.wait(LEFT_SECONDS, "nothing is left behind", lambda: not cluster.left_behind())
    except (Fault, subprocess.TimeoutExpired) as error:
        faults.append(f"its pods: {error}; left: {cluster.left_behind()[:5]}")
    if faults:
        cluster.keep_logs(name)
    return {"scenario": name, "passed": not faults, "figures": figures, "faults": faults, "seconds": round(time.monotonic() - begun)}


def table(results):
    print("\n| scenario | result | figures |\n|---|---|---|")
    for result in results:
        figures = ", ".join(f"{name} {value}" for name, value in result["figures"].items())
        print(f"| {result['scenario']} | {'passed' if result['passed'] else 'FAILED'} | {figures} |")


def main():
    parser = argparse.ArgumentParser(prog="kubernetes-e2e.sh")
    parser.add_argument("folder")
    parser.add_argument("--mode", choices=("plugin", "dra"), default="plugin")
    parser.add_argument("--only", action="append", choices=SCENARIOS)
    parser.add_argument("--json", type=pathlib.Path)
    given = parser.parse_args()
    cluster = Cluster(given.folder, given.mode)
    cluster.remove_all()
    cluster.chart()
    results = []
    others = PLUGIN_ALONE if given.mode == "dra" else DRA_ALONE
    for name in [name for name in given.only or SCENARIOS if name not in others]:
        print(f"== {name}: {SCENARIOS[name].__doc__}", flush=True)
        results.append(play(cluster, name))
        print(f"{results[-1]['seconds']} s, {results[-1]['figures']}")
        for fault in results[-1]["faults"][:20]:
            print("FAILED", fault)
    table(results)
    if given.json:
        given.json.write_text(json.dumps(results, indent=2) + "\n")
    sys.exit(0 if all(result["passed"] for result in results) else 1)


main()
