"""The hierarchy of hops' errors. A message says what is wrong and what is accepted."""

from __future__ import annotations


class HopsError(Exception):
    """Base of every error that hops raises on purpose."""


class InputError(HopsError):
    """Text or a file from outside is invalid; nothing was changed."""


class CommentError(InputError):
    """A job's ``hops:`` comment names a bad key or value."""


class FormatError(InputError):
    """A JSON file breaks its format; the message starts with the key's path."""


class ConfigError(InputError):
    """hopsd.toml breaks its schema; the message names file, key path and what is accepted."""


class SlurmError(HopsError):
    """Slurm refused or failed a request; the message has the request and Slurm's answer."""


class SlurmUnavailableError(SlurmError):
    """slurmctld does not answer; nothing is known about the state of the cluster."""


class AnswerPendingError(SlurmUnavailableError):
    """One of Slurm's servers has not answered yet; the request may be repeated."""


class StoreError(HopsError):
    """PostgreSQL refused or failed a request."""


class StoreUnavailableError(StoreError):
    """PostgreSQL does not answer."""


class NotLeaderError(HopsError):
    """Another hopsd holds the leader's lock."""


class PlanLateError(HopsError):
    """The plan is not ready in time; it is applied in the next round."""


class SolverError(HopsError):
    """The program could not be solved, and no feasible plan is known."""


class UnreachableError(HopsError):
    """No hopsd answers on the socket."""


class RefusedError(HopsError):
    """hopsd answered with an error."""
