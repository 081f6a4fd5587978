"""`hopsctl comment`: shows how hops reads a job's comment."""

from __future__ import annotations

import json
import sys

import click

from hopsd.core.submission.comment import Comment, NotOursError, learning_rate, parse, remark
from hopsd.ctl.terminal import complain
from hopsd.errors import CommentError

BAD_COMMENT = 2
NOT_OURS = 3


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("text")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of lines.")
def comment(text: str, as_json: bool) -> None:
    """Check TEXT as `sbatch --comment=TEXT` would be checked.

    \b
    Examples:
      hopsctl comment 'hops:reqs=1,2,4;samples=2e6;batch=128'
      hopsctl comment --json hops:reqs=1,2,4

    Exit codes: 0 accepted, 2 refused, 3 not a hops comment.
    """
    try:
        requests = parse(text)
    except NotOursError as error:
        complain("; ".join(filter(None, (str(error), remark(text)))))
        sys.exit(NOT_OURS)
    except CommentError as error:
        complain(error)
        sys.exit(BAD_COMMENT)
    if remark(text):
        complain(remark(text))
    print(json.dumps(json_object(requests)) if as_json else "\n".join(_lines(requests)))


def json_object(comment: Comment) -> dict[str, object]:
    """Build the object that `hopsctl comment --json` prints."""
    return {
        "reqs": list(comment.reqs),
        "samples": comment.samples,
        "batch_size": comment.batch_size,
        "lr": {str(gpus): rate for gpus, rate in sorted(comment.lr.items())},
        "lr_rule": comment.lr_rule.value,
        "preempt": comment.preempt,
        "workload": comment.workload,
        "cpu": comment.cpu,
        "app": comment.app,
        "phase": comment.phase,
        "shape": comment.shape.value if comment.shape else None,
        "per_node": comment.per_node,
        "profile": comment.profile,
        "segment": comment.segment,
        "interactive": comment.interactive,
    }


def _lines(comment: Comment) -> list[str]:
    rates = {gpus: learning_rate(comment, gpus) for gpus in comment.reqs}
    listing = ", ".join(f"{rate:.6g} on {gpus}" for gpus, rate in rates.items() if rate is not None)
    return [
        f"GPUs           {', '.join(map(str, comment.reqs))}",
        f"samples        {'not given' if comment.samples is None else f'{comment.samples:g}'}",
        f"batch per GPU  {comment.batch_size or 'not given'}",
        f"learning rate  {f'{listing} GPUs ({comment.lr_rule})' if listing else 'not given'}",
        f"may be moved   {'yes' if comment.preempt else 'no'}",
        f"measuring runs {'yes' if comment.profile else 'no'}",
        f"workload       {comment.workload or 'not given'}",
        f"CPUs will do   {'yes' if comment.cpu else 'no'}",
        f"app            {_app(comment)}",
        f"shape          {_shape(comment)}",
        *([f"in one rack    {comment.segment} nodes at a time"] if comment.segment else []),
        *(["session        it comes first, and nothing moves it"] if comment.interactive else []),
    ]


def _app(comment: Comment) -> str:
    if comment.app is None:
        return "not given"
    return comment.app + (f", phase {comment.phase}" if comment.phase else "")


def _shape(comment: Comment) -> str:
    if comment.shape is None:
        return "as the script's options say"
    return comment.shape + (f", {comment.per_node} a node" if comment.per_node else "")
