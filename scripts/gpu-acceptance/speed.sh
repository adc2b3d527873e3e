# Stage "speed": what PyTorch loses, in turn without the shim, with a memory limit, and with a share of GPU time that it does
# not use up. With HAMI_CORE (see peers.sh) also under HAMi-core.
# shellcheck shell=bash disable=SC2154

stage_speed() {
    local round rounds=4 client=$dir/clients/torch_speed.py
    [ -z "$simulated" ] || { row skipped torch-speed "not simulated: the CUDA runtime"; return; }
    python3 -c "import torch" >/dev/null 2>&1 || { row skipped torch-speed "no PyTorch here"; return; }
    # shellcheck source=/dev/null
    . "$dir/gpu-acceptance/peers.sh"
    # Each second round in the opposite order: the machine gets slower or faster by itself.
    for round in $(seq $rounds); do
        [ $((round % 2)) = 1 ] || tenant_run "speed-cores-$round" 60 "--memory 8GiB --cores 95" python3 "$client" 0.3 || return
        [ $((round % 2)) = 1 ] || tenant_run "speed-memory-$round" 60 "--memory 8GiB" python3 "$client" 0.3 || return
        bare_run "speed-$round" 60 python3 "$client" 0.3 || return
        [ $((round % 2)) = 0 ] || tenant_run "speed-memory-$round" 60 "--memory 8GiB" python3 "$client" 0.3 || return
        [ $((round % 2)) = 0 ] || tenant_run "speed-cores-$round" 60 "--memory 8GiB --cores 95" python3 "$client" 0.3 || return
        [ ! -s "${HAMI_CORE-}" ] || peer_run "speed-peer-$round" 60 8192 0 python3 "$client" 0.3
    done
    for figure in steps_per_second processor_time_per_step products_per_second; do
        row measured "torch $figure" "bare $(spread "speed-[0-9].bare"); memory limit $(spread "speed-memory-*.tenant"); share $(spread "speed-cores-*.tenant")$([ ! -s "${HAMI_CORE-}" ] || echo "; HAMi-core $(spread "speed-peer-*.peer")")"
    done
}
# Median, least and most of `figure` in all the files
spread() {
    local file
    # shellcheck disable=SC2086
    for file in "$results"/$1; do awk -v name="$figure" '$1 == name {print $2}' "$file"; done | sort -n |
        awk '{v[NR] = $1} END {printf "%.0f (%.0f to %.0f)", v[int((NR + 1) / 2)], v[1], v[NR]}'
}
