"""One alignment from those of two directions, which see different links: what both say, and what grows out of it.

Koehn, Och and Marcu 2003 (Statistical Phrase-Based Translation), section 3; the final steps as in Koehn et al. 2005
(Edinburgh System Description for the 2005 IWSLT Speech Translation Evaluation).
"""

import heapq
from collections.abc import Iterable

from regard.errors import ArgumentError

Link = tuple[int, int]  # a source word and a target word
AROUND = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))  # (target, source), in their order


def flip_links(links: Iterable[Link]) -> list[Link]:
    """Turn links of the other direction into links of this one."""
    return [(source, target) for target, source in links]


def grow_diag(forward: set[Link], backward: set[Link]) -> set[Link]:
    """Grow the intersection by neighbours in the union that give a word its first link, again and again.

    The paper's loops go over all target and source words until nothing is added. Words only ever gain links, so that a
    link's neighbours need be looked at once; in which order decides what is added. Those that were added ahead of where
    the loops stand come in the same round, the others in the next.
    """
    links, every = forward & backward, forward | backward
    sources, targets = {source for source, _ in links}, {target for _, target in links}
    ahead = sorted((target, source) for source, target in links)
    behind: list[Link] = []
    while ahead:
        target, source = heapq.heappop(ahead)
        for down, right in AROUND:
            new = (source + right, target + down)
            if new in every and new not in links and (new[0] not in sources or new[1] not in targets):
                links.add(new)
                sources.add(new[0])
                targets.add(new[1])
                place = (new[1], new[0])
                heapq.heappush(ahead, place) if place > (target, source) else behind.append(place)
        if not ahead:
            ahead, behind = sorted(behind), []
    return links


METHODS = ("intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and")


def symmetrise(forward: Iterable[Link], backward: Iterable[Link], method: str = "grow-diag") -> list[Link]:
    """Join the links of both directions, in the target's order; both are (source, target) of the forward one."""
    if method not in METHODS:
        raise ArgumentError(f"method: {method!r} given, expected one of {', '.join(METHODS)}")
    both = set(forward), set(backward)
    if method in ("intersection", "union"):
        joined = both[0] & both[1] if method == "intersection" else both[0] | both[1]
    else:
        joined = grow_diag(*both)
    if "final" in method:
        # Every link of either direction is added that gives a word of one side its first, or two words that have none.
        accept = all if method.endswith("and") else any
        sources, targets = {source for source, _ in joined}, {target for _, target in joined}
        for links in both:
            for source, target in sorted(links, key=lambda link: (link[1], link[0])):
                if accept((source not in sources, target not in targets)):
                    joined.add((source, target))
                    sources.add(source)
                    targets.add(target)
    return sorted(joined, key=lambda link: (link[1], link[0]))
