// Talks to the server: the model's name, and answers as they stream.

export function headers(key) {
  return { 'Content-Type': 'application/json', ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

// What went wrong, in a sentence, from an answer that is not 2xx.
async function http_error(response) {
  let said = null;
  try { said = (await response.json()).error.message; } catch { /* not ours */ }
  if (response.status === 401) return `${said || 'An API key is needed.'} Set it under Settings.`;
  const wait = response.headers.get('Retry-After');
  return `${said || `The server answered ${response.status}.`}${wait ? ` Try again in ${wait} s.` : ''}`;
}

// Calls on_event(object) for each `data:` event; true when the stream was closed by [DONE]. Lines may be split anywhere.
async function read_events(body, on_event) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return false;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    for (const raw of lines) {
      const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
      if (!line.startsWith('data:')) continue;   // comments, blank lines
      const data = line.slice(5).trim();
      if (data === '[DONE]') return true;
      on_event(JSON.parse(data));
    }
  }
}

// A file's text in a fence that nothing within it closes.
function fenced(file) {
  const longest = Math.max(2, ...[...file.text.matchAll(/`+/g)].map((m) => m[0].length));
  const fence = '`'.repeat(longest + 1);
  const kind = /\.([A-Za-z0-9]{1,10})$/.exec(file.name);
  return `${file.name}:\n${fence}${kind ? kind[1] : ''}\n${file.text.replace(/\n$/, '')}\n${fence}\n\n`;
}

function as_sent(m) {
  if (!m.files) return m;
  const { files, ...rest } = m;
  return { ...rest, content: files.map(fenced).join('') + m.content };
}

export function request_body(settings, messages, model) {
  const all = settings.system.trim() ? [{ role: 'system', content: settings.system }] : [];
  return JSON.stringify({
    messages: all.concat(messages.map(as_sent)),
    stream: true,
    stream_options: { include_usage: true },
    ...(settings.temperature !== null && { temperature: settings.temperature }),
    ...(settings.max_tokens && { max_completion_tokens: settings.max_tokens }),
    ...(settings.tools.length > 0 && { tools: settings.tools }),
    ...(model && { model }),
  });
}

function add_call(message, delta) {
  message.tool_calls ||= [];
  const call = message.tool_calls[delta.index] ||= { id: '', type: 'function', function: { name: '', arguments: '' } };
  if (delta.id) call.id = delta.id;
  call.function.name += delta.function?.name || '';
  call.function.arguments += delta.function?.arguments || '';
}

// Streams one answer into `message`, and its figures into `run`; calls on_change when the message grew. Returns what to
// tell the user, or '' when all went well. Throws as fetch does.
export async function answer(message, run, { body, key, signal, on_change }) {
  const response = await fetch('/v1/chat/completions', { method: 'POST', headers: headers(key), body, signal });
  if (!response.ok) return http_error(response);
  let problem = '';
  const ended = await read_events(response.body, (event) => {
    if (event.error) problem = event.error.message || 'The engine reported an error.';
    if (event.usage) run.usage = event.usage;
    const choice = event.choices && event.choices[0];
    if (!choice) return;
    if (choice.finish_reason) {
      run.finish = choice.finish_reason;
      run.last = performance.now();
    }
    const { content, reasoning_content: thought, tool_calls: calls } = choice.delta || {};
    if (!content && !thought && !calls) return;
    run.first ||= performance.now();
    run.last = performance.now();
    run.events += 1;
    if (content) message.content += content;
    if (thought) message.reasoning_content = (message.reasoning_content || '') + thought;
    for (const call of calls || []) add_call(message, call);
    on_change();
  });
  if (problem) return problem;
  return ended ? '' : 'The answer broke off: the connection ended early.';
}

// {model}, or {why, again}: why there is none, and after how many milliseconds to ask again, if at all.
export async function find_model(key) {
  try {
    const response = await fetch('/v1/models', { headers: headers(key) });
    if (response.status === 401) return { why: 'needs an API key' };
    if (!response.ok) return { why: 'not ready', again: response.status === 502 || response.status === 503 ? 1000 : 0 };
    return { model: (await response.json()).data[0].id };
  } catch {
    return { why: 'not reachable', again: 2000 };
  }
}
