-- This site's choices for job_submit.lua: put it next to that file (in Slurm's /etc/slurm), then
-- `touch job_submit.lua`. Without this file hops jobs may go to any partition.
return {
  -- The partitions that hops jobs may use; the first one gets the jobs that name no partition.
  -- partitions = { "hops" },

  -- Numeric uids that may release and change hops jobs besides root and SlurmUser: that of hopsd's
  -- account, if it is neither of the two, and those of operators.
  -- operators = { 997 },

  -- slurm.checkpoint_signal of hopsd.toml, if it is not USR1: sbatch's messages name it.
  -- signal = "USR2",
}
