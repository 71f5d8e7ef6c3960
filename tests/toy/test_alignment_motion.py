"""Who moves first, on planted paths with known answers; and the theorem's condition, exact under isotropy."""

from math import pi

import pytest
import torch

from headwise.errors import HeadwiseError
from headwise.scale.folder import RunFolder
from headwise.show.toy.alignment_motion import motion_answer, motion_lines, motion_sections
from headwise.toy import alignment as world
from headwise.toy.alignment import AlignmentRun, AlignmentSetup, case, train_alignment
from headwise.toy.alignment_motion import find_motion, held_out_prompts
from headwise.toy.alignment_path import Course, events
from headwise.toy.alignment_study import theorem
from headwise.toy.planted import condition, least_cosine, planted_features

STEPS = [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 36, 40]


def planted_run(head_turns_by: int, feature_turns_by: int, seeds: int = 6) -> AlignmentRun:
    """Rank-one heads that turn from w2, w3 to w0, w1 by one step, and features 0 and 1 that start half off them and
    arrive by another; the other features stay.
    """
    setups = [AlignmentSetup(features=6, dims=6, head=2, sources=4, seed=s) for s in range(seeds)]
    eye = torch.eye(6)
    path: dict[str, list[torch.Tensor]] = {"w": [], "w_q": [], "w_k": []}
    for step in STEPS:
        head = min(1.0, step / head_turns_by) * pi / 2
        feature = (1 - min(1.0, step / feature_turns_by)) ** 2 * pi / 4
        w = eye.clone()
        w[:, 0] = torch.cos(torch.tensor(feature)) * eye[0] + torch.sin(torch.tensor(feature)) * eye[4]
        w[:, 1] = torch.cos(torch.tensor(feature)) * eye[1] + torch.sin(torch.tensor(feature)) * eye[5]
        turned = torch.tensor(head)
        rows = [torch.cos(turned) * eye[a + 2] + torch.sin(turned) * eye[a] for a in (0, 1)]
        growth = 0.5 + step / 10
        for name, value in (("w", w), ("w_q", growth * rows[0]), ("w_k", rows[1])):
            padded = value if name == "w" else torch.stack([value, 1e-6 * eye[3 if name == "w_q" else 2]])
            path[name].append(padded.expand(seeds, *padded.shape))
    stacked = {name: torch.stack(frames) for name, frames in path.items()}
    weights = {name: value[-1] for name, value in stacked.items()} | {"bias": torch.zeros(seeds, 6)}
    return AlignmentRun(setups, weights, [], stacked, STEPS)


def test_a_head_that_turns_first_is_seen_to():
    run = planted_run(head_turns_by=7, feature_turns_by=40)
    (event,) = events(run, 0)
    for side in event.turns:
        # At 4 the head has turned 4/7 of its quarter; features are (1 − step/40)² · 45° off until they arrive.
        left = [(1 - step / 40) ** 2 for step in STEPS[: event.end + 1]]
        half = next(s for s, x in zip(STEPS, left, strict=False) if x - left[-1] <= (1 - left[-1]) / 2)
        assert (side.singular_half, side.feature_half) == (4, half) and side.lag == half - 4 > 4
        assert side.feature_angle == pytest.approx(45 * (1 - left[-1]), abs=1e-4)
        change = torch.cos(torch.tensor(left[-1] * pi / 4))
        assert side.closed_by_singular + side.closed_by_feature == pytest.approx(float(change), abs=1e-6)
        assert side.closed_by_feature > 0.1 and max(side.closed_by_others) < 1e-6
    motion = find_motion(run)
    assert motion is not None
    assert motion.estimates["lag"].mean == event.query_turn.lag and motion.estimates["lag"].clusters == 6
    assert motion.claims["singular_first"].p == pytest.approx(2**-6)
    assert motion.claims["singular_first"].supported and motion.claims["features_follow"].supported
    assert "Singular vectors move first" in motion_answer(motion)


def test_features_that_turn_first_are_not_said_to_follow():
    motion = find_motion(planted_run(head_turns_by=40, feature_turns_by=8))
    assert motion is not None and motion.estimates["lag"].mean < 0
    assert not motion.claims["singular_first"].supported
    assert "not shown" in "\n".join(motion_lines(motion)) and "is not shown" in motion_answer(motion)


