#!/usr/bin/env bash
# Renders and validates the Helm chart and the examples (scripts/check-chart.py), holds that it refuses contradictions
# (scripts/check-refusals.py), and holds dashboard and alerts against the exported series (scripts/check-metrics.py): scripts/chart.sh [FOLDER WITH THE PROGRAMS]
# Helm itself comes as a Python package. Ends with 77 where that cannot be had: its last line says why.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(scripts/chart-tools.sh)
"$python" scripts/check-metrics.py
"$python" scripts/check-refusals.py
exec "$python" scripts/check-chart.py "${1:-${CARGO_TARGET_DIR:-target}/release}"
