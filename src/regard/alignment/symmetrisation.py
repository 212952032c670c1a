"""Symmetrisation: join the word alignments of two directions into one, by intersection, union or growing.

Koehn, Och and Marcu 2003 (Statistical Phrase-Based Translation), section 3; the final steps as in Koehn et al. 2005
(Edinburgh System Description for the 2005 IWSLT Speech Translation Evaluation).
"""

import heapq
from collections.abc import Iterable

from regard.errors import ArgumentError

Link = tuple[int, int]  # a source word and a target word
AROUND = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))  # (target, source), in paper order


def flip_links(links: Iterable[Link]) -> list[Link]:
    """Swap the two words of each link, to convert links of one direction to the other."""
    return [(source, target) for target, source in links]


def grow_diag(forward: set[Link], backward: set[Link]) -> set[Link]:
    """Repeatedly add neighbours from the union to the intersection, if they give a word its first link.

    The paper loops over all target and source words until it adds no link. Words only gain links, so that each link's
    neighbours need one check, but the order of the checks decides which links are added. A link that is added ahead of
    the loops' position is checked in the same round, any other in the next.
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
    """Join the links of two directions, both as (source, target) of the forward one; sort them by target word."""
    if method not in METHODS:
        raise ArgumentError(f"method: {method!r} given, expected one of {', '.join(METHODS)}")
    both = set(forward), set(backward)
    if method in ("intersection", "union"):
        joined = both[0] & both[1] if method == "intersection" else both[0] | both[1]
    else:
        joined = grow_diag(*both)
    if "final" in method:
        # Add every link of either direction that gives one of its words ("and": both words) a first link.
        accept = all if method.endswith("and") else any
        sources, targets = {source for source, _ in joined}, {target for _, target in joined}
        for links in both:
            for source, target in sorted(links, key=lambda link: (link[1], link[0])):
                if accept((source not in sources, target not in targets)):
                    joined.add((source, target))
                    sources.add(source)
                    targets.add(target)
    return sorted(joined, key=lambda link: (link[1], link[0]))
