"""Count what catches one kind of mutation in every kernel of the corpus: `python -m tests.mutations.sweep_corpus`.

Behind it stand words that the names of the mutations have, as in `python -m tests.mutations.sweep_corpus tensormap`.
"""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from .judge import Verdict, judge
from .mutation import mutations
from .third_party import corpus


def verdicts_of(words: tuple[str, ...], name: str) -> list[Verdict]:
    """The verdicts on the mutations of one kernel whose names have all `words`."""
    kernel = corpus()[name]
    return [judge(kernel, m) for m in mutations(kernel.text) if all(word in m.name for word in words)]


def main(words: tuple[str, ...]) -> None:
    """Print what goes unnoticed, and the counts."""
    if not words:
        sys.exit("which mutations? Give words that their names have")
    with ProcessPoolExecutor() as pool:
        found = dict(zip(corpus(), pool.map(partial(verdicts_of, words), corpus()), strict=True))
    for name, verdicts in found.items():
        for v in verdicts:
            if not v.reported:
                print(f"{name} | {v.mutation.name}: {v.caught}")
    count = Counter(v.caught for verdicts in found.values() for v in verdicts)
    kernels = sum(map(bool, found.values()))
    print(f"{count.total()} mutations in {kernels} kernels: {', '.join(f'{k} ({n})' for k, n in count.most_common())}")


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
