"""Runs tasks in processes of their own: one that dies takes only its own task with it."""

import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

PATIENCE = 20  # seconds for a worker to clean up after itself

# Forking a process that runs TensorFlow's threads would hang.
CONTEXT = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Died:
    """In place of a result: the process ended with this exit status, negative for a signal."""

    status: int | None

    def __str__(self) -> str:
        if self.status is not None and self.status < 0:
            return f"the process was ended by {signal.Signals(-self.status).name}"
        return f"the process ended with status {self.status}"


@dataclass(frozen=True, eq=False)
class _Worker:
    process: BaseProcess
    connection: Connection

    @staticmethod
    def start(work: Callable[[Any], Any]) -> "_Worker":
        ours, theirs = CONTEXT.Pipe()
        process = CONTEXT.Process(target=_serve, args=(theirs, work), daemon=True)
        process.start()
        theirs.close()  # or the end of the process would not be seen at ours
        return _Worker(process, ours)

    def stop(self) -> None:
        self.process.terminate()
        self.process.join(PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.connection.close()


def run(
    tasks: Iterable[Any],
    work: Callable[[Any], Any],
    jobs: int,
    on_done: Callable[[Any, Any], None],
) -> None:
    """Calls `work(task)` for each task in one of `jobs` processes, `on_done(task, result)` here.

    A process serves many tasks. `work` is a function of a module. Where its process dies, the
    result is a `Died`. On an exception, Ctrl-C among them, all processes are asked to end, and
    waited for.
    """
    waiting, busy, idle = deque(tasks), {}, []
    try:
        while waiting or busy:
            while waiting and len(busy) < jobs:
                worker, task = idle.pop() if idle else _Worker.start(work), waiting.popleft()
                busy[worker.connection] = worker, task
                worker.connection.send(task)
            for connection in wait(list(busy)):
                worker, task = busy[connection]
                result = _received(worker)
                del busy[connection]
                if not isinstance(result, Died):
                    idle.append(worker)
                on_done(task, result)
    finally:
        for worker in [*idle, *(worker for worker, _ in busy.values())]:
            worker.stop()


def _received(worker: _Worker) -> Any:
    try:
        return worker.connection.recv()
    except (EOFError, ConnectionError):
        worker.process.join()
        worker.connection.close()
        return Died(worker.process.exitcode)


def _serve(connection: Connection, work: Callable[[Any], Any]) -> None:
    """The loop of a worker: silent, and ended by a signal as by an error, so that it cleans up."""
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silence, stream)
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which asks to end
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        connection.send(work(task))


def _leave(number: int, frame: Any) -> None:
    sys.exit(128 + number)
