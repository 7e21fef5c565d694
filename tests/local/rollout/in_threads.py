"""Clients and watchers that run in threads for as long as a block does."""

import threading


class InThreads:
    """Runs its targets until the block is left; each one ends when `_stop` is set. Used as a context."""

    def __init__(self, *targets):
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=target) for target in targets]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()
