def restart(cluster, notice_s):
    cluster.kill()
    cluster.more_options = ("--notice-s", notice_s)
    cluster.start()


def test_an_end_is_reported_at_the_next_look_of_the_period_that_the_server_is_told(own_cluster, space_in):
    restart(own_cluster, "1e10")
    space = space_in(own_cluster, "notice")
    space.run("ends", "print('done')")
    log = space.logs("ends", follow=True)  # until its end

    assert (log, space.pod("ends").status.phase) == ("done\n", "Running")

    restart(own_cluster, "0")

    assert space.finished("ends").status.phase == "Succeeded"


def test_a_kubelet_that_looks_once_a_second_reports_an_end_a_second_late(own_cluster, space_in):
    restart(own_cluster, "1")
    space = space_in(own_cluster, "late")
    space.run("ends", "pass")

    status = space.finished("ends").status

    ready = next(one for one in status.conditions if one.type == "Ready")
    ended = status.container_statuses[0].state.terminated.finished_at
    assert (ready.status, (ready.last_transition_time - ended).total_seconds() >= 1) == ("False", True)
