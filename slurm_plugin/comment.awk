# hops: turns a job's comment and its GPUs (COMMENT, GPUS, NODES, RESTARTS, RANGE and
# PROFILE in the environment) into the variables of its tasks, one NAME=value per line; prints
# nothing for a bad comment.
#
# job_submit.lua has already checked the comment. Anything unexpected is left out all the same, so
# that only these names with plain values can reach a task.

function trim(text) { gsub(/^[ \t]+|[ \t]+$/, "", text); return text }
# Some awks read a number with a leading zero as octal (busybox 1.35).
function number(text) { text = trim(text); sub(/^0+/, "", text); return text + 0 }
function is_whole(text) { return text ~ /^[0-9]+$/ }
# The text after "hops:", up to the first blanks that are not next to ";", "=" or ",".
function our_part(text,    beside) {
    if (!match(text, /(^|[ \t;,])hops:[ \t]*/)) return ""
    text = substr(text, RSTART + RLENGTH)
    for (beside = ""; match(text, /[ \t]+/); text = substr(text, RSTART + RLENGTH)) {
        beside = beside substr(text, 1, RSTART - 1)
        if (beside !~ /[;=,]$/ && substr(text, RSTART + RLENGTH) !~ /^[;=,]/) return beside
    }
    return beside text
}
function rate_for(gpus,    count, reference) {
    reference = 0
    for (count in rate) # the nearest count at or below, else the smallest
        if (count + 0 <= gpus && count + 0 > reference) reference = count + 0
    if (!reference)
        for (count in rate)
            if (!reference || count + 0 < reference) reference = count + 0
    if (!reference) return 0
    if (value["lr_rule"] == "linear") return rate[reference] * gpus / reference
    if (value["lr_rule"] == "sqrt") return rate[reference] * sqrt(gpus / reference)
    return rate[reference]
}
# Returns the GPU counts in order, joined by ","; "" if there are none, or too many for an
# environment variable. Sets smallest.
function reqs_of_range(low, high,    steps, i, count, last, text) {
    smallest = low
    steps = (is_whole(value["num"]) ? number(value["num"]) : ENVIRON["RANGE"]) - 1
    if (steps > high - low) steps = high - low
    if (steps < 1) return smallest
    if (steps > 1000) return ""
    for (i = 0; i <= steps; i++) { # halves round up
        count = low + int((2 * (high - low) * i + steps) / (2 * steps))
        if (count != last) text = text (i ? "," : "") count
        last = count
    }
    return text
}
function reqs_of_list(text,    n, items, i, wanted, count, last, next_count, joined) {
    n = split(text, items, ",")
    for (i = 1; i <= n; i++) if (is_whole(trim(items[i]))) wanted[number(items[i])] = 1
    for (last = 0; ; last = next_count) {
        next_count = 0
        for (count in wanted)
            if (count + 0 > last && (!next_count || count + 0 < next_count))
                next_count = count + 0
        if (!next_count) return joined
        if (!smallest) smallest = next_count
        joined = joined (joined == "" ? "" : ",") next_count
    }
}
BEGIN {
    gpus = ENVIRON["GPUS"] + 0
    n = split(our_part(ENVIRON["COMMENT"]), pieces, ";")
    for (i = 1; i <= n; i++) {
        at = index(pieces[i], "=")
        if (at) value[trim(substr(pieces[i], 1, at - 1))] = trim(substr(pieces[i], at + 1))
    }
    if (split(value["reqs"], ends, "-") == 2) reqs = reqs_of_range(number(ends[1]), number(ends[2]))
    else reqs = reqs_of_list(value["reqs"])
    if (!smallest) exit
    n = split(value["lr"], items, ",")
    for (i = 1; i <= n; i++) {
        if (split(items[i], pair, ":") == 2) rate[number(pair[1])] = number(pair[2])
        else if (split(items[i], pair, "@") == 2) rate[number(pair[2])] = number(pair[1])
        else rate[smallest] = number(items[i])
    }
    print "HOPS_JOB=1"
    print "HOPS_JOB_ID=" ENVIRON["SLURM_JOB_ID"] # the owner of the variables, since jobs submitted by this one inherit them
    if (reqs != "") print "HOPS_REQS=" reqs
    if (gpus) print "HOPS_GPUS=" gpus
    print "HOPS_NODES=" ENVIRON["NODES"]
    print "HOPS_RESTART_COUNT=" ENVIRON["RESTARTS"]
    if (gpus && rate_for(gpus) > 0) printf "HOPS_LR=%.12g\n", rate_for(gpus)
    if (ENVIRON["PROFILE"] + 0) print "HOPS_PROFILE=" ENVIRON["PROFILE"] + 0
    if (is_whole(value["batch"])) printf "HOPS_BATCH=%.0f\n", number(value["batch"])
    if (value["workload"] ~ /^[A-Za-z0-9._-]+$/) print "HOPS_WORKLOAD=" value["workload"]
    if (value["app"] ~ /^[A-Za-z0-9._-]+(:[1-9][0-9]*)?$/) print "HOPS_APP=" value["app"]
}
