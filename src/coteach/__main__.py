"""`python -m coteach` is `coteach`, and `torchrun … -m coteach run …` one training by several processes."""

import os
import sys
import warnings

from coteach.cli import main

if __name__ == "__main__":
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and sys.argv[1:2] != ["run"]:
        print("coteach: several processes train together in `coteach run` only.", file=sys.stderr)  # noqa: T201
        raise SystemExit(2)
    if int(os.environ.get("RANK", "0")) > 0:  # the first one says it for all; errors still are everyone's own
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends
        warnings.simplefilter("ignore")
    main()
