"""schemathesis asks what docs/openapi.yaml says, and what it does not, and holds the answers against it."""
import re
import subprocess

import harness

SCHEMATHESIS = harness.ROOT / "build/clients/venv/bin/schemathesis"
# A body that fits the document may still be refused (another model, a prompt that is too long, a grammar that is none). TRACE
# is refused by nginx, whose 405 names no methods; that others are is nginx_test's.
NO_CHECKS = "positive_data_acceptance,unsupported_method"
ALIASES = r"^/((chat/)?completions|responses|embeddings|models|rerank|v2/rerank|score|v1/health)$"


def ask(server, *options, examples=8, least=40):
    run = subprocess.run([SCHEMATHESIS, "--config-file", harness.ROOT / "tests/clients/schemathesis.toml", "run", f"{server.base}/openapi.json", "-u", server.base, "--no-color", "-n", str(examples),
                          "--seed", "17", "--phases", "coverage,fuzzing", "--exclude-checks", NO_CHECKS, "--continue-on-failure",
                          "--generation-database", "none", "--warnings", "off", *options], cwd=server.dir, capture_output=True, text=True,
                         timeout=1500)
    n = int((re.search(r"(\d+) generated", run.stdout) or [0, 0])[1])
    print(f"schemathesis {' '.join(options)}: {n} requests")
    assert run.returncode == 0 and n >= least, run.stdout[-8000:] + run.stderr
    assert " error " not in server.log(), server.log()[-3000:]


def test_all_paths(ctx):
    ask(ctx.scripted([{"say": "Hello."}]), "--exclude-path-regex", ALIASES, least=2000)


def test_embeddings(ctx):
    s = ctx.start("--threads", "1", model=harness.ROOT / "tests/golden/models/bert-cls.gguf")
    ask(s, "--include-path-regex", "^/(v1/embeddings|api/embed|api/embeddings|tokenize|detokenize)$")


def test_a_reranker(ctx):
    s = ctx.start("--threads", "1", model=harness.ROOT / "tests/golden/rank/bert-xlmr-pair.gguf")
    ask(s, "--include-tag", "Rerank", "--exclude-path-regex", ALIASES)
