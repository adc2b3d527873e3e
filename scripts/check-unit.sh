#!/usr/bin/env bash
# The systemd units: every line understood, and what they leave open no more than it was (of 10; systemd.exec(5)). 77: no
# systemd-analyze here. Nothing is started.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v systemd-analyze >/dev/null || { echo "check-unit: no systemd-analyze here"; exit 77; }
folder=$(mktemp -d) judged=
trap 'rm -rf "$folder"' EXIT
units=(vcuda-manager vcuda-device-plugin)
# The programs are not installed here: any other stands in for them.
for name in "${units[@]}"; do sed "s#/usr/bin/vcuda-[a-z]*#/bin/true#" "deploy/$name.service" >"$folder/$name.service"; done
said=$(systemd-analyze verify --man=no "$folder"/*.service 2>&1) || { echo "$said"; exit 1; }
[ -z "$said" ] || { echo "$said"; exit 1; }
# Its options are of systemd 250 and later.
systemd-analyze security --help 2>&1 | grep -q -- --offline || { echo "check-unit: this systemd-analyze cannot judge a file"; exit 77; }
for name in "${units[@]}"; do
    systemd-analyze security --offline=true --no-pager --threshold=25 "$folder/$name.service" >"$folder/judged" || { cat "$folder/judged"; exit 1; }
    judged+=" $name $(tail -n 1 "$folder/judged" | grep -o 'level.*: [0-9.]*' | grep -o '[0-9.]*$')"
done
echo "check-unit: exposure levels:$judged"
