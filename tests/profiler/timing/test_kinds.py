"""Samples, steps and iterations are right for loops that are easily miscounted."""

from __future__ import annotations

import fcntl
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Node

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

STEPS, BATCH, WARMUP = 24, 8, 3

BY_MODEL = [
    *(
        "slices_of_what_is_read",
        "ready_batches",
        "recompute",
        "blind_look",
        "compiled_helper",
    ),
    *("flat_state", "rollouts_with_a_graph", "teacher_with_a_graph", "a_pass_for_each_sample"),
    *("frames_first_with_memory", "acting_in_evaluation_mode", "temperature_first"),
    *("distribution_beside_a_value", "schedule_drawn_first", "solver_of_a_function"),
    *("two_views", "rows_with_labels", "copies", "points_of_rays"),
    *("points_of_rays_in_two_networks", "real_and_made_in_passes", "two_losses_of_the_same"),
    *("acting_with_a_memory", "real_and_made", "attack_with_passes", "drawn_by_passes"),
    *(
        "loop_over_time",
        "transposed_inside",
        "sequences_in_a_list",
        "time_before_rows",
        "gradients_of_an_energy",
    ),
    *("molecules_and_their_atoms", "joined_losses", "joined_losses_of_rows", "embeddings_in_parts"),
    "weights_of_time",
    *("points_joined_twice", "words_with_offsets"),
    *("draws_for_each_row", "drawn_actions", "parts_of_a_batch", "checkpoint_at_the_top"),
    *("attention_over_the_first_axis", "convolution_over_the_first_axis", "experts"),
]
TURNS = {
    "optimizers_in_turns": 2 * BATCH,
    "learners_of_one_loop": 3 * BATCH,
    "learners_of_the_same_rows": BATCH,
    "goals_beside_actions": BATCH,
    "optimizers_of_the_same_rows": BATCH,
}
SEVERAL_CALLS = {
    "points_of_two_kinds": BATCH + 3,
    "equation_and_border": 2 * BATCH,
    "steps_of_games": 5 * BATCH,
    "stacked_steps_of_games": 5 * BATCH,
    "steps_of_games_in_arrays": 5 * BATCH,
    "steps_of_games_with_actions": 5 * BATCH,
    "accumulated": 2 * BATCH,
    "accumulated_by_hand": 2 * BATCH,
    "cleared_by_hand": 2 * BATCH,
    "attention_over_a_vector": 1,
    "coordinates_of_points": 5 * BATCH,
    "equation_without_its_value": 5 * BATCH + 3,
    "gradients_kept_elsewhere": 2 * BATCH,
    "letters_of_a_text": 1,
    "two_transposed_inside": 2,
    "words_of_a_sentence": 1,
    "fields_of_a_board": 1,
}
UNKNOWN = [
    *("frames_first", "made_inside", "played_and_replayed", "sequences_and_their_steps"),
    *("as_many_points_of_two_kinds", "means_of_features", "two_losses_of_others"),
    *("steps_of_a_recurrent_cell", "own_layers_over_tokens", "teacher_with_a_loader"),
    *("skipped_batches", "real_and_made_in_a_call", "views_in_a_call", "weights_made_by_a_model"),
    *("words_drawn_one_by_one", "models_in_one", "attention_over_both_axes"),
    *("weights_over_the_first_axis", "steps_of_an_acting_cell", "functions_and_points"),
    *("words_and_their_places", "molecules_of_several_sizes", "critic_more_often"),
    *("made_rows_for_real_gradients", "joined_losses_of_others", "many_losses_of_others"),
    *("text_in_a_vector", "text_of_a_loader", "passes_over_copies"),
    "points_with_data_among_others",
]
UNKNOWN_OF_SEVERAL_STEPS = {"steps_on_other_rows": STEPS, "learners_in_short_turns": 60}
ROUNDS = {
    "critic_steps_on_one_batch": BATCH,
    "critic_steps_on_chunks": 4 * BATCH,
    "critic_steps_on_accumulated_chunks": 4 * BATCH,
    "critic_steps_after_the_maker": BATCH,
    "critic_steps_on_chunks_after_the_maker": 4 * BATCH,
    "many_critic_steps_on_one_batch": BATCH,
    "critic_steps_with_evaluations": BATCH,
    "critic_step_for_the_penalty": BATCH,
    "critic_steps_with_a_penalty": BATCH,
    "tasks_of_what_is_read": BATCH,
}
BY_LOADER = {
    "packed_texts": BATCH,
    "time_first": BATCH,
    "bags": 1,
    "two_levels": 2 * BATCH,
    "rotations_of_an_image": 1,
    "answers_to_what_is_read": BATCH,
    "views_with_a_teacher": 2 * BATCH,
    "two_batches_of_a_loader": 2 * BATCH,
    "adapted_by_gradients_alone": 2 * BATCH,
    "layers_without_modules": 2 * BATCH,
    "chosen_rows": BATCH,
}
EVALUATIONS = {"sampling": 2, "sampling_without_loader": 2, "trials_of_an_actor": 4}
ROLLOUTS = ["rollouts", "rollouts_without_loader", "rollouts_after_random_steps"]
SELF_PLAY_SECONDS = 50 * 0.002
ALL = [
    *(*BY_MODEL, *TURNS, *SEVERAL_CALLS, *BY_LOADER, *EVALUATIONS, *ROLLOUTS),
    *(*UNKNOWN, *UNKNOWN_OF_SEVERAL_STEPS, *ROUNDS),
    *(
        "episodes",
        "episodes_in_passes",
        *("learners_in_long_turns", "epochs_in_turns"),
        "copies_trained_within",
        "gradients_of_copies",
        "own_layers",
        "trials_with_a_graph",
        "playing_with_a_graph",
        "frequent_acting",
    ),
    *(
        "one_sequence_with_its_state",
        "segments_of_what_is_read",
        "all_step_several_times",
        "decays_by_gradients_alone",
        *("rollouts_on_what_is_read", "rollouts_before_epochs", "loader_in_another_thread"),
        "loader_whose_batches_are_kept",
        "learners",
        "learners_apart",
        "lbfgs",
        "self_play",
        "late_acting",
        "turns",
    ),
]

