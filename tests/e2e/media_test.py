"""Images, audio and files in every API: rejected with a 400, or a 404 for paths, in that API's format, with what and where."""
import harness
from rank_test import RERANKER

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
DATA_URL = f"data:image/png;base64,{PIXEL}"
CHAT_IMAGE = {"type": "image_url", "image_url": {"url": DATA_URL}}
MULTIMODAL = {"prompt_string": "What is on <__media__>?", "multimodal_data": [PIXEL]}
TEXT = {"type": "text", "text": "What is it?"}


def chat(*parts, **more):
    return {"messages": [{"role": "user", "content": list(parts)}], "max_tokens": 1, **more}


def responses(*parts):
    return {"input": [{"role": "user", "content": list(parts)}], "max_output_tokens": 1}


def tool_result(content):
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    return chat() | {"messages": [{"role": "user", "content": "Look."}, {"role": "assistant", "content": [call]},
                                  {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": content}]}]}


def output(kind, **what):
    return {"input": [{"role": "user", "content": "Look."},
                      {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
                      {"type": "function_call_output", "call_id": "c1", "output": [{"type": kind, **what}]}]}


BASE64 = {"type": "base64", "media_type": "image/png", "data": PIXEL}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
OPENAI = ("openai", [
    ("/v1/chat/completions", chat(TEXT, CHAT_IMAGE), "messages[0].content[1]"),
    ("/v1/chat/completions", chat(CHAT_IMAGE, stream=True), "messages[0].content[0]"),
    ("/v1/chat/completions", chat({"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}), "messages[0].content[0]"),
    ("/v1/chat/completions", chat({"type": "image_url", "image_url": DATA_URL}), "messages[0].content[0]"),
    ("/v1/chat/completions", chat({"type": "image_url"}), "messages[0].content[0]"),
    ("/v1/chat/completions", chat({"type": "input_audio", "input_audio": {"data": PIXEL, "format": "wav"}}), "messages[0].content[0]"),
    ("/v1/chat/completions", chat({"type": "video_url", "video_url": {"url": "x"}}), "messages[0].content[0]"),
    ("/v1/chat/completions", chat({"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0="}}), "messages[0].content[0]"),
    ("/v1/chat/completions", chat(TEXT, modalities=["text", "audio"]), "modalities"),
    ("/v1/chat/completions", chat(TEXT, audio={"voice": "alloy", "format": "wav"}), "audio"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"},
                                           {"role": "assistant", "audio": {"id": "audio_1"}}, {"role": "user", "content": "And?"}]},
     "messages[1]"),
    ("/chat/completions", chat(CHAT_IMAGE), "messages[0].content[0]"),
    ("/apply-template", chat(CHAT_IMAGE), "messages[0].content[0]"),
    ("/v1/responses", responses({"type": "input_image", "image_url": DATA_URL}), "input[0].content[0]"),
    ("/v1/responses", responses({"type": "input_image", "file_id": "file-1"}), "input[0].content[0]"),
    ("/v1/responses", responses({"type": "input_file", "file_data": "data:application/pdf;base64,JVBERi0="}), "input[0].content[0]"),
    ("/v1/responses", responses({"type": "input_audio", "input_audio": {"data": PIXEL, "format": "wav"}}), "input[0].content[0]"),
    ("/v1/responses", output("input_image", image_url=DATA_URL), "input[2].output[0]"),
    ("/v1/responses", output("input_file", file_id="file-1"), "input[2].output[0]"),
    ("/v1/responses/input_tokens", responses({"type": "input_image", "image_url": DATA_URL}), "input[0].content[0]"),
    ("/v1/completions", {"prompt": MULTIMODAL, "max_tokens": 1}, "prompt"),
    ("/v1/completions", {"prompt": ["Hi", MULTIMODAL], "max_tokens": 1}, "prompt"),
    ("/completion", {"prompt": MULTIMODAL, "n_predict": 1}, "prompt"),
    ("/completion", {"prompt": [MULTIMODAL], "n_predict": 1}, "prompt"),
    ("/completion", {"prompt": "Hi", "image_data": [{"data": PIXEL, "id": 1}], "n_predict": 1}, "image_data"),
    ("/tokenize", {"content": MULTIMODAL}, "content"),
])
VECTORS = ("openai", [
    ("/v1/embeddings", {"input": MULTIMODAL}, "input"),
    ("/v1/embeddings", {"input": [{"image": PIXEL}]}, "input"),
    ("/embeddings", {"content": MULTIMODAL}, "content"),
])
VECTORS_OLLAMA = ("ollama", [("/api/embed", {"input": [{"image": PIXEL}]}, "input")])
RANKS = ("openai", [
    ("/v1/rerank", {"query": "cat", "documents": [{"image": DATA_URL}]}, "documents[0]"),
    ("/v1/rerank", {"query": {"image": DATA_URL}, "documents": ["cat"]}, "query"),
    ("/v1/score", {"text_1": "cat", "text_2": {"content": [CHAT_IMAGE]}}, "text_2"),
])
ANTHROPIC = ("anthropic", [
    ("/v1/messages", chat(TEXT, {"type": "image", "source": BASE64}), "messages[0].content[1]"),
    ("/v1/messages", chat({"type": "image", "source": BASE64}, stream=True), "messages[0].content[0]"),
    ("/v1/messages", chat({"type": "image", "source": {"type": "url", "url": "https://example.com/cat.png"}}), "messages[0].content[0]"),
    ("/v1/messages", chat({"type": "document", "source": PDF}), "messages[0].content[0]"),
    ("/v1/messages", chat({"type": "container_upload", "file_id": "file_1"}), "messages[0].content[0]"),
    ("/v1/messages", tool_result([{"type": "image", "source": BASE64}]), "messages[2].content[0].content[0]"),
    ("/v1/messages/count_tokens", chat({"type": "image", "source": BASE64}), "messages[0].content[0]"),
])
OLLAMA = ("ollama", [
    ("/api/chat", {"messages": [{"role": "user", "content": "What is it?", "images": [PIXEL]}]}, "messages[0].images"),
    ("/api/chat", {"messages": [{"role": "user", "content": "What is it?", "images": PIXEL}]}, "messages[0].images"),
    ("/api/generate", {"prompt": "What is it?", "images": [PIXEL]}, "images"),
])


# Paths of models that make or hear them.
PATHS = [(method, path) for method, names in (
    ("POST", "audio/transcriptions audio/translations audio/speech images/generations images/edits images/variations videos files"),
    ("GET", "files images/generations")) for path in ("/v1/" + name for name in names.split())]


def problem_of(server, api, path, body, where):
    """Returns what is wrong with the answer to a body with media in it, or None."""
    if api == "anthropic":   # which requires a model
        body = {**body, "model": server.request("GET", "/v1/models").json()["data"][0]["id"]}
    r = server.post(path, body)
    said = f"{path} {where}: {r.status} {r.body.decode()[:300]}"
    if r.status != 400 or r.headers["Content-Type"].split(";")[0] != "application/json":
        return said
    got = r.json()
    if api == "ollama":
        is_well = set(got) == {"error"} and where in got["error"]
    elif api == "anthropic":
        e = got["error"]
        is_well = got["type"] == "error" and e["type"] == "invalid_request_error" and where in e["message"] and got["request_id"]
    else:
        e = r.error()
        is_well = e["type"] == "invalid_request_error" and (e["param"] or "").startswith(where) and where in e["message"]
    return None if is_well else said


def check(server, *apis):
    wrong = [p for api, rows in apis for row in rows if (p := problem_of(server, api, *row))]
    assert not wrong, "\n".join(wrong)
    assert server.idle()


def test_media_in_prompts_are_refused(ctx):
    check(ctx.server, OPENAI, ANTHROPIC, OLLAMA)


def test_media_to_embed_or_rank_are_refused(ctx):
    check(ctx.start("--threads", "1", "--pooling", "mean"), VECTORS, VECTORS_OLLAMA)
    check(ctx.start("--threads", "1", model=RERANKER), RANKS)


def test_endpoints_of_media_are_not_found(ctx):
    form = (b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\nRIFF\r\n--b--\r\n',
            {"Content-Type": "multipart/form-data; boundary=b"})
    for method, path in PATHS:
        bodies = [(None, {})] if method == "GET" else [(b'{"prompt":"a cat"}', {"Content-Type": "application/json"}), form]
        for body, headers in bodies:
            r = ctx.server.request(method, path, body, headers)
            e = r.error()
            assert (r.status, e["type"], e["code"]) == (404, "invalid_request_error", "unknown_url"), (method, path, r.status, e)
            assert path in e["message"], e


@harness.in_release
def test_text_beside_null_media_is_taken(ctx):
    """Fields that clients send without using them."""
    for path, body in (("/v1/chat/completions", chat(TEXT, modalities=["text"], audio=None)), ("/v1/chat/completions", chat(TEXT, modalities=None)),
                       ("/v1/chat/completions", {"max_tokens": 1, "messages": [{"role": "user", "content": "Hi"},
                        {"role": "assistant", "content": "Hi.", "audio": None}, {"role": "user", "content": "And?"}]}),
                       ("/completion", {"prompt": "Hi", "n_predict": 1, "image_data": []}),
                       ("/api/generate", {"prompt": "Hi", "images": [], "stream": False, "options": {"num_predict": 1}}),
                       ("/api/chat", {"messages": [{"role": "user", "content": "Hi", "images": []}], "stream": False, "options": {"num_predict": 1}})):
        r = ctx.server.post(path, body)
        assert r.status == 200, (path, body, r.body)
