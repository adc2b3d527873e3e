#!/bin/bash
# Slurm's TaskProlog (the user): what it prints becomes the environment of the task, whose programs then run in the job's grant.
job=${VCUDA_JOBS:-/run/vcuda-jobs}/$SLURM_JOB_ID
echo "export VCUDA_DIR=$job/vcuda"
echo "export CUDA_VISIBLE_DEVICES=$(<"$job/gpus")"
echo "export CUDA_DEVICE_ORDER=PCI_BUS_ID"
echo "export LD_PRELOAD=${LD_PRELOAD:+$LD_PRELOAD:}${VCUDA_SHIM:-/usr/lib/vcuda/libvcuda_shim.so}"
