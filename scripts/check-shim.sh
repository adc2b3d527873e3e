#!/usr/bin/env bash
# Checks the built shim (I2): scripts/check-shim.sh [FOLDER OF THE RELEASE BUILD]
#   exports = hook table + dlsym, dlvsym, dlopen, dlmopen; nothing needed but libc and its loader; no undefined cu*/nvml* symbol;
#   prints the highest glibc symbol version and the size.
set -euo pipefail
cd "$(dirname "$0")/.."
shim=${1:-target/release}/libvcuda_shim.so
[ -f "$shim" ] || { echo "check-shim: no $shim: run cargo build --release --workspace"; exit 1; }
failed=0
complain() { echo "check-shim: $*"; failed=1; }

rows=$(sed -nE 's/^ *(deny|pass) +([A-Za-z0-9_]+) *=>.*/\2/p' shim/src/hooks.rs | sort -u)
[ -n "$rows" ] || complain "found no rows in shim/src/hooks.rs"
exports=$(nm -D --defined-only "$shim" | awk '{print $NF}' | sed 's/@.*//' | sort -u)
wanted=$(printf '%s\ndlsym\ndlvsym\ndlopen\ndlmopen\n' "$rows" | sort -u)
if [ "$exports" != "$wanted" ]; then
    complain "exports and hook table differ (< exported only, > in the table only):"
    diff <(echo "$exports") <(echo "$wanted") | grep '^[<>]' || true
fi
for needed in $(readelf -dW "$shim" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p'); do
    case "$needed" in
    libc.so.6 | ld-linux-*.so.*) ;;
    *) complain "needs $needed; an image without it would drop the preload silently" ;;
    esac
done
undefined=$(nm -D --undefined-only "$shim" | awk '{print $NF}' | grep -E '^(cu[A-Z]|nvml)' || true)
[ -z "$undefined" ] || complain "undefined driver symbols: $undefined"
glibc=$(nm -D --undefined-only "$shim" | sed -nE 's/.*@(GLIBC_[0-9.]+)$/\1/p' | sort -Vu | tail -1)
# What is loaded: code, data and zeroed memory, without the debug information of the file.
size=$(size -B "$shim" | awk 'NR == 2 { print $4 }')
[ "$size" -le $((5 << 18)) ] || complain "$size bytes: more than 1.25 MiB in every process"
echo "check-shim: $(echo "$rows" | wc -l) hooks, highest symbol version $glibc, $size bytes in a process"
exit "$failed"
