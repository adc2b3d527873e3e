#!/bin/bash
# Slurm's Prolog (root): gives the job a grant that counts against its user's limit, and a path by which the user reaches it.
set -euo pipefail
job=${VCUDA_JOBS:-/run/vcuda-jobs}/$SLURM_JOB_ID
install -d -m 711 "${job%/*}"
# Root's until all is in it: a user could put a link where the directory is mounted.
mkdir -m 700 "$job" "$job/vcuda"
if ! directory=$(vcuda grant create "job-$SLURM_JOB_ID" --user "$SLURM_JOB_USER" --directory \
    --memory "${VCUDA_JOB_MEMORY:-8GiB}" --cores "${VCUDA_JOB_CORES:-25}" 2>"$job/refusal"); then
    # A prolog that fails would drain the node.
    scontrol update JobId="$SLURM_JOB_ID" AdminComment="$(<"$job/refusal")"
    scancel "$SLURM_JOB_ID"
    exit 0
fi
mount --bind "$directory" "$job/vcuda"
# Numbers of its GPUs, as programs such as vLLM take no UUIDs.
awk -F', ' -v id="${directory##*/}" 'NR == FNR { number[$2] = $1; next } $1 == id { print number[$2] }' \
    <(vcuda smi --query-gpu=index,uuid --format=csv,noheader) \
    <(vcuda smi --query-tenants=name,gpu_uuid --format=csv,noheader) | paste -sd, >"$job/gpus"
chown "$SLURM_JOB_USER" "$job"
