"""Finds the optimizer that steps once for each read, while the leading one steps more often."""

from __future__ import annotations

MIN_ROUNDS = 3
"""Number of reads in a row, each with one step of an optimizer and as many of the leading one, that
show the reads to be iterations."""


class Reads:
    """Compares the steps of other optimizers with reads and with steps of the leading optimizer.

    Discriminators may take several steps on what is read, all of them on the same rows or each on a
    chunk, and their generator one: a reader of the program counts the rows once. ``others`` are
    optimizers that were seen to step otherwise.
    """

    def __init__(self) -> None:
        self.others: set[int] = set()
        # By optimizer: its steps; reads and leading steps before the last one; leading steps
        # between the last two if there was one read, and for how many reads that was so.
        self._optimizers: dict[int, tuple[int, int, int, int, int]] = {}

    def forget(self, optimizer: int) -> None:
        """Forget ``optimizer``, which is gone."""
        self._optimizers.pop(optimizer, None)
        self.others.discard(optimizer)

    def step(self, optimizer: int, reads: int, leading_steps: int) -> int:
        """Note a step of ``optimizer`` after ``reads`` and ``leading_steps`` in all. Returns the
        number of its steps if it is to lead, else 0.
        """
        steps, last_reads, last_leading, usual, rounds = self._optimizers.get(
            optimizer, (0, 0, 0, 0, 0)
        )
        steps, turn = steps + 1, leading_steps - last_leading
        is_round = reads == last_reads + 1 and turn > 1
        if steps != reads or (steps > 1 and not is_round):
            self._optimizers.pop(optimizer, None)
            self.others.add(optimizer)
            return 0
        rounds = rounds + 1 if turn == usual else 1
        self._optimizers[optimizer] = steps, reads, leading_steps, turn, rounds
        return steps if rounds >= MIN_ROUNDS else 0
