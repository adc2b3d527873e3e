#!/usr/bin/env bash
# Tries deploy/smoke-test.sh against a kubectl that plays a cluster: a good one passes, and each thing that is wrong is found.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Plays the cluster that $CLUSTER names; keeps the pods' amounts in files.
cat >"$work/kubectl" <<'K'
#!/usr/bin/env bash
words="$*"
case $words in
version) [ "$CLUSTER" != absent ] ;;
*"get pods -l"*) [ "$CLUSTER" = empty ] || echo "vcuda-abcde $([ "$CLUSTER" = unready ] && echo False || echo True)" ;;
"get nodes"*) case $CLUSTER in idle | claims) echo "  " ;; *) echo "16 318 100" ;; esac ;;
"get resourceslices"*) [ "$CLUSTER" != claims ] || echo "node-a gpu-0 gpu-1" ;;
"create namespace"* | "delete namespace"*) echo "$words" >>"$PLAY/namespaces" ;;
*"apply -f -") manifest=$(cat) && name=$(sed -nE 's/^metadata: \{name: (.*)\}/\1/p' <<<"$manifest") &&
    case $manifest in
    *ResourceClaimTemplate*) echo $(($(sed -nE 's/.*memory: ([0-9]+)Mi,.*/\1/p' <<<"$manifest") / 256)) >"$PLAY/$name" ;;
    *vcuda.io/memory*) sed -nE 's/.*memory: ([0-9]+),.*/\1/p' <<<"$manifest" >"$PLAY/$name" ;;
    esac ;;
*"wait --for"*) [ "$CLUSTER" != stuck ] ;;
*"exec"*test*) [ "$CLUSTER" != writable ] ;;
*"exec"*maps*) [ "$CLUSTER" != musl ] ;;
*"exec small"*nvidia-smi*) [ "$CLUSTER" = whole ] && echo 81559 || echo $((256 * $(cat "$PLAY/small"))) ;;
*"exec large"*nvidia-smi*) [ "$CLUSTER" = whole ] && echo 81559 || echo $((256 * $(cat "$PLAY/large"))) ;;
*"get pod uneven"*reason*) [ "$CLUSTER" = lenient ] && echo Completed || echo CreateContainerConfigError ;;
*"get pod uneven"*phase*) echo Succeeded ;;
*"get events"*beyond*) [ "$CLUSTER" = claims ] && echo "0/1 nodes are available: 1 cannot allocate all claims." ;;
*"get pod"* | *"get events"*) echo "vcuda.io/memory: 3 is the total for 2 GPUs" ;;
*) echo "unexpected: kubectl $words" >&2 && exit 99 ;;
esac
K
chmod +x "$work/kubectl"
export PLAY=$work CLUSTER
failed=0
# try CLUSTER STATUS TEXT: what the smoke test says of it
try() {
    CLUSTER=$1
    rm -f "$work/namespaces"
    PATH=$work:$PATH timeout 60 deploy/smoke-test.sh >"$work/said" 2>&1
    local status=$?
    if [ $status != "$2" ] || ! grep -q -- "$3" "$work/said" || grep -q '^unexpected' "$work/said"; then
        echo "check-smoke: $1: status $status, not $2 with '$3':" && cat "$work/said"
        failed=1
    elif [ -e "$work/namespaces" ] && [ "$(wc -l <"$work/namespaces")" != 2 ]; then
        echo "check-smoke: $1: left its namespace behind"
        failed=1
    fi
}
try good 0 "smoke-test: all passed"
try absent 69 "reaches no cluster"
try empty 1 "no pod of the chart"
try unready 1 "not ready"
try idle 1 "no node offers"
try stuck 1 "pod small does not start"
try writable 1 "limits or preload are missing"
try musl 1 "the library is not loaded"
try whole 1 "not one twice the other"
try lenient 1 "3 chunks on 2 GPUs"
try claims 0 "101 % of a GPU are refused"
[ $failed = 0 ] && echo "check-smoke: 11 clusters, each told for what it is"
exit $failed
