# Stage "suspension": tenants of a manager that are suspended and resumed, by hand and by itself. docs/suspend.md.
# shellcheck shell=bash disable=SC2154

stage_suspension() { moved hand small calls turns torch killed; }
hand() { moved hand; }
small() { moved small; }
calls() { moved calls; }
turns() { moved turns; }
torch() { moved torch; }
killed() { moved killed; }
# moved CASE...: cases of suspension.py beside a manager that lets quotas exceed the GPU's memory, with short turns. A row is
# "same" if nothing was lost.
moved() {
    local manager case status memory_mib=4096
    # shellcheck source=/dev/null
    . "$dir/gpu-acceptance/manager.sh"
    printf '[admission]\nsuspendable_overcommit = 1.5\n[suspend]\nresidence = "3s"\n' >"$work/suspending.toml"
    start_manager --config "$work/suspending.toml"
    for case in "$@"; do
        if [ "$case" = torch ]; then
            [ -z "$simulated" ] || { row skipped torch "not simulated: the CUDA runtime"; continue; }
            python3 -c "import torch" >/dev/null 2>&1 || { row skipped torch "no PyTorch here"; continue; }
        fi
        limited 150 "$results/$case.tenant" python3 "$dir/gpu-acceptance/suspension.py" "$dir" "$memory_mib" "${simulated:-no}" "$case" "$manager"
        status=$?
        if [ $status = 0 ]; then row same "$case" "$(grep -cE '^[a-zA-Z0-9_]+ -?[0-9]' "$results/$case.tenant") figures"
        else row differs "$case" "status $status: $(grep -m1 -E 'FAIL|rror' "$results/$case.tenant" | cut -c1-100)"; fi
    done
    kill "$manager" 2>/dev/null
}
