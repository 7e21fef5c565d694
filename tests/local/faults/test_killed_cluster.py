"""The API server is killed while the live Service changes, or the only node is lost with every process on it."""

from tests.local.faults.model import UNAVAILABLE


def test_a_flip_that_loses_its_api_server_is_finished_by_the_next_try(own_model, own_server):
    new = own_model.candidate()

    own_model.cluster.act("Service", "demo", after=own_server.kill)
    assert own_model.step("promote", new) == UNAVAILABLE, own_model.message
    own_server.start()
    own_model.answers_again(new.id)
    own_model.steps(new, "promote")

    own_model.assert_whole(new.id, ("promoted", new.id))


def test_a_node_that_is_lost_with_every_pod_in_the_middle_of_a_release_serves_again(own_model, own_server):
    before, new = own_model.live, own_model.candidate()

    own_server.lose_node()
    assert own_model.step("promote", new) == UNAVAILABLE, own_model.message
    own_server.start()
    own_model.answers_again(before)
    own_model.steps(new, "promote")

    own_model.assert_whole(new.id, ("promoted", new.id))
