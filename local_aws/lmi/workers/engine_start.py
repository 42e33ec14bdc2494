"""Start a handler's further Python process as a fork of the zygote, a process that has imported torch and transformers.

A handler starts a process with `sys.executable`, which in a worker of the emulator is this program:

    python -IS engine_start.py PROGRAM ARGUMENT...

The program `engine_start.py` asks the zygote for a fork that runs PROGRAM with the arguments, environment, and open
files that this process was started with, waits for the fork's end, and ends with the fork's exit code, or by SIGKILL if
a signal ended the fork. If this process is killed, the fork is killed, too.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path

ADDRESS = "COHOST_LMI_FORK"
_STANDARD = (0, 1, 2)
_LIMIT = 1 << 20


def program_address(zygote: int) -> str:
    """Return the abstract name of the socket to which orders to fork are sent; `zygote` is the zygote's process id."""
    return f"cohost-lmi-zygote-{zygote}"


def main() -> None:
    """Have the zygote fork a process for the program, and wait for its end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as zygote:
        zygote.connect("\0" + os.environ[ADDRESS])
        order = {"argv": sys.argv[1:], "environment": dict(os.environ), "folder": str(Path.cwd())}
        socket.send_fds(zygote, [json.dumps(order).encode()], _STANDARD)
        pid = json.loads(zygote.recv(_LIMIT))["pid"]
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.kill(pid, number))
        answer = zygote.recv(_LIMIT)
    if not answer:
        os.kill(os.getpid(), signal.SIGKILL)
    code = json.loads(answer)["code"]
    # A signal ended the fork: any that ends this process will do, since nobody asks which.
    if code < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(code)


if __name__ == "__main__":
    main()
