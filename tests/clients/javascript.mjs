// What javascript_test.py runs: javascript.mjs BASE MODEL. Packages of npm ask a model that says what its script has, in
// which a question about Paris leads to a call of get_weather. Prints a line for each test; ends with 1 when one fails.
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import { betaZodTool } from '@anthropic-ai/sdk/helpers/beta/zod';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, isStepCount, Output, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';

const [base, model] = process.argv.slice(2);
const QUESTION = 'Paris or Kyiv?';
const ANSWER = 'Take an umbrella ☂ to Paris.';
const City = z.object({ city: z.string() });
const weather = async () => 'RAIN';
const user = (content) => [{ role: 'user', content }];

const openai = new OpenAI({ baseURL: `${base}/v1`, apiKey: 'none', maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: base, apiKey: 'none', maxRetries: 0 });
const schema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false };
const tools = { get_weather: tool({ description: 'Weather of a city', inputSchema: City, execute: weather }) };

// The same for each provider of the AI SDK: a loop with tools, whole and streamed, and an object.
async function aiSdk(provider) {
  const loop = { model: provider, prompt: QUESTION, tools, stopWhen: isStepCount(5), maxRetries: 0, maxOutputTokens: 300 };
  const whole = await generateText(loop);
  assert.equal(whole.text, ANSWER);
  assert.equal(whole.steps.length, 2);
  assert.deepEqual(whole.steps[0].toolCalls.map((call) => call.input), [{ city: 'Paris' }, { city: 'Київ' }]);
  const streamed = streamText(loop);
  let text = '';
  for await (const piece of streamed.textStream) text += piece;
  assert.ok(text.endsWith(ANSWER), text);
  assert.ok((await streamed.totalUsage).inputTokens > 0);
  const object = await generateText({ model: provider, prompt: 'Where, as JSON?', output: Output.object({ schema: City }), maxRetries: 0,
                                      maxOutputTokens: 300 });
  assert.deepEqual(object.output, { city: 'Paris' });
}

const tests = {
  async openai_stream() {
    const stream = openai.chat.completions.stream({ model, messages: user('Hello') });
    assert.equal((await stream.finalChatCompletion()).choices[0].message.content, 'Good day.');
  },
  async openai_run_tools() {
    const runner = openai.chat.completions.runTools({ model, messages: user(QUESTION), tools: [{ type: 'function', function: {
      name: 'get_weather', description: 'Weather of a city', parameters: schema, parse: JSON.parse, function: weather } }] });
    assert.equal(await runner.finalContent(), ANSWER);
  },
  async openai_parse() {
    const r = await openai.chat.completions.parse({ model, messages: user('Where, as JSON?'), response_format: zodResponseFormat(City, 'city') });
    assert.deepEqual(r.choices[0].message.parsed, { city: 'Paris' });
  },
  async openai_responses() {
    assert.equal((await openai.responses.create({ model, input: 'Hello' })).output_text, 'Good day.');
    const stream = openai.responses.stream({ model, input: 'Hello' });
    assert.equal((await stream.finalResponse()).output_text, 'Good day.');
  },
  async openai_errors() {
    await assert.rejects(openai.chat.completions.create({ model: 'other', messages: user('Hello') }), OpenAI.NotFoundError);
    await assert.rejects(openai.chat.completions.create({ model, messages: user('Hello'), temperature: 9 }), OpenAI.BadRequestError);
  },
  async anthropic_stream() {
    const stream = anthropic.messages.stream({ model, max_tokens: 50, messages: user('Hello') });
    let text = '';
    stream.on('text', (piece) => { text += piece; });
    const message = await stream.finalMessage();
    assert.equal(message.content[0].text, 'Good day.');
    assert.equal(text, 'Good day.');
    assert.equal(message.stop_reason, 'end_turn');
  },
  async anthropic_tool_runner() {
    for (const stream of [false, true]) {
      const runner = anthropic.beta.messages.toolRunner({ model, max_tokens: 300, stream, messages: user(QUESTION), tools: [
        betaZodTool({ name: 'get_weather', description: 'Weather of a city', inputSchema: City, run: weather })] });
      const message = await runner.runUntilDone();
      assert.equal(message.content.at(-1).text, ANSWER);
    }
  },
  async anthropic_count_and_errors() {
    assert.ok((await anthropic.messages.countTokens({ model, messages: user('Hello') })).input_tokens > 0);
    await assert.rejects(anthropic.messages.create({ model: 'other', max_tokens: 5, messages: user('Hello') }), Anthropic.NotFoundError);
    await assert.rejects(anthropic.messages.create({ model, max_tokens: -5, messages: user('Hello') }), Anthropic.BadRequestError);
  },
  ai_sdk_chat: () => aiSdk(createOpenAI({ baseURL: `${base}/v1`, apiKey: 'none' }).chat(model)),
  ai_sdk_responses: () => aiSdk(createOpenAI({ baseURL: `${base}/v1`, apiKey: 'none' }).responses(model)),
  ai_sdk_messages: () => aiSdk(createAnthropic({ baseURL: `${base}/v1`, apiKey: 'none' })(model)),
};

for (const [name, test] of Object.entries(tests)) {
  try {
    await test();
    console.log(`ok   ${name}`);
  } catch (e) {
    process.exitCode = 1;
    console.log(`FAIL ${name} ${e.stack} ${e.responseBody ?? ''} ${JSON.stringify(e.requestBodyValues ?? '')}`);
  }
}
