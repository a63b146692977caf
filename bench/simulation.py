"""How fast the simulation lives through worlds, and what a second process adds.

Prints seeds per second with one process and with one per core, and their ratio, in one run.
"""

import os
import time

from pairbus.cli.simulate import count_worlds

SEEDS = range(2000)


def rate(jobs: int) -> float:
    """Return how many worlds a second so many processes live through."""
    began = time.perf_counter()
    worlds = sum(some.worlds for some in count_worlds(SEEDS, jobs))
    return worlds / (time.perf_counter() - began)


def main() -> None:
    cores = os.cpu_count() or 1
    one, all_cores = rate(1), rate(cores)
    print(f"simulation: {one:.0f} seeds/s with 1 process, {all_cores:.0f} with {cores}: ratio {all_cores / one:.2f}")


if __name__ == "__main__":
    main()
