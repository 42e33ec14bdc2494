"""The zygote, the process that workers are forked from: it has imported torch and transformers, so forks start at once.

`python -m local_aws.lmi.workers.zygote FD` reads commands from the Unix stream socket FD, one JSON object per line:

    {"op": "fork"} with one file descriptor   → {"pid": N}; the child serves the descriptor as a worker
    {"op": "kill", "pid": N}                  → nothing; a child that has ended is ignored

and reports {"exited": N, "code": C} for every child that ends. When a handler starts a Python program, engine_start.py
orders a fork that runs the program, over a second socket. The zygote sends {"ready": true} over the socket before it
reads the first command.

Forking is safe because the zygote never has a second thread: it runs no model, and its environment keeps OpenMP and
OpenBLAS to one thread. The zygote ends, with all workers, when the other end of its socket closes. On Linux, which has
parent-death signals, workers also end when the zygote is killed, even in the middle of a computation.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import logging
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
from typing import TYPE_CHECKING, Any

from local_aws.lmi.workers.engine_start import program_address
from local_aws.lmi.workers.faults.sitecustomize import take_faults

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = logging.getLogger(__name__)

# With "false" nothing is imported ahead: a container starts at once, and each handler imports the modules that it uses.
PRELOAD = "COHOST_LMI_PRELOAD"
_PR_SET_PDEATHSIG = 1
_LINE_LIMIT = 65536
_ORDER_LIMIT = 1 << 20
_STANDARD = (0, 1, 2)


def main() -> None:
    """Import the heavy modules unless preloading is off, then fork workers on command until the socket closes."""
    die_with_parent()
    # Ctrl-C reaches all processes of the terminal's group; the server decides when its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.environ.get(PRELOAD, "true").lower() != "false":
        _import_heavy_modules()
    with socket.socket(fileno=int(sys.argv[1])) as control:
        _Zygote(control).run()


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies (Linux; elsewhere nothing happens)."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent process ended before it sent the request
            os._exit(1)


def _user_of(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])


def _import_heavy_modules() -> None:
    # Objects that an import creates stay, so garbage collection meanwhile would waste a tenth of the time.
    gc.disable()
    import torch  # imported after the signal handlers are set
    import transformers

    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    # transformers imports its classes on first use; naming those that encoders need imports them here, once.
    _ = (transformers.pipeline, transformers.AutoConfig, transformers.AutoTokenizer)
    _ = (transformers.AutoModel, transformers.AutoModelForSequenceClassification)
    # Keep the garbage collector from touching memory pages that are shared with workers, which would copy them.
    gc.collect()
    gc.freeze()
    gc.enable()


class _Zygote:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: set[int] = set()
        self._wakeup, wakeup_end = socket.socketpair()
        for end in (self._wakeup, wakeup_end):
            end.settimeout(0)
        self._wakeup_end = wakeup_end
        self._selector = selectors.DefaultSelector()
        self._programs: dict[int, socket.socket] = {}
        self._listening, self._other_end = socket.socketpair()
        if sys.platform == "linux":
            self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._listening.bind("\0" + program_address(os.getpid()))
            self._listening.listen()
        signal.set_wakeup_fd(wakeup_end.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        self._report({"ready": True})
        with self._selector:
            for one in (self._control, self._wakeup, self._listening):
                self._selector.register(one, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in self._selector.select()}
                if self._wakeup in ready:
                    self._wakeup.recv(_LINE_LIMIT)
                    self._reap()
                if self._listening in ready:
                    self._fork_program()
                for pid in [pid for pid, starter in self._programs.items() if starter in ready]:
                    self._leave(pid)
                if self._control in ready and not self._execute():
                    break
        for pid in [*self._children, *self._programs]:
            os.kill(pid, signal.SIGKILL)

    def _execute(self) -> bool:
        """Carry out the command that is read from the socket; return False if the socket's other end has closed."""
        data, descriptors, _, _ = socket.recv_fds(self._control, _LINE_LIMIT, 1)
        if not data:
            return False
        for line in data.splitlines():
            command = json.loads(line)
            if command["op"] == "fork":
                self._fork(descriptors[0])
            elif command["pid"] in self._children:
                os.kill(command["pid"], signal.SIGKILL)
        return True

    def _fork(self, descriptor: int) -> None:
        pid = os.fork()
        if pid == 0:
            self._become_worker(descriptor)
        os.close(descriptor)
        self._children.add(pid)
        self._report({"pid": pid})

    def _become_worker(self, descriptor: int) -> None:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            die_with_parent()
            self._leave_to_parent()
            from local_aws.lmi.workers.handler_runner import run  # only a worker needs this module

            code = run(socket.socket(fileno=descriptor))
        except BaseException:
            logger.exception("worker died")
        finally:
            # os._exit instead of sys.exit, because a fork must not run the exit handlers of its parent.
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _fork_program(self) -> None:
        connection, _ = self._listening.accept()
        order, descriptors, _, _ = socket.recv_fds(connection, _ORDER_LIMIT, len(_STANDARD))
        if _user_of(connection) != os.geteuid() or len(descriptors) != len(_STANDARD):
            connection.close()
            return
        pid = os.fork()
        if pid == 0:
            self._become_program(json.loads(order), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        self._programs[pid] = connection
        connection.send(json.dumps({"pid": pid}).encode())
        self._selector.register(connection, selectors.EVENT_READ)

    def _become_program(self, order: dict[str, Any], descriptors: Sequence[int]) -> None:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            die_with_parent()
            os.setpgid(0, 0)
            self._leave_to_parent()
            for descriptor, standard in zip(descriptors, _STANDARD, strict=True):
                os.dup2(descriptor, standard)
            os.environ.clear()
            os.environ.update(order["environment"])
            os.chdir(order["folder"])
            take_faults()
            sys.argv = order["argv"]
            runpy.run_path(sys.argv[0], run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            logger.exception("a program died")
        finally:
            os._exit(code)

    def _leave_to_parent(self) -> None:
        """In a fork, close the files and sockets that only the zygote uses."""
        self._selector.close()
        for end in (self._control, self._wakeup, self._wakeup_end, self._listening, *self._programs.values()):
            end.close()

    def _leave(self, pid: int) -> None:
        """Kill the fork that runs a program, because the process that ordered it has ended."""
        self._close(self._programs.pop(pid))
        self._children.add(pid)
        os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        while self._children or self._programs:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._programs:
                self._tell(self._programs.pop(pid), os.waitstatus_to_exitcode(status))
                continue
            self._children.discard(pid)
            self._report({"exited": pid, "code": os.waitstatus_to_exitcode(status)})

    def _tell(self, connection: socket.socket, code: int) -> None:
        with contextlib.suppress(OSError):
            connection.send(json.dumps({"code": code}).encode())
        self._close(connection)

    def _close(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()

    def _report(self, message: dict[str, Any]) -> None:
        self._control.sendall(json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main()