Runs = dict[str, tuple[list[str], dict[str, Any]]]


@pytest.fixture(scope="module")
def runs(shared_node: Node, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Return the losses and report of each kind of loop.

    They take 20 s of CPU time, so the first worker that needs them produces them for all.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    path = folder / "runs-of-kinds.json"
    with (folder / "runs-of-kinds.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            path.write_text(json.dumps(_runs(shared_node)))
    return {name: (lines, report) for name, (lines, report) in json.loads(path.read_text()).items()}


def _runs(shared_node: Node) -> Runs:
    """Run all kinds with the plugin; check that losses are the same without it."""
    alone = shared_node.program("counts", *ALL, profiler=False)
    profile = shared_node.program("counts", *ALL, HOPS_REPORT_SECONDS="0.01")
    expected, losses = _losses_by_name(alone.out), _losses_by_name(profile.out)
    assert {name: lines for (name, _), lines in losses.items()} == {
        name: lines for (name, _), lines in expected.items()
    }
    reports = {report["pid"]: report for report in profile.reports}
    assert {report["failure"] for report in reports.values()} == {""}
    return {name: (lines, reports[pid]) for (name, pid), lines in losses.items()}


def _losses_by_name(output: str) -> dict[tuple[str, int], list[str]]:
    losses: dict[tuple[str, int], list[str]] = {}
    lines: list[str] = []
    for line in output.splitlines():
        if line.startswith(("0x", "-0x")):
            lines.append(line)
        else:
            name, pid = line.split()
            lines = losses[name, int(pid)] = []
    return losses


@pytest.mark.parametrize("kind", BY_MODEL)
def test_samples_are_those_that_reach_a_backward_pass(runs: Runs, kind: str) -> None:
    losses, report = runs[kind]
    assert len(losses) == STEPS
    assert (report["iterations"], report["samples"]) == (STEPS, STEPS * BATCH)
    timed_part = report["timed"]
    assert timed_part["samples"] == timed_part["iterations"] * BATCH
    assert timed_part["iterations"] >= STEPS - WARMUP - 1


@pytest.mark.parametrize(("kind", "batch"), SEVERAL_CALLS.items())
def test_samples_of_several_calls_add_up_if_the_loss_shows_it(
    runs: Runs, kind: str, batch: int
) -> None:
    _, report = runs[kind]
    assert (report["samples"], report["samples_from"]) == (STEPS * batch, "input")


@pytest.mark.parametrize(("kind", "batch"), TURNS.items())
def test_samples_of_several_optimizers_add_up_if_they_differ(
    runs: Runs, kind: str, batch: int
) -> None:
    losses, report = runs[kind]
    assert report["iterations"] == STEPS < len(losses)
    assert report["samples"] == STEPS * batch
    assert report["timed"]["samples"] == report["timed"]["iterations"] * batch


@pytest.mark.parametrize("kind", ["learners_in_long_turns", "epochs_in_turns"])
def test_steps_of_learners_with_long_turns_all_count_as_iterations(runs: Runs, kind: str) -> None:
    losses, report = runs[kind]
    assert (report["iterations"], report["samples"]) == (len(losses), len(losses) * BATCH)


def test_samples_are_unknown_if_a_step_takes_the_gradients_of_several_copies(runs: Runs) -> None:
    """The steps of a copy are no iterations then."""
    _, report = runs["gradients_of_copies"]
    assert (report["iterations"], report["samples"], report["samples_from"]) == (STEPS, 0, "")


def test_steps_of_copies_are_iterations_if_all_passes_are_theirs(runs: Runs) -> None:
    """As in Reptile; what the model takes from them afterwards needs no pass."""
    losses, report = runs["copies_trained_within"]
    assert (report["iterations"], report["samples"]) == (len(losses), len(losses) * BATCH)
    assert len(losses) == 3 * STEPS


def test_steps_of_episodes_are_counted_from_the_loss(runs: Runs) -> None:
    """Only some are inspected; after the first ones, the loss shows the steps of the others."""
    losses, report = runs["episodes"]
    steps = sum(3 + step * step % 14 for step in range(len(losses)))
    assert report["samples"] == pytest.approx(steps, rel=0.02)


def test_episodes_longer_than_any_inspected_one_are_counted_by_their_passes(runs: Runs) -> None:
    losses, report = runs["episodes_in_passes"]
    steps = sum(3 + step * step % 14 + step // 6 for step in range(len(losses)))
    assert report["samples"] == pytest.approx(steps, rel=0.05)


def test_layers_show_the_batch_if_neither_modules_nor_optimizers_do(
    runs: Runs,
) -> None:
    losses, report = runs["own_layers"]
    assert (report["iterations"], report["samples"]) == (len(losses), len(losses) * BATCH)


@pytest.mark.parametrize("kind", UNKNOWN)
def test_samples_are_unknown_if_the_calls_of_a_model_do_not_show_them(
    runs: Runs, kind: str
) -> None:
    losses, report = runs[kind]
    assert report["iterations"] == STEPS <= len(losses)
    assert (report["samples"], report["timed"]["samples"], report["samples_from"]) == (0, 0, "")


@pytest.mark.parametrize(("kind", "iterations"), UNKNOWN_OF_SEVERAL_STEPS.items())
def test_samples_are_unknown_if_it_is_unclear_which_steps_share_them(
    runs: Runs, kind: str, iterations: int
) -> None:
    _, report = runs[kind]
    assert (report["iterations"], report["samples"], report["samples_from"]) == (iterations, 0, "")


@pytest.mark.parametrize(("kind", "batch"), ROUNDS.items())
def test_what_is_read_counts_once_for_several_steps_of_a_critic_and_one_of_another(
    runs: Runs, kind: str, batch: int
) -> None:
    losses, report = runs[kind]
    assert report["iterations"] == STEPS < len(losses)
    assert (report["samples"], report["samples_from"]) == (STEPS * batch, "batch")
    timed = report["timed"]
    assert timed["samples"] == timed["iterations"] * batch
    assert timed["iterations"] >= STEPS - 8  # the pattern is known after a few reads


def test_all_is_unknown_if_all_optimizers_step_several_times_for_each_read(runs: Runs) -> None:
    """Steps or reads may be the iterations."""
    _, report = runs["all_step_several_times"]
    assert (report["samples"], report["time_known"]) == (0, False)


@pytest.mark.parametrize("kind", ["rollouts_on_what_is_read", "rollouts_before_epochs"])
def test_time_is_unknown_if_a_loader_is_read_after_what_may_be_a_rollout(
    runs: Runs, kind: str
) -> None:
    """The training began with it. An evaluation usually reads where no graph is built."""
    _, report = runs[kind]
    assert (report["iterations"], report["time_known"]) == (2 * STEPS, False)


def test_gradients_alone_that_lead_to_another_optimizer_are_no_evaluation(runs: Runs) -> None:
    losses, report = runs["decays_by_gradients_alone"]
    assert (report["iterations"], report["samples"]) == (len(losses), len(losses) * BATCH)
    assert report["time_known"]
    assert report["timed"]["iterations"] >= len(losses) - WARMUP - 1


def test_iterations_that_read_a_batch_for_several_steps_are_timed(runs: Runs) -> None:
    _, report = runs["segments_of_what_is_read"]
    assert (report["iterations"], report["samples"]) == (STEPS, STEPS * BATCH)
    assert report["interrupted"] == 2  # the first ones, before the pattern is known


@pytest.mark.long
def test_the_batch_of_the_comment_counts_if_samples_are_unknown(shared_node: Node) -> None:
    (report,) = shared_node.program(
        "counts", "as_many_points_of_two_kinds", HOPS_BATCH="11"
    ).reports
    assert (report["samples"], report["samples_from"]) == (STEPS * 11, "comment")


@pytest.mark.parametrize(("kind", "batch"), BY_LOADER.items())
def test_a_batch_of_another_layout_is_counted_by_its_loader(
    runs: Runs, kind: str, batch: int
) -> None:
    """The model gets more or fewer rows than there are samples."""
    _, report = runs[kind]
    assert report["samples"] == STEPS * batch
    assert report["samples_from"] == "batch"


def test_batches_that_another_thread_reads_ahead_are_counted_by_the_model(runs: Runs) -> None:
    """Before the first step, the plugin does not know which thread trains."""
    _, report = runs["loader_in_another_thread"]
    assert STEPS - 1 <= report["iterations"] <= STEPS
    assert report["samples"] == report["iterations"] * BATCH
    assert report["timed"]["iterations"] >= STEPS - WARMUP - 2


def test_batches_that_a_program_keeps_count_although_they_are_not_read_again(runs: Runs) -> None:
    losses, report = runs["loader_whose_batches_are_kept"]
    assert (report["iterations"], report["batch"]) == (len(losses), BATCH)
    # Those of the first iterations after the small loader's end do not, up to the next inspection.
    assert report["samples"] >= len(losses) * BATCH - (10 + 64) * 2


def test_steps_of_all_learner_threads_are_counted(runs: Runs) -> None:
    _, report = runs["learners"]
    # No iteration follows the other thread's last step.
    assert 2 * STEPS - 1 <= report["iterations"] <= 2 * STEPS
    assert report["timed"]["samples"] == report["timed"]["iterations"] * BATCH
    assert report["timed"]["iterations"] >= 2 * (STEPS - WARMUP) - 2
    assert report["planned"] is None


def test_steps_of_learners_with_separate_batches_count_but_samples_are_unknown(runs: Runs) -> None:
    _, report = runs["learners_apart"]
    assert 2 * STEPS - 1 <= report["iterations"] <= 2 * STEPS
    assert (report["samples"], report["samples_from"], report["planned"]) == (0, "", None)


def test_the_speed_of_a_single_step_comes_from_the_passes_of_its_closure(runs: Runs) -> None:
    losses, report = runs["lbfgs"]
    assert report["iterations"] == len(losses) > 40
    assert report["samples"] == report["iterations"] * BATCH
    assert report["timed"]["samples"] == report["timed"]["iterations"] * BATCH > 0


@pytest.mark.parametrize(("kind", "evaluations"), EVALUATIONS.items())
def test_an_evaluation_without_eval_is_not_timed(runs: Runs, kind: str, evaluations: int) -> None:
    _, report = runs[kind]
    assert (report["iterations"], report["samples"]) == (3 * STEPS, 3 * STEPS * BATCH)
    assert report["interrupted"] == evaluations
    assert report["timed"]["iterations"] == 3 * STEPS - WARMUP - evaluations


@pytest.mark.parametrize("kind", ROLLOUTS)
def test_rollouts_are_part_of_the_training(runs: Runs, kind: str) -> None:
    _, report = runs[kind]
    assert (report["iterations"], report["samples"]) == (3 * STEPS, 3 * STEPS * BATCH)
    # The first rollout may pass for an evaluation if a loader is read or iterations precede it.
    assert report["interrupted"] <= (kind != "rollouts_without_loader")
    assert report["timed"]["seconds"] > 0.5


def test_self_play_is_training_even_in_evaluation_mode_or_with_new_optimizers(
    runs: Runs,
) -> None:
    _, report = runs["self_play"]
    assert (report["iterations"], report["samples"]) == (3 * STEPS, 3 * STEPS * BATCH)
    assert report["timed"]["iterations"] >= 3 * STEPS - WARMUP - 1
    assert report["timed"]["seconds"] > 2 * SELF_PLAY_SECONDS


@pytest.mark.parametrize("kind", ["late_acting", "trials_with_a_graph"])
def test_time_is_unknown_if_acting_may_be_a_rollout_or_an_evaluation(runs: Runs, kind: str) -> None:
    losses, report = runs[kind]
    assert (report["iterations"], report["samples"]) == (len(losses), len(losses) * BATCH)
    assert report["timed"] == {"iterations": 0, "samples": 0, "seconds": 0}


@pytest.mark.parametrize(
    ("kind", "rounds"), [("playing_with_a_graph", (5, 5)), ("frequent_acting", (13, 14))]
)
def test_acting_is_training_if_the_training_begins_with_it_or_acts_often(
    runs: Runs, kind: str, rounds: tuple[int, int]
) -> None:
    losses, report = runs[kind]
    assert (report["iterations"], report["samples"]) == (len(losses), len(losses) * BATCH)
    assert report["timed"]["seconds"] > 0.04 * rounds[0]


def test_steps_of_another_optimizer_belong_to_the_iterations_of_the_first(runs: Runs) -> None:
    _, report = runs["turns"]
    iterations = 4 * 12 + 1
    assert (report["iterations"], report["samples"]) == (iterations, iterations * BATCH)
    assert report["timed"]["samples"] == report["timed"]["iterations"] * BATCH
    assert report["timed"]["iterations"] >= iterations - WARMUP - 1


def test_arguments_of_a_model_are_not_mistaken_for_a_list_of_images(runs: Runs) -> None:
    _, report = runs["one_sequence_with_its_state"]
    assert (report["samples"], report["samples_from"]) == (STEPS, "input")
