#!/usr/bin/env python3
"""Holds deploy/alerts.yaml and deploy/grafana-dashboard.json against the series that the daemons export.

usage: scripts/check-metrics.py; with VCUDA_UPDATE=1 it writes docs/generated/alerts.md, which is made of deploy/alerts.yaml

Every expression is parsed as Prometheus parses it. Each selector has to name a series of manager/tests/it/metrics.txt and
labels that it has; each grouping and join, labels that one of the expression's series has. Needs promql-parser and PyYAML:
scripts/chart.sh installs them.
"""
import json, os, pathlib, re, sys

import promql_parser as promql, yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRAPED = {"job", "instance"}
problems = []


def check(holds, *words):
    if not holds:
        problems.append(" ".join(map(str, words)))


def series():
    """Labels of each series by its name. Prometheus adds `job`, `instance` and the series `up`."""
    known = {"up": set(SCRAPED)}
    for line in (ROOT / "manager/tests/it/metrics.txt").read_text().splitlines():
        name, labels, kind = re.fullmatch(r"(\w+)\{(.*)\} (\w+)", line).groups()
        labels = SCRAPED | set(labels.split(","))
        if kind == "histogram":
            known |= {name + "_bucket": labels | {"le"}, name + "_sum": labels, name + "_count": labels}
        else:
            known[name] = labels
    return known


KNOWN = series()


def parts(expression):
    yield expression
    for name in ("lhs", "rhs", "expr", "param", "vector_selector"):
        inner = getattr(expression, name, None)
        if isinstance(inner, promql.Expr):
            yield from parts(inner)
    for inner in getattr(expression, "args", []):
        yield from parts(inner)


def read(text):
    """The selectors of an expression, and every label that it groups or joins by."""
    selectors, named = [], set()
    for part in parts(promql.parse(text)):
        if isinstance(part, promql.VectorSelector):
            selectors.append(part)
        elif isinstance(part, promql.AggregateExpr) and part.modifier:
            named |= set(part.modifier.labels)
        elif isinstance(part, promql.BinaryExpr) and part.modifier:
            named |= set(part.modifier.matching.labels if part.modifier.matching else []) | set(part.modifier.group_labels or [])
    return selectors, named


def wrong(text):
    """What is wrong with an expression."""
    try:
        selectors, named = read(text)
    except ValueError as error:
        return [f"{text}: {error}"]
    found, labels = [], set()
    for selector in selectors:
        if selector.name not in KNOWN:
            found.append(f"{text}: there is no series {selector.name}")
            continue
        labels |= KNOWN[selector.name]
        asked = {matcher.name for matcher in selector.matchers.matchers}
        found += [f"{text}: {selector.name} has no label {name}" for name in asked - KNOWN[selector.name]]
    return found + [f"{text}: none of its series has a label {name}" for name in named - labels]


def sees_mistakes():
    for text, is_right in [
        ('sum by (gpu_uuid) (rate(vcuda_container_denied_total{pod=~"a.*"}[5m]))', True),
        ('up{job="x"} == 0', True),
        ("histogram_quantile(0.9, sum by (le, method) (rate(vcuda_api_duration_seconds_bucket[5m])))", True),
        ('vcuda_container_denied{pod="a"}', False),
        ('vcuda_gpu_healthy{pod="a"}', False),
        ('max_over_time(vcuda_gpu_healthy{pod="a"}[1h:1m])', False),
        ('rate(vcuda_gpu_healthy{pod="a"}[5m])', False),
        ("sum by (pod) (vcuda_gpu_healthy)", False),
        ("sum(vcuda_gpu_healthy", False),
        ("vcuda_gpu_shares * on (pod) vcuda_gpu_healthy", False),
        ("-vcuda_gpu_shares * on (node) group_left (pod) (vcuda_gpu_healthy)", False),
    ]:
        check(not wrong(text) == is_right, "this check:", text, wrong(text))


def without_variables(text):
    """The expression with Grafana's variables replaced by times and label values."""
    text = text.replace("$__rate_interval", "5m").replace("$__range", "1h")
    return re.sub(r"\$(node|gpu|namespace|pod)\b", "x", text)


