"""An agent's session (replay.py) computes almost nothing twice, although the engine is killed three times: with a model with recurrent
layers, and one with windows. `make replay` runs it without kills, and with a model that gives real answers."""
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
