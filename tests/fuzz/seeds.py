"""Where randomness comes from."""

import os
import random


def new_dice() -> random.Random:
    """Dice whose seed is printed; `SEED=... pytest ...` throws the same again."""
    seed = int(os.environ.get("SEED", random.randrange(10**9)))
    print(f"SEED={seed}")
    return random.Random(seed)
