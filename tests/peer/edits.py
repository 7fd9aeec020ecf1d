"""What is replaced in llama.cpp's tests, whose expectations are of other models' texts: such a text becomes any text, and counts of
tokens become the default model's. Pairs of what stands there and what it becomes, by file."""

ANY = r'"\\S"'


def any_text(*patterns):
    """Patterns that an answer of another model matches."""
    return [(pattern, ANY) for pattern in patterns]


EDITS = {
    "test_basic.py": any_text('"(little|girl)+"'),
    "test_chat_completion.py": [
        *any_text('"But she couldn\'t"', r'"(Suddenly)+|\\{ \" Sarax."', '"^ blue"', '"(Aside|she|felter|alonger)+"', '"Whillicter"',
                  '"(Suddenly)+"'),
        (", 69, 8,", ", 16, 8,"), (", 77, 8,", ", 20, 8,"), (", 79, 8,", ", 20, 8,"), (", 104, 128,", ", 29, 128,"),
        # a template without messages; the model's BOS
        ("23, 8,", "9, 8,"), ('"<s> <|start_header_id|>', '"<|im_start|><|start_header_id|>'),
        # a prompt of 70 tokens has one batch less
        ("(64, 4, False)", "(64, 3, False)"),
    ],
    "test_compat_oai_responses.py": any_text('"(Suddenly)+"'),
    "test_completion.py": [
        *any_text('"(going|bed)+"', '"(princesses|everyone|kids|Anna|forest)+"'),
        (", 18, 8, False", ", 7, 8, False"), (", 46, 64, False", ", 15, 64, False"),
        ('"I believe the meaning of life is"*32', '"I believe the meaning of life is"*64'),   # longer than the context here, too
        ('"<s> " + prompt', "prompt"), ("(40 + r)*5 + 2", "(40 + r)*3"),
    ],
    "test_ctx_shift.py": [
        ('"prompt": LONG_TEXT', '"prompt": LONG_TEXT * 2'),
        # the model ends by itself; 4 tokens of a prompt and 252 are the context
        ('"prompt": "Hi how are you",', '"prompt": "Hi how are you", "ignore_eos": True,'), ("(-1, 248, True)", "(-1, 252, True)"),
    ],
    "test_embedding.py": [('is", 9)', 'is", 7)'), ('test", 6)', 'test", 4)'), ("2 * 9", "2 * 7"), ("== 5 # 3 text", "== 3 # 3 text")],
    # the same beginning before each prompt, as prefixes are found in whole pages of 32 tokens; the model would end by itself
    "test_slot_save.py": [
        *any_text('"(Whiskers|Flana)+"', '"(Jack|said)+"'),
        ('"prompt": "What is the capital', '"ignore_eos": True, "prompt": "I believe the meaning of life is " * 12 + "What is the capital'),
        ('["prompt_n"] == 21', '["prompt_n"] == 91'), ("== 84", "== 154"), ('["prompt_n"] == 6', '["prompt_n"] == 27'),
        ('["prompt_n"] == 1\n', '["prompt_n"] == 27\n'),
    ],
    "test_rerank.py": [('"Learning is", 19)', '"Learning is", 760)'), ('capitale de la", 26)', 'capitale de la", 765)')],
    "test_infill.py": any_text('"(Ann|small|shiny|Daddy|Jimmy)+"', '"(Dad|excited|park|Jimmy)+"'),
}
