#!/usr/bin/env bash
# Checks the built shim (I2): scripts/check-shim.sh [FOLDER OF THE RELEASE BUILD] [HIGHEST GLIBC]
#   exports = hook table + dlsym, dlvsym, dlopen, dlmopen; nothing needed but libc and its loader; no undefined cu*/nvml* symbol;
#   every other undefined symbol has a version (or is weak); prints the highest glibc symbol version and the size.
# With HIGHEST GLIBC (such as 2.17) a symbol of a later one is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
shim=${1:-${CARGO_TARGET_DIR:-target}/release}/libvcuda_shim.so
limit=${2-}
[ -f "$shim" ] || { echo "check-shim: no $shim: run cargo build --release -p vcuda-shim"; exit 1; }
failed=0
complain() { echo "check-shim: $*"; failed=1; }

rows=$(sed -nE 's/^ *(deny|pass) +([A-Za-z0-9_]+) *=>.*/\2/p' shim/src/hooks.rs | sort -u)
[ -n "$rows" ] || complain "found no rows in shim/src/hooks.rs"
# Those that only pass the gate.
gated=$(sed -n '/gate {/,/}/p' shim/src/hooks/gated.rs | grep -v '//' | grep -oE '\bcu[A-Z][A-Za-z0-9_]+' | sort -u)
[ -n "$gated" ] || complain "found no rows in shim/src/hooks/gated.rs"
rows=$(printf '%s\n%s\n' "$rows" "$gated" | sort -u)
exports=$(nm -D --defined-only "$shim" | awk '{print $NF}' | sed 's/@.*//' | sort -u)
wanted=$(printf '%s\ndlsym\ndlvsym\ndlopen\ndlmopen\n' "$rows" | sort -u)
if [ "$exports" != "$wanted" ]; then
    complain "exports and hook table differ (< exported only, > in the table only):"
    diff <(echo "$exports") <(echo "$wanted") | grep '^[<>]' || true
fi
# Before glibc 2.34 threads and dlopen had libraries of their own; both come in the package of libc.so.6, to this day.
own="libc.so.6 ld-linux-*.so.*"
[ -n "$limit" ] && own+=" libpthread.so.0 libdl.so.2"
for needed in $(readelf -dW "$shim" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p'); do
    for pattern in $own; do
        # shellcheck disable=SC2053
        [[ $needed == $pattern ]] && continue 2
    done
    complain "needs $needed; an image without it would drop the preload silently"
done
undefined=$(nm -D --undefined-only "$shim")
driver=$(awk '{print $NF}' <<<"$undefined" | grep -E '^(cu[A-Z]|nvml)' || true)
[ -z "$driver" ] || complain "undefined driver symbols: $driver"
# No version: the linker found the symbol nowhere, and a loader that does not either ends every process of the container.
strangers=$(awk '$(NF-1) == "U" && $NF !~ /@/ {print $NF}' <<<"$undefined")
[ -z "$strangers" ] || complain "undefined symbols that no glibc up to ${limit:-this one} has: $strangers"
glibc=$(sed -nE 's/.*@(GLIBC_[0-9.]+)$/\1/p' <<<"$undefined" | sort -Vu | tail -1)
if [ -n "$limit" ]; then
    later=$(sed -nE 's/.* ([^ ]+)@GLIBC_([0-9.]+)$/\2 \1/p' <<<"$undefined" | { cat; echo "$limit"; } | sort -V | sed "1,/^${limit//./\\.}\$/d" |
        grep -v "^${limit//./\\.} " || true)
    [ -z "$later" ] || complain "symbols beyond glibc $limit:" "$later"
fi
# What is loaded: code, data and zeroed memory, without the debug information of the file. Elsewhere pages and code are larger.
size=$(size -B "$shim" | awk 'NR == 2 { print $4 }')
machine=$(readelf -hW "$shim" | sed -nE 's/ *Machine: *(.*)/\1/p')
# 16 bytes of each function are for other programs to patch (hooks/table.rs). 256 KiB are the table of kernels, whose memory is only
# provided as it is used.
case $machine in *X86-64) size_max=$((540 << 12)) ;; *) size_max=$((17 << 17)) ;; esac
# The linker for old C libraries keeps more unwind tables and relocations, some 170 KB.
[ -z "$limit" ] || size_max=$((size_max + (3 << 16)))
[ "$size" -le $size_max ] || complain "$size bytes: more than $size_max in every process"
echo "check-shim: $(echo "$rows" | wc -l) hooks, highest symbol version $glibc, $size bytes in a process, $machine"
exit "$failed"
