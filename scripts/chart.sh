#!/usr/bin/env bash
# Renders and validates the Helm chart and the examples (scripts/check-chart.py): scripts/chart.sh [FOLDER WITH THE PROGRAMS]
# Helm itself comes as a Python package; nothing of it is committed. Ends with 77 where that cannot be had: its last line
# says why.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
tools=$target/chart-tools
wanted="helm-python-sdk==0.2.2 kubernetes-validate==1.37.0"
if [ "$(cat "$tools/installed" 2>/dev/null)" != "$wanted" ]; then
    rm -rf "$tools"
    python3 -m venv "$tools" || { echo "python3 -m venv failed"; exit 77; }
    # shellcheck disable=SC2086
    "$tools/bin/pip" --disable-pip-version-check -q install $wanted || { echo "pip could not install $wanted"; exit 77; }
    echo "$wanted" >"$tools/installed"
fi
exec "$tools/bin/python" scripts/check-chart.py "${1:-$target/release}"
