"""The decisions of a roll-out, whatever was observed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.tasks.rollout.decide.blue_green import Goal, Move, Observed, next_move, to_retire

NEW, OLD, OLDER = "demo-new", "demo-old", "demo-older"
RELEASES = st.sampled_from([NEW, OLD, OLDER])
STATES = st.builds(
    Observed,
    release=st.just(NEW),
    server=st.just(NEW),
    deployed=st.frozensets(RELEASES),
    current=st.booleans(),
    fits_here=st.booleans(),
    available=st.booleans(),
    enough_replicas=st.booleans(),
    surges=st.booleans(),
    room=st.booleans(),
    whole=st.booleans(),
    live_selects=st.none() | RELEASES,
    candidate_selects=st.none() | RELEASES,
    live_endpoints_settled=st.booleans(),
    live_reaches_release=st.booleans(),
    followed=st.booleans(),
    canary_passed=st.booleans(),
    routed=st.booleans(),
    channel_live=st.none() | RELEASES,
    kept=st.frozensets(RELEASES),
).map(lambda seen: replace(seen, room=seen.room or seen.surges))
LIVE_IS_OLD = Observed(
    release=NEW, server=NEW, deployed=frozenset({OLD}), live_selects=OLD, channel_live=OLD, kept=frozenset({OLD})
)


def made(goal, seen, move):
    """The world after a move, as a cluster that works would show it."""
    changes = {
        Move.MAKE_ROOM: {"room": True, "whole": False},
        Move.DEPLOY: {"deployed": seen.deployed | {NEW}, "current": True, "fits_here": True, "available": False},
        Move.POINT_CANDIDATE: {"candidate_selects": NEW},
        Move.AWAIT_AVAILABLE: {"available": True},
        Move.POINT_LIVE: {"live_selects": NEW, "live_endpoints_settled": False, "followed": False},
        Move.SHIFT_TRAFFIC: {"canary_passed": True},
        Move.AWAIT_ROUTED: {"routed": True},
        Move.CARRY_REPLICAS: {"enough_replicas": True, "available": False},
        Move.FOLLOW_LIVE: {"followed": True, "routed": False},
        Move.AWAIT_ENDPOINTS: {"live_endpoints_settled": True},
        Move.SWAP_CHANNEL: {"channel_live": NEW, "kept": frozenset({NEW, seen.channel_live} - {None})},
        Move.RESTORE_LIVE: {"live_selects": seen.channel_live, "followed": False},
        Move.DROP_CANDIDATE: {"candidate_selects": None},
        Move.AWAIT_LEFT: {"live_reaches_release": False},
        Move.RETIRE: {"deployed": seen.deployed - to_retire(goal, seen)},
        Move.GIVE_BACK: {"whole": True, "followed": False},
    }
    return replace(seen, **changes[move])


def moves(goal, seen):
    """Every move to the goal, and the world in the end."""
    found = []
    while (move := next_move(goal, seen)) is not None:
        assert len(found) < 17, f"{goal} goes round in circles: {found}"
        found.append(move)
        seen = made(goal, seen, move)
    return found, seen


@given(goal=st.sampled_from(Goal), seen=STATES)
def test_every_goal_is_reached_from_every_state_and_then_nothing_moves(goal, seen):
    _, end = moves(goal, seen)

    assert next_move(goal, end) is None


@given(seen=STATES)
def test_a_promotion_ends_with_traffic_and_channel_at_the_release_and_no_candidate(seen):
    _, end = moves(Goal.PROMOTE, seen)

    assert (end.live_selects, end.channel_live, end.candidate_selects) == (NEW, NEW, None)
    assert NEW in end.deployed
    assert end.deployed <= end.kept | {NEW}


@given(seen=STATES)
def test_traffic_flips_before_the_channel_and_the_channel_before_the_cleanup(seen):
    found, _ = moves(Goal.PROMOTE, seen)

    order = [
        Move.MAKE_ROOM,
        Move.DEPLOY,
        Move.CARRY_REPLICAS,
        Move.AWAIT_AVAILABLE,
        Move.SHIFT_TRAFFIC,
        Move.POINT_LIVE,
    ]
    order += [Move.FOLLOW_LIVE, Move.AWAIT_ENDPOINTS, Move.SWAP_CHANNEL, Move.AWAIT_ROUTED, Move.DROP_CANDIDATE]
    order += [Move.RETIRE, Move.GIVE_BACK]
    before_scaled_again = found[: found.index(Move.GIVE_BACK) + 1] if Move.GIVE_BACK in found else found
    assert before_scaled_again == sorted(before_scaled_again, key=order.index)
    assert set(found[len(before_scaled_again) :]) <= {Move.FOLLOW_LIVE}


@given(seen=STATES)
def test_traffic_only_goes_to_pods_that_are_available(seen):
    while (move := next_move(Goal.PROMOTE, seen)) is not None:
        if move is Move.POINT_LIVE:
            assert seen.available
            assert seen.enough_replicas
            assert seen.canary_passed
            assert NEW in seen.deployed
        seen = made(Goal.PROMOTE, seen, move)


@given(seen=STATES)
def test_a_roll_back_leaves_traffic_where_the_channel_says_and_deletes_nothing_that_is_kept(seen):
    found, end = moves(Goal.ROLL_BACK, seen)

    assert end.candidate_selects is None
    assert end.channel_live == seen.channel_live
    assert seen.deployed & seen.kept <= end.deployed
    assert not seen.whole or seen.deployed - {NEW} <= end.deployed
    if seen.live_selects != NEW:
        assert Move.RESTORE_LIVE not in found


@given(goal=st.sampled_from([Goal.ROLL_BACK, Goal.REVERT]), seen=STATES)
def test_nothing_is_retired_while_a_service_may_send_connections_to_it(goal, seen):
    while (move := next_move(goal, seen)) is not None:
        if move is Move.RETIRE:
            assert seen.candidate_selects is None
            assert NEW not in to_retire(goal, seen) or not seen.live_reaches_release or seen.live_selects == NEW
        seen = made(goal, seen, move)


@given(goal=st.sampled_from(Goal), seen=STATES)
def test_the_candidates_service_stays_while_a_gateway_may_send_requests_to_it(goal, seen):
    while (move := next_move(goal, seen)) is not None:
        if move is Move.DROP_CANDIDATE:
            assert seen.routed
        seen = made(goal, seen, move)


@given(goal=st.sampled_from(Goal), seen=STATES)
def test_without_a_surge_no_pod_of_a_release_starts_before_the_other_one_made_room(goal, seen):
    seen = replace(seen, surges=False)
    while (move := next_move(goal, seen)) is not None:
        if move in {Move.DEPLOY, Move.CARRY_REPLICAS}:
            assert seen.room or seen.live_selects == NEW
        if move is Move.GIVE_BACK:
            assert not to_retire(goal, seen)
            assert seen.candidate_selects is None
        seen = made(goal, seen, move)


@given(goal=st.sampled_from([Goal.PROMOTE, Goal.ROLL_BACK, Goal.REVERT]), seen=STATES)
def test_whatever_is_live_in_the_end_has_its_replicas_back(goal, seen):
    _, end = moves(goal, seen)

    assert end.whole


@given(seen=STATES)
def test_what_a_drill_starts_takes_no_traffic_until_it_is_flipped_to_it(seen):
    _, warm = moves(Goal.WARM, seen)
    _, serving = moves(Goal.SERVE, warm)

    assert (warm.live_selects, warm.channel_live) == (seen.live_selects, seen.channel_live)
    assert warm.available or warm.live_selects == NEW
    assert (serving.live_selects, serving.channel_live) == (NEW, seen.channel_live)
    assert seen.deployed <= serving.deployed


@given(seen=STATES)
def test_what_a_drill_started_is_removed_after_the_live_release_has_its_traffic_again(seen):
    while (move := next_move(Goal.COOL, seen)) is not None:
        if move is Move.RETIRE:
            assert to_retire(Goal.COOL, seen) == {NEW}
            assert seen.live_selects != NEW
            assert not seen.live_reaches_release
        seen = made(Goal.COOL, seen, move)

    assert NEW not in seen.deployed or seen.channel_live == NEW


@given(seen=STATES)
def test_a_roll_out_with_a_surge_first_gives_back_what_a_run_without_one_took(seen):
    found, end = moves(Goal.ROLL_OUT, replace(seen, surges=True, room=True))

    undecided = end.live_selects not in {None, end.channel_live}
    assert end.whole or undecided
    if Move.GIVE_BACK in found and Move.DEPLOY in found:
        assert found.index(Move.GIVE_BACK) < found.index(Move.DEPLOY)


@given(seen=STATES)
def test_a_roll_out_moves_traffic_only_to_where_the_channel_says(seen):
    _, end = moves(Goal.ROLL_OUT, seen)

    assert end.live_selects in {seen.live_selects, seen.channel_live}
    assert (end.live_selects is None) is (seen.live_selects is None)
    assert end.channel_live == seen.channel_live
    assert end.candidate_selects == NEW


@given(seen=STATES)
def test_a_roll_out_removes_nothing_that_is_kept_or_takes_the_traffic(seen):
    seen = replace(seen, kept=seen.kept | {seen.channel_live} - {None})

    _, end = moves(Goal.ROLL_OUT, seen)

    assert seen.deployed & (seen.kept | {end.live_selects}) <= end.deployed


@given(goal=st.sampled_from(Goal), seen=STATES)
def test_every_goal_ends_with_the_scaler_and_the_routes_beside_what_is_live(goal, seen):
    _, end = moves(goal, seen)

    undecided = goal is Goal.ROLL_OUT and end.live_selects not in {None, end.channel_live}
    assert end.followed or undecided


def test_what_a_run_left_behind_goes_before_the_next_candidate_needs_its_place():
    left = replace(LIVE_IS_OLD, deployed=frozenset({OLD, OLDER}), candidate_selects=OLDER)

    found, end = moves(Goal.ROLL_OUT, left)

    cleared = [Move.DROP_CANDIDATE, Move.RETIRE]
    assert found == [*cleared, Move.DEPLOY, Move.POINT_CANDIDATE, Move.AWAIT_AVAILABLE]
    assert end.deployed == {OLD, NEW}


def test_a_promotion_that_died_before_the_channel_is_undone_by_the_next_roll_out():
    left = replace(LIVE_IS_OLD, deployed=frozenset({OLD, OLDER}), live_selects=OLDER, candidate_selects=OLDER)

    found, end = moves(Goal.ROLL_OUT, left)

    cleared = [Move.RESTORE_LIVE, Move.FOLLOW_LIVE, Move.AWAIT_ROUTED, Move.DROP_CANDIDATE, Move.RETIRE]
    assert found[:5] == cleared
    assert (end.live_selects, end.deployed) == (OLD, {OLD, NEW})


def test_a_revert_removes_the_candidate_that_a_run_left_behind():
    left = replace(LIVE_IS_OLD, deployed=frozenset({OLD, OLDER, NEW}), candidate_selects=OLDER, available=True)

    _, end = moves(Goal.REVERT, left)

    assert (end.candidate_selects, OLDER in end.deployed) == (None, False)


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        (Goal.ROLL_OUT, [Move.DEPLOY, Move.POINT_CANDIDATE, Move.AWAIT_AVAILABLE]),
        (Goal.ROLL_BACK, []),
    ],
)
def test_a_first_run_beside_a_live_release(goal, expected):
    assert moves(goal, LIVE_IS_OLD)[0] == expected


def test_a_release_takes_the_traffic_with_as_many_pods_as_serve_now():
    ready = replace(LIVE_IS_OLD, deployed=frozenset({OLD, NEW}), candidate_selects=NEW, available=True)

    found, _ = moves(Goal.PROMOTE, replace(ready, enough_replicas=False))

    assert found[:4] == [Move.CARRY_REPLICAS, Move.AWAIT_AVAILABLE, Move.POINT_LIVE, Move.FOLLOW_LIVE]


def test_a_candidate_whose_manifest_is_yesterdays_is_deployed_anew():
    seen = replace(LIVE_IS_OLD, deployed=frozenset({OLD, NEW}), candidate_selects=NEW, available=True, current=False)

    assert next_move(Goal.ROLL_OUT, seen) is Move.DEPLOY


def test_a_promotion_that_died_before_the_channel_is_undone_by_a_roll_back():
    seen = replace(LIVE_IS_OLD, deployed=frozenset({OLD, NEW}), live_selects=NEW, candidate_selects=NEW)

    restored = [Move.RESTORE_LIVE, Move.FOLLOW_LIVE, Move.AWAIT_ROUTED, Move.DROP_CANDIDATE, Move.RETIRE]
    assert moves(Goal.ROLL_BACK, seen)[0] == restored


def test_a_roll_back_keeps_a_release_that_was_live_before():
    seen = replace(LIVE_IS_OLD, deployed=frozenset({OLD, NEW}), candidate_selects=NEW, kept=frozenset({OLD, NEW}))

    assert moves(Goal.ROLL_BACK, seen)[0] == [Move.DROP_CANDIDATE]
