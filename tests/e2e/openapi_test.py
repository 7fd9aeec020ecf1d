"""The served OpenAPI document. `make clients` has more: schemathesis sends the requests that it describes (tests/clients)."""
import json

import harness


def test_served_to_everyone(ctx):
    r = ctx.server.request("GET", "/openapi.json")
    assert r.status == 200 and r.headers["Content-Type"] == "application/json", r.headers
    assert r.body == (harness.ROOT / "docs/openapi.json").read_bytes()


def test_documented_errors(ctx):
    """A body that is not JSON is a 400 in the format that the document has for the path."""
    document = json.loads((harness.ROOT / "docs/openapi.json").read_bytes())
    for path, item in document["paths"].items():
        if "{" not in path and "post" in item:
            said = ctx.server.request("POST", path, b"{").json()
            form = item["post"]["responses"]["400"]["$ref"].rsplit("/", 1)[1]
            wanted = {"Error": dict, "AnthropicError": dict, "OllamaError": str}[form]
            assert isinstance(said["error"], wanted) and ("type" in said) == (form == "AnthropicError"), (path, said)
