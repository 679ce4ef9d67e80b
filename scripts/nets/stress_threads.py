"""Everything that several threads may use at once, with threads that are switched as often as can be.

    python scripts/nets/stress_threads.py --seconds 30
    python scripts/nets/stress_threads.py --seconds 5 --threads 32

Each subject (executors of both tiers, executions of one compilation on the CPU, over three devices, in another process and with
events, one execution of all threads, a quantised classifier, what repeated runs remember, loading) works for so long under
``sys.setswitchinterval(1e-6)``; every answer is checked. Exit status 1 if one is wrong or an error is raised.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser, one_line_errors

with one_line_errors():
    from tests.runtime.stress import SUBJECTS, stressed


def main() -> int:
    """A line for each subject."""
    parser = argument_parser()
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--threads", type=int, default=8)
    options = parser.parse_args()
    wrong = 0
    for subject in SUBJECTS:
        done, errors = stressed(subject, options.seconds, options.threads)
        wrong += errors.total()
        print(f"{subject:<32} {done:>8} done, {errors.total()} errors {dict(errors.most_common(3)) or ''}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
