"""Runs the end-to-end tests. The last line is `N passed, N failed`.

    run.py [--variant release|asan|...] [--folder tests/clients] [--mark none|release|long,...] [WORD...]
        runs the tests that have one of the marks (harness.in_release, in_long) and one of the words in `file.function`;
        without marks or words all of them
"""
import argparse
import importlib
import pathlib
import sys
import time
import traceback

import harness


def find(folder, words, marks):
    sys.path.insert(0, str(folder.resolve()))
    for path in sorted(folder.glob("*_test.py")):
        module = importlib.import_module(path.stem)
        for name, function in list(vars(module).items()):  # a test's warning adds a name to its module
            full = f"{path.stem}.{name}"
            wanted = name.startswith("test_") and (not words or any(w in full for w in words))
            mark = getattr(function, "mark", getattr(module, "MARK", "none"))
            if wanted and (not marks or mark in marks):
                yield full, function


def run_one(ctx, function):
    """Returns None if it passed, else the reason."""
    try:
        try:
            function(ctx)
        finally:
            ctx.after_test()
    except harness.Skip:
        raise
    except Exception:  # noqa: BLE001 any failure is reported the same way
        return traceback.format_exc()
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", default="release")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    parser.add_argument("--mark", type=lambda s: s.split(","), default=[])
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    ctx = harness.Context(options.variant, is_long=not options.mark)
    passed = failed = 0

    def report(name, problem, seconds):
        nonlocal passed, failed
        if problem:
            failed += 1
            print(f"FAIL {name}\n{problem}", flush=True)
        else:
            passed += 1
            print(f"ok   {name} {seconds:.2f} s", flush=True)

    for name, function in find(options.folder, options.words, options.mark):
        start = time.monotonic()
        try:
            problem = run_one(ctx, function)
        except harness.Skip as e:
            print(f"skip {name}: {e}", flush=True)
            continue
        report(name, problem, time.monotonic() - start)
    try:
        ctx.close()
    except Exception:  # noqa: BLE001
        report("the shared server's end", traceback.format_exc(), 0)
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 and passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
