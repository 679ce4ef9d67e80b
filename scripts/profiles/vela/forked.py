"""Run by the Python of Vela's environment: a fork of a process that has Vela loaded for each file; a crash ends only its fork.

Each line of standard input is a JSON array: where the output goes, then Vela's arguments. Each line of standard output is an exit
status. A file that takes longer than SECONDS counts as one that Vela fails on.
"""

import contextlib
import json
import os
import signal
import sys

from ethosu.vela.vela import main

SECONDS = 30

for line in sys.stdin:
    log, *arguments = json.loads(line)
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        with open(log, "w") as text, contextlib.suppress(OSError):
            os.dup2(text.fileno(), 1)
            os.dup2(text.fileno(), 2)
        code = 1
        try:
            code = main(arguments) or 0
        except SystemExit as stopped:
            code = stopped.code if isinstance(stopped.code, int) else 1
        except BaseException as failed:
            print(repr(failed), file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    status = os.waitpid(child, 0)[1]
    print(os.waitstatus_to_exitcode(status), flush=True)
