"""What agents_test.py runs: agents_run.py BASE MODEL. A line for each test; ends with 1 when one fails."""
import asyncio
import sys
import traceback

import agents
import openai
import pydantic

BASE, MODEL = sys.argv[1:]
CLIENT = openai.AsyncOpenAI(base_url=f"{BASE}/v1", api_key="none", max_retries=0)
ANSWER = "Take an umbrella ☂ to Paris."
asked = []   # calls that the model makes at once run at once, in any order


class City(pydantic.BaseModel):
    city: str


@agents.function_tool
def get_weather(city: str) -> str:
    """Weather of a city"""
    asked.append(city)
    return "RAIN"


async def tools(model):
    asked.clear()
    agent = agents.Agent(name="guide", instructions="You help travellers.", model=model, tools=[get_weather])
    result = await agents.Runner.run(agent, "Paris or Kyiv?")
    assert result.final_output == ANSWER and sorted(asked) == ["Paris", "Київ"], (result.final_output, asked)
    assert result.context_wrapper.usage.requests == 2 and result.context_wrapper.usage.output_tokens > 0


async def streamed(model):
    asked.clear()
    agent = agents.Agent(name="guide", model=model, tools=[get_weather])
    result = agents.Runner.run_streamed(agent, "Paris or Kyiv?")
    kinds, text = [], ""
    async for event in result.stream_events():
        kinds += [event.name] if event.type == "run_item_stream_event" else []
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            text += event.data.delta
    assert result.final_output == ANSWER and text.endswith(ANSWER) and sorted(asked) == ["Paris", "Київ"], (text, asked)
    assert kinds.count("tool_called") == kinds.count("tool_output") == 2, kinds


async def handoff(model):
    french = agents.Agent(name="french", handoff_description="Speaks French", model=model)
    result = await agents.Runner.run(agents.Agent(name="guide", model=model, handoffs=[french]), "Bonjour")
    assert result.last_agent.name == "french" and result.final_output == "Bonjour.", result


async def output_type(model):
    result = await agents.Runner.run(agents.Agent(name="guide", model=model, output_type=City), "Where, as JSON?")
    assert result.final_output == City(city="Paris"), result


async def main():
    agents.set_tracing_disabled(True)
    failed = False
    for api in agents.OpenAIResponsesModel, agents.OpenAIChatCompletionsModel:
        for test in tools, streamed, handoff, output_type:
            try:
                await test(api(MODEL, CLIENT))
                print(f"ok   {api.__name__} {test.__name__}")
            except Exception:  # noqa: BLE001 each is told
                failed = True
                print(f"FAIL {api.__name__} {test.__name__}\n{traceback.format_exc()}")
    return failed

sys.exit(asyncio.run(main()))