def dashboard():
    board = json.loads((ROOT / "deploy/grafana-dashboard.json").read_text())
    panels = board["panels"]
    check(len({panel["id"] for panel in panels}) == len(panels), "the dashboard's ids are not unique")
    expressions = [(panel["title"], without_variables(target["expr"])) for panel in panels if panel["type"] != "row" for target in panel["targets"]]
    for title, text in expressions:
        check("$" not in text, title + ": an unknown variable in", text)
        problems.extend(f"{title}: {each}" for each in wrong(text))
    for variable in board["templating"]["list"]:
        query = variable["query"]["query"] if isinstance(variable.get("query"), dict) else None
        if query:
            selector, label = re.fullmatch(r"label_values\((.*),\s*(\w+)\)", query).groups()
            problems.extend(wrong(without_variables(selector)))
            check(label in KNOWN[selector.split("{")[0]], query, "has no such label")
    return len(expressions)


HEAD = """<!-- Made from deploy/alerts.yaml by VCUDA_UPDATE=1 scripts/chart.sh. Change that file, not this page. -->
# Alerts

The alerts of `deploy/alerts.yaml`: what each means, and what to do. On the node, `vcuda events` and `vcuda doctor` tell more. To link a copy of
this page, set the chart's `metrics.prometheusRule.runbooks`, or edit the URLs: `sed -i s,https://vcuda.io/docs,https://wiki.example/vcuda, alerts.yaml`.
"""


def page(groups):
    """docs/generated/alerts.md. What Prometheus fills in stands in capitals: NODE, GPU_UUID."""
    text = HEAD
    for group in groups:
        text += f"\n## {group['name'].removeprefix('vcuda-').capitalize()}\n"
        for rule in group["rules"]:
            told = rule["annotations"]
            parts = [told["summary"] + ".", told["description"], "**What to do.** " + told["action"]]
            plain = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda label: label[1].upper(), " ".join(parts))
            plain = re.sub(r"\{\{ \$value[^}]*\}\}", "N", plain)
            text += f"\n### {rule['alert']}\n\n*{rule['labels']['severity']}*, `{rule['expr']}`\n\n{plain}\n"
    return text


def alerts():
    groups = yaml.safe_load((ROOT / "deploy/alerts.yaml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    names = [rule["alert"] for rule in rules]
    check(len(set(names)) == len(names), "an alert stands twice:", names)
    path = ROOT / "docs/generated/alerts.md"
    if os.environ.get("VCUDA_UPDATE"):
        path.write_text(page(groups))
    check(path.exists() and path.read_text() == page(groups), "docs/generated/alerts.md is stale: run VCUDA_UPDATE=1 scripts/chart.sh")
    for rule in rules:
        name, text = rule["alert"], rule["expr"]
        problems.extend(f"{name}: {each}" for each in wrong(text))
        check(rule["labels"]["severity"] in ("critical", "warning", "info"), name, rule["labels"])
        wanted = "https://vcuda.io/docs/generated/alerts.md#" + name.lower()
        check(rule["annotations"]["runbook_url"] == wanted, name, "has another runbook than", wanted)
        selectors, named = read(text)
        has = named.union(*(KNOWN.get(selector.name, set()) for selector in selectors))
        for part in ("summary", "description", "action"):
            told = set(re.findall(r"\$labels\.(\w+)", rule["annotations"][part]))
            check(told <= has, name, "tells of labels that it has not:", told - has)
        if name == "VcudaAuditFinding":
            check(rule["annotations"]["summary"].startswith("The audit has findings for "), name, rule["annotations"]["summary"])
    for wanted in ("NotAttached", "OverLimit", "MemoryDenied", "ManagerDown", "GpuUnhealthy", "ArbiterStale"):
        check("Vcuda" + wanted in names, "there is no alert", wanted)
    return len(rules)


def main():
    sees_mistakes()
    count = (dashboard(), alerts())
    for problem in problems:
        print("check-metrics:", problem)
    print("check-metrics: {} expressions of the dashboard, {} alerts,".format(*count), len(problems), "problems")
    return 1 if problems or count[0] < 12 else 0


sys.exit(main())
