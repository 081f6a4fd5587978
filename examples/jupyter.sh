#!/bin/bash
#SBATCH --comment=hops:reqs=1;interactive
#SBATCH --time=8:00:00
#SBATCH --output=jupyter-%j.log
# JupyterLab on a GPU: `sbatch jupyter.sh`, then do what jupyter-JOB.url says. Only you can read that file.
port=$((20000 + SLURM_JOB_ID % 10000))
export JUPYTER_TOKEN=$(head -c 24 /dev/urandom | base64 | tr -dc A-Za-z0-9)
(
  umask 077
  echo "ssh -L $port:$(hostname):$port $USER@LOGIN_NODE" > jupyter-$SLURM_JOB_ID.url
  echo "http://localhost:$port/lab?token=$JUPYTER_TOKEN" >> jupyter-$SLURM_JOB_ID.url
)
exec jupyter lab --no-browser --ip="$(hostname)" --port="$port" --ServerApp.port_retries=0
