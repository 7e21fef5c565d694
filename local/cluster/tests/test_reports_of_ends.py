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
