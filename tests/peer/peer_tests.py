"""Runs llama.cpp's own server tests against infcgi behind nginx and prints passed / all, with a reason for each that cannot hold.

    peer_tests.py --tests FOLDER --model FILE [--variant release] [--out FOLDER] [WORD...]    # only cases whose name holds a word

Fails when a case fails that cannot_hold.txt does not name, or one passes that it does. FOLDER has tools/server/tests and
models/templates of llama.cpp; edits.py says which of their expectations are of another model's text.
"""
import argparse
import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys

import edits

HERE = pathlib.Path(__file__).resolve().parent


def read_list(path):
    """{name: reason}: a name is a file, a function or a case."""
    reasons = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line and not line.startswith("#"):
            name, bar, reason = line.rpartition("|")
            assert bar and reason, f"{path}:{number}: expected name|reason, found {line!r}"
            reasons[name] = reason
    return reasons


def reason_of(reasons, case):
    """Of the case, its function, or its file."""
    function = case.partition("[")[0]
    for name in (case, function, function.partition("::")[0]):
        if name in reasons:
            return name
    return None


def prepare(source, out):
    """A copy of the tests whose expectations of another model's text are replaced."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(source, out)
    for file, pairs in edits.EDITS.items():
        path = out / "tools/server/tests/unit" / file
        text = path.read_text()
        for old, new in pairs:
            assert old in text, f"edits.py: {file}: {old!r} is not there"
            text = text.replace(old, new)
        path.write_text(text)
    return out / "tools/server/tests"


def run(options, tests, skipped_files):
    results = options.out / "results.jsonl"
    results.unlink(missing_ok=True)
    cache = options.out / "packed"
    cache.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "PYTHONPATH": f"{HERE}:{tests}", "PEER_TESTS_RESULTS": str(results), "PEER_TESTS_CACHE": str(cache),
           "PEER_TESTS_MODEL": str(options.model.resolve()), "PEER_TESTS_VARIANT": options.variant}
    ignored = [f"--ignore=unit/{file}" for file in skipped_files]
    picked = ["-k", " or ".join(options.words)] if options.words else []
    with open(options.out / "pytest.log", "w") as log:
        subprocess.run([sys.executable, "-m", "pytest", "-p", "adapter", "-p", "no:cacheprovider", "-m", "not slow", "-q", "--tb=short",
                        *ignored, *picked, "unit"], cwd=tests, env=env, stdout=log, stderr=log)
    return results


def outcomes(results):
    """{case: (outcome, why)}: a case that failed in any phase failed."""
    found = {}
    for line in results.read_text().splitlines():
        row = json.loads(line)
        name = row["name"].removeprefix("unit/")
        if name not in found or row["outcome"] == "failed":
            found[name] = (row["outcome"], row["why"])
    return found


def count_cases(tests, files):
    """Cases of the files, which are not run."""
    if not files:
        return {}
    env = {**os.environ, "PYTHONPATH": f"{HERE}:{tests}", "PEER_TESTS_CACHE": ""}
    listed = subprocess.run([sys.executable, "-m", "pytest", "-p", "adapter", "-p", "no:cacheprovider", "-m", "not slow", "-q", "--collect-only",
                             *(f"unit/{f}" for f in files)], cwd=tests, env=env, stdout=subprocess.PIPE, text=True)
    return collections.Counter(line.partition("::")[0].removeprefix("unit/") for line in listed.stdout.splitlines() if "::" in line)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tests", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--variant", default="release")
    parser.add_argument("--out", type=pathlib.Path, default=HERE.parents[1] / "build/peer-tests")
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    reasons = read_list(HERE / "cannot_hold.txt")
    files = [name for name in reasons if "::" not in name]
    options.out.mkdir(parents=True, exist_ok=True)
    tests = prepare(options.tests, options.out / "tree")
    found = outcomes(run(options, tests, files))
    not_run = count_cases(tests, files)

    unexpected, used, holding, passed = [], set(files), set(files), 0   # used: names of cases; holding: with one that fails
    for case, (outcome, why) in sorted(found.items()):
        name = reason_of(reasons, case)
        used.add(name)
        passed += outcome == "passed"
        holding |= {name} if outcome != "passed" else set()
        if outcome != "passed" and name is None:
            unexpected.append(f"{outcome.upper()}: {case}\n{why}")
        elif outcome != "passed":
            print(f"cannot hold: {case}: {reasons[name]}")
    for file, n in sorted(not_run.items()):
        print(f"cannot hold: {file}, {n} cases, not run: {reasons[file]}")
    if not options.words:
        unexpected += [f"PASSED, though the list says that it cannot: {name}" for name in reasons if name in used - holding]
    stale = [] if options.words else [name for name in reasons if name not in used]
    unexpected += [f"in the list, but no such case: {name}" for name in stale]
    print("\n".join(unexpected))
    every = len(found) + sum(not_run.values())
    print(f"peer-tests: {passed} of {every} passed, {len(found)} run; {len(unexpected)} not as expected (log: {options.out}/pytest.log)")
    return 1 if unexpected or not found else 0


if __name__ == "__main__":
    sys.exit(main())
