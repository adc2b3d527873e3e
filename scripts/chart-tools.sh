#!/usr/bin/env bash
# Prints the Python that has Helm's library, Kubernetes' schemas and a parser of PromQL, and installs them once, below target/. Nothing of them is
# committed. Ends with 77 where they cannot be had: its last line says why.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(realpath -m "${CARGO_TARGET_DIR:-target}/chart-tools")
wanted="helm-python-sdk==0.2.2 kubernetes-validate==1.37.0 promql-parser==0.12.0"
if [ "$(cat "$tools/installed" 2>/dev/null)" != "$wanted" ]; then
    rm -rf "$tools"
    python3 -m venv "$tools" >&2 || { echo "python3 -m venv failed" >&2; exit 77; }
    # shellcheck disable=SC2086
    "$tools/bin/pip" --disable-pip-version-check -q install $wanted >&2 || { echo "pip could not install $wanted" >&2; exit 77; }
    echo "$wanted" >"$tools/installed"
fi
echo "$tools/bin/python"
