"""An agent's session (replay.py) computes next to nothing twice, though the engine is killed three times: of a model with recurrent layers,
and of one with windows. `make replay` has it without that, and with a model that says something."""
import replay

MARK = "release"


def check(ctx, name):
    count = replay.run(ctx, replay.SHAPES[name], 1, True)
    assert count.requests == 2 * replay.TURNS + replay.TURNS + replay.TURNS // 3, count
    assert count.again <= 0.02, count


def test_a_session_with_windows_and_kill_9(ctx):
    check(ctx, "Gemma 3")


def test_a_session_with_states_and_kill_9(ctx):
    check(ctx, "Qwen3.5")
