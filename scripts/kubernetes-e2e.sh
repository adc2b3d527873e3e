#!/usr/bin/env bash
# The chart and the plugin on a real node (scripts/kubernetes-node.sh, which it starts where it is not up, and then ends):
#
#   scripts/kubernetes-e2e.sh FOLDER [--mode plugin|dra] [--only NAME]... [--json FILE]
#
# The scenarios stand in scripts/kubernetes/e2e.py. Pods ask by counts (mode plugin, the default) or by claims. Each prints its figures; a table closes. 90 s after a scenario's last pod
# nothing of them may be left. Ends with 1 if one falls short.
set -euo pipefail
scripts=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || { sed -n 's/^#   //p' "$0" >&2; exit 64; }
if ! "$scripts/kubernetes-node.sh" "$1" run true 2>/dev/null; then
    trap '"$scripts/kubernetes-node.sh" "$1" down' EXIT
    "$scripts/kubernetes-node.sh" "$1" up
fi
python3 "$scripts/kubernetes/e2e.py" "$@"