def test_equal_singular_values_do_not_blur_what_the_head_reads():
    """Two pairs with one singular value: any mixture decomposes Ω, and the directions read for a pair stay its own."""
    setup = AlignmentSetup(features=4, dims=4, head=2, targets=((0, 2, 5.0), (1, 3, 5.0)))
    eye = torch.eye(4)
    frames = {"w": eye, "w_q": eye[:2], "w_k": eye[2:]}
    run = AlignmentRun(
        [setup], {}, [], {k: v[None, None].repeat(2, 1, 1, 1) for k, v in frames.items()}, [0, 1]
    )
    left, right = Course.of(run, 0).read(0, 2, 1)
    torch.testing.assert_close(left[0], eye[0].double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(right[0], eye[2].double(), atol=1e-12, rtol=0)


def test_old_vectors_cost_loss_where_features_have_moved():
    """The head ends along the features; left where it was when they first aligned, it would read them worse."""
    run = planted_run(head_turns_by=7, feature_turns_by=40)
    motion = find_motion(run)
    assert motion is not None
    turning = planted_run(head_turns_by=40, feature_turns_by=2)
    later = find_motion(turning)
    assert later is not None
    assert all(h.loss_of_old_vectors > h.loss[1] for h in later.held)
    # A head that has arrived before the pair aligned loses nothing by staying.
    assert all(h.loss_of_old_vectors == pytest.approx(h.loss[1], abs=1e-4) for h in motion.held)


def test_held_out_prompts_hold_their_pair_and_are_never_trained_on():
    setup = AlignmentSetup(features=6, dims=4, head=3, targets=((0, 1, 5.0), (2, 3, 5.0)))
    f = held_out_prompts(setup, 20)
    assert (f[0, :, 0, 0] > 0).all() and (f[0, :, 1, 1] > 0).all() and (f[1, :, 0, 2] > 0).all()
    assert not torch.equal(f[0, :, 0, 4:], world.strengths(setup, 40, 1)[:20, 0, 4:])


def test_isotropic_tokens_make_the_theorem_exact_and_interference_bounds_its_error():
    for seed in range(3):
        w = planted_features(20, 10, 0.0, seed)
        covariance = w @ w.mT
        solved = torch.linalg.solve(covariance, w)
        torch.testing.assert_close(torch.nn.functional.normalize(solved, dim=0), w, atol=1e-12, rtol=0)
        assert condition(covariance) == pytest.approx(1, abs=1e-12)
    cosines = []
    for interference in (0.0, 0.2, 0.8):
        setup = AlignmentSetup(interference=interference)
        weights = {"w": planted_features(20, 10, interference, 0)[None]}
        found = theorem(AlignmentRun([setup], weights, []), 0, 0, 1)
        assert found["least_cosine"] - 1e-12 <= found["cosine"] <= 1 + 1e-12
        cosines.append(found["cosine"])
    assert cosines[0] == pytest.approx(1, abs=1e-12) and cosines[0] > cosines[1] > cosines[2]
    assert least_cosine(1.0) == 1.0


def test_planted_features_stay_where_they_are_and_the_head_learns():
    setups = [AlignmentSetup(interference=0.2), AlignmentSetup()]
    run = train_alignment(setups, steps=4, batch=16)
    given = planted_features(20, 10, 0.2, 0).float()
    assert torch.equal(run.weights["w"][0], given)
    assert not torch.equal(run.weights["w_q"], world._init(setups, world._pack(setups))["w_q"])


def test_a_resumed_run_has_the_same_path_and_page(tmp_path):
    setups = case("pair", 2)
    whole = train_alignment(setups, steps=40, batch=32, check_every=2, frames=12)
    assert whole.frame_steps[0] == 0 and whole.frame_steps[-1] == 40
    assert torch.equal(whole.path["w"][-1], whole.weights["w"])
    with RunFolder(tmp_path, "toy alignment", world.config(setups, 40, 12)) as folder:
        train_alignment(setups, steps=40, batch=32, check_every=2, frames=12, folder=folder, stop_after=27)
    with folder:
        resumed = train_alignment(setups, steps=40, batch=32, check_every=2, frames=12, folder=folder)
    for name, value in whole.path.items():
        assert torch.equal(resumed.path[name], value)


def test_the_page_tells_who_moved_first():
    run = planted_run(head_turns_by=7, feature_turns_by=40)
    motion = find_motion(run)
    assert motion is not None
    titles = [s.title for s in motion_sections(run, motion)]
    assert titles == ["Who moves first", "Attention loss as pairs align"]
    assert motion.to_json()["events"][0]["query_side"]["lag"] > 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: planted_features(12, 10, 0.0, 0), "10 dimensions hold 20 of them, not 12"),
        (lambda: planted_features(20, 10, -1.0, 0), "interference -1 is below 0"),
        (lambda: planted_features(20, 10, 0.0, 0, (0, 12)), r"pair \(0, 12\)"),
    ],
)
def test_bad_plants_are_one_line(call, message):
    with pytest.raises(HeadwiseError, match=message):
        call()
