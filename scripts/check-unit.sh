#!/usr/bin/env bash
# The systemd unit: every line understood, and what it leaves open no more than it was (of 10; systemd.exec(5)). 77: no
# systemd-analyze here. Nothing is started.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v systemd-analyze >/dev/null || { echo "check-unit: no systemd-analyze here"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unit=$folder/vcuda-manager.service
# It is not installed here: any program stands in for it.
sed 's#/usr/bin/vcuda-manager#/bin/true#' deploy/vcuda-manager.service >"$unit"
said=$(systemd-analyze verify --man=no "$unit" 2>&1) || { echo "$said"; exit 1; }
[ -z "$said" ] || { echo "$said"; exit 1; }
# Its options are of systemd 250 and later.
systemd-analyze security --help 2>&1 | grep -q -- --offline || { echo "check-unit: this systemd-analyze cannot judge a file"; exit 77; }
systemd-analyze security --offline=true --no-pager --threshold=25 "$unit" >"$folder/judged" || { cat "$folder/judged"; exit 1; }
echo "check-unit: $(tail -n 1 "$folder/judged" | grep -o 'exposure level.*: [0-9.]*')"
