#!/bin/sh
# hops: Prolog (slurm.conf), as root on every node of a job before its first task there.
#
# Writes what a hops job's tasks get to know into a file that task_prolog.sh hands on: the
# comment is in the Prolog's environment but not in the TaskProlog's (Slurm 22.05 to 26.05).
# Always ends 0: a Prolog that fails drains its node.

case ${SLURM_JOB_COMMENT-} in hops:*) ;; *) exit 0 ;; esac

PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin # slurmd gives the Prolog no PATH (22.05)
HOPS_RUN_DIR=/run/hops
HOPS_RANGE_VALUES=8
HOPS_SCONTROL=scontrol
site=${0%/*}/site.sh
[ -r "$site" ] || site=/etc/hops/site.sh
# shellcheck source=slurm_plugin/site.sh
[ -r "$site" ] && . "$site"

# GPUs of the whole allocation. One node: this node's own. More: only slurmctld can tell, since
# hops gives nodes of one job different counts. One request a node and start, none a task.
count_gpus() {
    if [ "${SLURM_JOB_NUM_NODES:-1}" = 1 ]; then
        printf 'IDX:%s)\n' "${SLURM_JOB_GPUS-}"
    else
        timeout 5 "$HOPS_SCONTROL" show job --details --oneliner "$SLURM_JOB_ID"
    fi | awk '
        # "JOB_GRES=gpu:a100:6" or "JOB_GRES=gpu:a100:4,gpu:v100:2"; more than one word of it: none
        match($0, /JOB_GRES=[^ ]*/) {
            n = split(substr($0, RSTART + 9, RLENGTH - 9), items, ",")
            for (i = 1; i <= n; i++) {
                parts = split(items[i], part, ":")
                if (part[1] == "gpu") total += part[parts]
            }
        }
        # "IDX:0-2,5)"
        /^IDX:/ {
            n = split(substr($0, 5, length($0) - 5), items, ",")
            for (i = 1; i <= n; i++) {
                if (split(items[i], part, "-") == 2) total += part[2] - part[1] + 1
                else if (items[i] != "") total += 1
            }
        }
        END { print total + 0 }'
}

# The comment was checked by job_submit.lua; what does not look as it should is left out all the
# same, so that nothing but these names with plain values can reach a task.
read_comment() {
    COMMENT=$SLURM_JOB_COMMENT GPUS=$1 NODES=${SLURM_JOB_NUM_NODES:-1} \
        TASKS=${SLURM_JOB_NTASKS-} \
        RESTARTS=${SLURM_JOB_RESTART_COUNT:-0} RANGE=$HOPS_RANGE_VALUES awk '
        function trim(text) { gsub(/^[ \t]+|[ \t]+$/, "", text); return text }
        function is_whole(text) { return text ~ /^[0-9]+$/ }
        function rate_for(gpus,    count, reference) {
            reference = 0
            for (count in rate) # the nearest count below, else the smallest
                if (count + 0 <= gpus && count + 0 > reference) reference = count + 0
            if (!reference)
                for (count in rate)
                    if (!reference || count + 0 < reference) reference = count + 0
            if (!reference) return 0
            if (value["lr_rule"] == "linear") return rate[reference] * gpus / reference
            if (value["lr_rule"] == "sqrt") return rate[reference] * sqrt(gpus / reference)
            return rate[reference]
        }
        function read_reqs(text,    low, high, steps, i, n, items) {
            if (split(text, items, "-") == 2) {
                low = trim(items[1]); high = trim(items[2])
                if (!is_whole(low) || !is_whole(high)) return
                steps = (is_whole(value["num"]) ? value["num"] : ENVIRON["RANGE"]) - 1
                if (steps > high - low) steps = high - low
                if (steps < 1) { wanted[low + 0] = 1; return }
                for (i = 0; i <= steps; i++) # halves round up
                    wanted[low + int((2 * (high - low) * i + steps) / (2 * steps))] = 1
            } else {
                n = split(text, items, ",")
                for (i = 1; i <= n; i++) if (is_whole(trim(items[i]))) wanted[trim(items[i]) + 0] = 1
            }
        }
        function sorted_reqs(    text, count, last, next_count) {
            last = 0
            for (;;) {
                next_count = 0
                for (count in wanted)
                    if (count + 0 > last && (!next_count || count + 0 < next_count)) next_count = count + 0
                if (!next_count) return text
                text = text (text == "" ? "" : ",") next_count
                last = next_count
            }
        }
        BEGIN {
            gpus = ENVIRON["GPUS"] + 0
            n = split(substr(ENVIRON["COMMENT"], 6), pieces, ";")
            for (i = 1; i <= n; i++) {
                at = index(pieces[i], "=")
                if (at) value[trim(substr(pieces[i], 1, at - 1))] = trim(substr(pieces[i], at + 1))
            }
            read_reqs(value["reqs"])
            reqs = sorted_reqs()
            if (reqs == "") exit
            split(reqs, ordered, ",")
            n = split(value["lr"], items, ",")
            for (i = 1; i <= n; i++) {
                if (split(items[i], pair, ":") == 2) rate[trim(pair[1]) + 0] = trim(pair[2]) + 0
                else if (split(items[i], pair, "@") == 2) rate[trim(pair[2]) + 0] = trim(pair[1]) + 0
                else rate[ordered[1]] = trim(items[i]) + 0
            }
            print "HOPS_JOB=1"
            print "HOPS_REQS=" reqs
            if (gpus) print "HOPS_GPUS=" gpus
            print "HOPS_NODES=" ENVIRON["NODES"]
            print "HOPS_RESTART_COUNT=" ENVIRON["RESTARTS"]
            if (is_whole(ENVIRON["TASKS"])) print "TASKS=" ENVIRON["TASKS"]
            if (gpus && rate_for(gpus) > 0) printf "HOPS_LR=%.12g\n", rate_for(gpus)
            if (is_whole(value["batch"])) printf "HOPS_BATCH=%.0f\n", value["batch"]
            if (value["workload"] ~ /^[A-Za-z0-9._-]+$/) print "HOPS_WORKLOAD=" value["workload"]
        }'
}

file=$HOPS_RUN_DIR/$SLURM_JOB_ID.${SLURMD_NODENAME-}
{
    umask 022
    mkdir -p "$HOPS_RUN_DIR" && read_comment "$(count_gpus)" > "$file.new" && mv "$file.new" "$file"
} || logger -t hops "no environment for job $SLURM_JOB_ID: cannot write $file"
exit 0
