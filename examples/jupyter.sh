#!/bin/bash
#SBATCH --comment=hops:reqs=1;interactive
#SBATCH --time=8:00:00
#SBATCH --output=jupyter-%j.log
# JupyterLab on a GPU: `sbatch jupyter.sh`, then do what jupyter-JOB.url says. Only you can read that file.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])') # a free one
export JUPYTER_TOKEN=$(head -c 24 /dev/urandom | base64 | tr -dc A-Za-z0-9)
(
  umask 077
  echo "ssh -L $port:$(hostname):$port $USER@LOGIN_NODE" > jupyter-$SLURM_JOB_ID.url
  echo "http://localhost:$port/lab?token=$JUPYTER_TOKEN" >> jupyter-$SLURM_JOB_ID.url
)
exec jupyter lab --no-browser --ip="$(hostname)" --port="$port" --ServerApp.port_retries=0
