#!/usr/bin/python3
"""Searches object files for cycles of sources that use each other's symbols.

    cycles.py OBJECTS SOURCE...

OBJECTS is the folder of a finished build; the object of a/b.c is OBJECTS/a/b.o. Sources without an object are reported, except
kernels, which are compiled for one architecture. A cycle may have at most MOST sources, all in one folder. Prints
`file:1: a cycle of N files: ...` for each other cycle, and one shortest way around it with the symbols that it follows."""
import collections
import os
import subprocess
import sys

MOST = 6


def read(objects, sources):
    """Returns {source: {used source: symbol}}."""
    source_of = {f"{objects}/{source[:-2]}.o": source for source in sources}
    listed = subprocess.run(["nm", "-A", "-P", "-g", *source_of], stdout=subprocess.PIPE, text=True, check=True).stdout
    defines, wants = {}, []
    for line in listed.splitlines():
        path, symbol, kind = line.split()[:3]
        if kind in "Uvw":
            wants.append((source_of[path[:-1]], symbol))
        else:
            defines.setdefault(symbol, source_of[path[:-1]])
    uses = {source: {} for source in sources}
    for source, symbol in sorted(wants):
        used = defines.get(symbol, source)
        if used != source:
            uses[source].setdefault(used, symbol)
    return uses


def order(uses):
    """Returns the sources so that each comes after those it uses, as far as there is such an order."""
    seen, done = set(), []
    for first in uses:
        stack = [(first, iter(uses[first]))] if first not in seen else []
        seen.add(first)
        while stack:
            following = next((used for used in stack[-1][1] if used not in seen), None)
            if following is None:
                done.append(stack.pop()[0])
            else:
                seen.add(following)
                stack.append((following, iter(uses[following])))
    return done


def cycles(uses):
    """Yields the sets of sources that reach each other (Kosaraju)."""
    users = {source: [] for source in uses}
    for source in uses:
        for used in uses[source]:
            users[used].append(source)
    taken = set()
    for first in reversed(order(uses)):
        found, waiting = set(), [first]
        while waiting:
            source = waiting.pop()
            if source not in taken:
                taken.add(source)
                found.add(source)
                waiting.extend(users[source])
        if len(found) > 1:
            yield found


def way(uses, cycle):
    """A shortest way around: [(source, symbol), ...], which leaves the folder if the cycle does."""
    links = [(a, b) for a in sorted(cycle) for b in uses[a] if b in cycle]
    leaving = [(a, b) for a, b in links if os.path.dirname(a) != os.path.dirname(b)]
    ways = []
    for start, to in leaving or links:
        before, waiting = {to: start}, collections.deque([to])
        while start not in before:
            source = waiting.popleft()
            for used in uses[source]:
                if used in cycle and used not in before:
                    before[used] = source
                    waiting.append(used)
        path, at = [start], before[start]
        while at != start:
            path.insert(0, at)
            at = before[at]
        path.insert(0, start)
        ways.append(path)
    path = min(ways, key=len)
    return [(a, uses[a][b]) for a, b in zip(path, path[1:])]


def main():
    objects, sources = sys.argv[1], sys.argv[2:]
    built = [source for source in sources if os.path.exists(f"{objects}/{source[:-2]}.o")]
    for source in set(sources) - set(built):
        if not source.startswith("engine/kernels/"):
            print(f"{source}:1: {objects} has no object of it, so its cycles are not known; run make")
    uses = read(objects, built) if built else {}
    for cycle in sorted(map(sorted, cycles(uses))):
        folders = {os.path.dirname(source) for source in cycle}
        if len(cycle) > MOST or len(folders) > 1:
            around = " -> ".join(f"{source} ({symbol})" for source, symbol in way(uses, set(cycle)))
            print(f"{cycle[0]}:1: a cycle of {len(cycle)} files: {' '.join(cycle)}; expected {MOST} or fewer, in one folder; around it: {around}")


main()
