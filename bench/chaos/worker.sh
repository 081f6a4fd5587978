#!/bin/bash
# A job that records its own runs, so that the judge need not trust anybody else: one file per run
# with its start, GPUs and end, and a second file that it keeps rewriting while it lives.
# KIND: saver, deaf (ignores the signal), stubborn (SIGTERM, too), plain (dies of it), broken (fails by itself).
run=$RECORDS/$TOKEN.$SLURM_JOB_ID.$$
saved=$RECORDS/$TOKEN.saved
echo "start $EPOCHREALTIME $SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0} $SLURM_JOB_NODELIST" > "$run.run"
echo "gpus $SLURMD_NODENAME ${SLURM_JOB_GPUS:-none}" >> "$run.run"
echo > "$run.beat"
if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then # the other nodes' GPUs, printed there
  timeout 60 srun --ntasks-per-node=1 bash -c \
    'echo "gpus $SLURMD_NODENAME ${SLURM_STEP_GPUS:-none}"' 2> /dev/null |
    grep -v " $SLURMD_NODENAME " >> "$run.run" &
fi
left=$TOTAL
[ -e "$saved" ] && left=$(< "$saved")
save() {
  echo "$left" > "$saved.new" && mv "$saved.new" "$saved"
  echo "saved $EPOCHREALTIME" >> "$run.run"
  exit 85
}
case $KIND in
  saver) trap save USR1 ;;
  deaf) trap '' USR1 ;;
  stubborn) trap '' USR1 TERM ;;
esac
while [ "$left" -gt 0 ]; do
  sleep 0.5 &
  wait $!
  left=$((left - 1))
  echo > "$run.beat"
done
if [ "$KIND" = broken ]; then
  echo "end $EPOCHREALTIME" >> "$run.run"
  exit 1
fi
echo "end $EPOCHREALTIME" >> "$run.run"
