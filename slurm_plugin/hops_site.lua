-- This site's choices for job_submit.lua: put it next to that file (in Slurm's /etc/slurm), then
-- `touch job_submit.lua`. Without this file hops jobs may go to any partition.
return {
  -- Where hops jobs may go; the first is for jobs that name no partition.
  -- partitions = { "hops" },

  -- Numeric uids that may release and change hops jobs besides root and SlurmUser: hopsd's own
  -- account, if it is neither of the two, and operators.
  -- operators = { 997 },
}
