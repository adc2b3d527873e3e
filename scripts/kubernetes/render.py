#!/usr/bin/env python3
"""Prints the chart's objects as helm would install them (without those of helm test; --test: these alone), by the Python of
scripts/chart-tools.sh: render.py [--test] VALUES.yaml [--release NAME] [NAME.NAME=VALUE]..."""
import pathlib, sys

import helm_python, yaml

CHART = pathlib.Path(__file__).resolve().parent.parent.parent / "deploy/helm/vcuda"
is_test = sys.argv[1] == "--test"
if is_test:
    del sys.argv[1]
values = yaml.safe_load(pathlib.Path(sys.argv[1]).read_text())
release, settings = "vcuda", sys.argv[2:]
if settings[:1] == ["--release"]:
    release, settings = settings[1], settings[2:]
for setting in settings:
    names, value = setting.split("=", 1)
    *tables, name = names.split(".")
    table = values
    for each in tables:
        table = table.setdefault(each, {})
    table[name] = yaml.safe_load(value)
with helm_python.Chart.load(CHART) as chart:
    rendered = chart.render(values, name=release, namespace="vcuda-system")
for file, text in rendered.items():
    if file.endswith(".yaml") and file.endswith("/test.yaml") == is_test:
        print("---", text, sep="\n")
