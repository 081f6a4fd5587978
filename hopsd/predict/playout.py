"""Plays jobs on from the present, many times at once, with a coarse model of planning.

Each playout draws the work that every job has left, and jobs to come. GPUs are one amount: servers,
types and racks are left out, but for a job's mean speed and for what is idle at first: what no
waiting job can use then stays idle until running jobs move. A plan gives them in the order of what
the policy maximises per GPU (the relaxation of its program), or to rigid jobs in its queue's order.
What that gets wrong on average, calibration corrects (``calibration.py``).

Arrays are (playouts, jobs); every playout has its own clock. A step goes to its next event, and the
further ahead, the more events it takes together, so the number of steps hardly depends on the
number of jobs. Where that is less than a round, it ends no later than the round: most jobs start
just then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hopsd.model.arrays import Bools, Floats, Ints
from hopsd.predict.limit_share import LimitShares
from hopsd.predict.situation import MAX_COUNTS, Situation, Source
from hopsd.predict.strata import normals
