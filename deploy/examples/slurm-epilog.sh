#!/bin/bash
# Slurm's Epilog (root): ends the job's grant. Slurm has ended the job's processes before.
job=${VCUDA_JOBS:-/run/vcuda-jobs}/$SLURM_JOB_ID
umount "$job/vcuda" 2>/dev/null
rm -rf --one-file-system "$job"
# A job that was refused has none.
vcuda grant release "job-$SLURM_JOB_ID" --force || true
