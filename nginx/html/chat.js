// The chat page: keeps one conversation, sends it to /v1/chat/completions and shows the answer as it streams.
// Text of the model or the user reaches the page through textContent only, never as markup.
'use strict';

const $ = (id) => document.getElementById(id);
const history_key = 'infcgi.history';
const settings_key = 'infcgi.settings';
const api_key = 'infcgi.key';

let messages = [];     // {role, content}
let running = null;    // AbortController while an answer streams
let model = null;      // id of the served model
const settings = { system: '', temperature: null, max_tokens: null }; // null: the server's

// --- storage: the page works without it (private windows may refuse) -------------------------------------------

function stored(store, key) {
  try { return JSON.parse(store.getItem(key)); } catch { return null; }
}

function keep(store, key, value) {
  try { store.setItem(key, JSON.stringify(value)); } catch { /* full or refused: the page goes on */ }
}

function load() {
  const h = stored(localStorage, history_key);
  if (Array.isArray(h)) {
    messages = h.filter((m) => m && (m.role === 'user' || m.role === 'assistant') && typeof m.content === 'string');
  }
  const s = stored(localStorage, settings_key) || {};
  if (typeof s.system === 'string') settings.system = s.system;
  if (typeof s.temperature === 'number' && s.temperature >= 0 && s.temperature <= 2) settings.temperature = s.temperature;
  if (Number.isInteger(s.max_tokens) && s.max_tokens > 0) settings.max_tokens = s.max_tokens;
}

// --- drawing -----------------------------------------------------------------------------------------------------

function el(tag, class_name, text) {
  const e = document.createElement(tag);
  if (class_name) e.className = class_name;
  if (text !== undefined) e.textContent = text;
  return e;
}

function copy_button(text_of) {
  const b = el('button', '', 'Copy');
  b.type = 'button';
  b.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(text_of());
      b.textContent = 'Copied';
    } catch {
      b.textContent = 'Not allowed';
    }
    setTimeout(() => { b.textContent = 'Copy'; }, 1500);
  });
  return b;
}

// Splits text at ``` fences: {code: bool, language, text}. An open fence at the end is code still being written.
function blocks(text) {
  const out = [];
  let block = { code: false, lines: [] };
  const flush = () => {
    const t = block.lines.join('\n');
    if (block.code || t.trim() !== '') out.push({ code: block.code, language: block.language, text: t });
  };
  for (const line of text.split('\n')) {
    const fence = line.match(/^\s*```+\s*([\w+#.-]*)/);
    if (fence && (!block.code || fence[1] === '')) {
      flush();
      block = { code: !block.code, language: fence[1], lines: [] };
    } else {
      block.lines.push(line);
    }
  }
  flush();
  return out;
}

// `code` within a paragraph; the rest stays plain.
function paragraph(text) {
  const p = el('p');
  text.split(/(`[^`\n]+`)/).forEach((part, i) => {
    p.append(i % 2 ? el('code', '', part.slice(1, -1)) : part);
  });
  return p;
}

function draw_text(target, text) {
  const nodes = [];
  for (const b of blocks(text)) {
    if (!b.code) {
      nodes.push(...b.text.split(/\n{2,}/).filter((t) => t.trim() !== '').map(paragraph));
      continue;
    }
    const box = el('div', 'code');
    const bar = el('div', 'bar');
    bar.append(el('span', '', b.language || 'code'), copy_button(() => b.text));
    const pre = el('pre');
    pre.tabIndex = 0;
    pre.append(el('code', '', b.text));
    box.append(bar, pre);
    nodes.push(box);
  }
  target.replaceChildren(...nodes);
}

// What the model thinks, folded, and what it says.
function draw_message(shown, message) {
  shown.thinking.hidden = !message.reasoning_content;
  draw_text(shown.thoughts, message.reasoning_content || '');
  draw_text(shown.text, message.content);
}

function add_message(message) {
  $('hello').hidden = true;
  const box = el('article', `message ${message.role}`);
  const thinking = el('details', 'thinking');
  const thoughts = el('div', 'thoughts');
  const text = el('div', 'text');
  const tools = el('div', 'tools');
  const shown = { box, thinking, thoughts, text, tools };
  thinking.append(el('summary', '', 'Thinking'), thoughts);
  box.append(el('div', 'who', message.role === 'user' ? 'You' : 'Assistant'), thinking, text, tools);
  if (message.role === 'user') tools.hidden = true;
  draw_message(shown, message);
  tools.append(copy_button(() => message.content));
  $('log').append(box);
  return shown;
}

function draw_all() {
  for (const m of document.querySelectorAll('.message')) m.remove();
  $('hello').hidden = messages.length > 0;
  messages.forEach(add_message);
  $('log').scrollTop = $('log').scrollHeight;
}

// Follows the end of the text unless the reader has scrolled up.
function is_at_end() {
  const log = $('log');
  return log.scrollHeight - log.scrollTop - log.clientHeight < 80;
}

function show_error(text) {
  $('error').textContent = text || '';
  $('error').hidden = !text;
}

function set_running(on) {
  $('send').hidden = on;
  $('stop').hidden = !on;
  $('log').setAttribute('aria-busy', String(on));
}

// --- talking to the server ---------------------------------------------------------------------------------------

function headers() {
  const h = { 'Content-Type': 'application/json' };
  const key = stored(sessionStorage, api_key);
  if (key) h.Authorization = `Bearer ${key}`;
  return h;
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

function request_body() {
  const all = settings.system.trim() ? [{ role: 'system', content: settings.system }] : [];
  const body = {
    messages: all.concat(messages), stream: true, stream_options: { include_usage: true },
  };
  if (settings.temperature !== null) body.temperature = settings.temperature;
  if (model) body.model = model;
  if (settings.max_tokens) body.max_completion_tokens = settings.max_tokens;
  return JSON.stringify(body);
}

// "12 tokens · 83.1 tokens/s · first after 0.05 s". Usage counts when it came, events until then.
function stats_text(run, now) {
  const tokens = run.usage ? run.usage.completion_tokens : run.events;
  const seconds = (now - run.first) / 1000;
  const speed = tokens > 1 && seconds > 0 ? ` · ${((tokens - 1) / seconds).toFixed(1)} tokens/s` : '';
  const first = run.first ? ` · first after ${((run.first - run.start) / 1000).toFixed(2)} s` : '';
  return `${tokens} tokens${speed}${first}`;
}

// Streams one answer into `message`. Returns what to tell the user, or '' when all went well.
async function answer(message, shown, run) {
  const response = await fetch('/v1/chat/completions', {
    method: 'POST', headers: headers(), body: request_body(), signal: running.signal,
  });
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
    const { content = '', reasoning_content: thought = '' } = choice.delta || {};
    if (!content && !thought) return;
    run.first ||= performance.now();
    run.last = performance.now();
    run.events += 1;
    message.content += content || '';
    if (thought) message.reasoning_content = (message.reasoning_content || '') + thought;
    shown.dirty = true;
  });
  if (problem) return problem;
  return ended ? '' : 'The answer broke off: the connection ended early.';
}

// Draws at most once a frame, however fast the tokens come.
function start_drawing(message, shown, run) {
  let frame = 0;
  const draw = () => {
    if (shown.dirty) {
      const follow = is_at_end();
      draw_message(shown, message);
      $('stats').textContent = stats_text(run, run.last);
      if (follow) $('log').scrollTop = $('log').scrollHeight;
      shown.dirty = false;
    }
    frame = requestAnimationFrame(draw);
  };
  frame = requestAnimationFrame(draw);
  return () => cancelAnimationFrame(frame);
}

async function send(text) {
  show_error('');
  const question = { role: 'user', content: text };
  messages.push(question);
  const asked = add_message(question);
  const message = { role: 'assistant', content: '' };
  const shown = add_message(message);
  shown.box.classList.add('running');
  $('log').scrollTop = $('log').scrollHeight;

  const run = { start: performance.now(), first: 0, last: 0, events: 0, usage: null, finish: null };
  const mine = new AbortController();
  running = mine;
  set_running(true);
  $('status').textContent = 'Answering';
  const stop_drawing = start_drawing(message, shown, run);
  let problem = '';
  let note = '';
  try {
    problem = await answer(message, shown, run);
    if (run.finish === 'length') note = 'cut at the longest answer';
  } catch (e) {
    if (e.name === 'AbortError') note = 'stopped';
    else problem = e instanceof SyntaxError ? 'The server sent something that is not JSON.' : 'The server cannot be reached.';
  }
  stop_drawing();
  if (running !== mine) return;   // a new chat was begun meanwhile
  running = null;
  set_running(false);
  shown.box.classList.remove('running');
  finish(question, asked, message, shown, problem);
  if (run.first) $('stats').textContent = stats_text(run, run.last) + (note ? ` · ${note}` : '');
  else $('stats').textContent = note;
  $('status').textContent = problem ? '' : `Answer complete. ${message.content.slice(0, 2000)}`;
  $('input').focus();
}

// Keeps what came; gives the question back to the input when nothing did.
function finish(question, asked, message, shown, problem) {
  show_error(problem);
  if (message.content || message.reasoning_content) {
    draw_message(shown, message);
    messages.push(message);
  } else {
    shown.box.remove();
    asked.box.remove();
    messages.splice(messages.indexOf(question), 1);
    if (!$('input').value) $('input').value = question.content;
    $('hello').hidden = messages.length > 0;
    fit_input();
  }
  keep(localStorage, history_key, messages);
}

async function find_model() {
  try {
    const response = await fetch('/v1/models', { headers: headers() });
    if (!response.ok) {
      $('model').textContent = response.status === 401 ? 'needs an API key' : 'not ready';
      return response.status === 503 || response.status === 502 ? setTimeout(find_model, 1000) : undefined;
    }
    model = (await response.json()).data[0].id;
    $('model').textContent = model;
    $('model').title = model;
  } catch {
    $('model').textContent = 'not reachable';
    setTimeout(find_model, 2000);
  }
}

// --- wiring ------------------------------------------------------------------------------------------------------

function stop() {
  if (running) running.abort();
}

function new_chat() {
  stop();
  running = null;
  set_running(false);
  messages = [];
  keep(localStorage, history_key, messages);
  show_error('');
  $('stats').textContent = '';
  draw_all();
  $('input').focus();
}

function fit_input() {
  const input = $('input');
  input.style.height = 'auto';
  input.style.height = `${input.scrollHeight + 2}px`;
}

function submit() {
  const text = $('input').value.trim();
  if (!text || running) return;
  $('input').value = '';
  fit_input();
  send(text);
}

function wire_settings() {
  const save = () => {
    settings.system = $('system').value;
    const t = Number.parseFloat($('temperature').value);
    settings.temperature = t >= 0 && t <= 2 ? t : null;
    const n = Number.parseInt($('max-tokens').value, 10);
    settings.max_tokens = n > 0 ? n : null;
    keep(localStorage, settings_key, settings);
  };
  $('system').value = settings.system;
  $('temperature').value = settings.temperature ?? '';
  $('max-tokens').value = settings.max_tokens || '';
  $('key').value = stored(sessionStorage, api_key) || '';
  for (const id of ['system', 'temperature', 'max-tokens']) $(id).addEventListener('input', save);
  $('key').addEventListener('change', () => {
    keep(sessionStorage, api_key, $('key').value.trim());
    find_model();
  });
  $('settings-open').addEventListener('click', () => $('settings').showModal());
  $('settings').addEventListener('close', () => $('input').focus());
}

load();
wire_settings();
draw_all();
find_model();
$('form').addEventListener('submit', (e) => { e.preventDefault(); submit(); });
$('input').addEventListener('input', fit_input);
$('input').addEventListener('keydown', (e) => {
  if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); submit(); }
});
document.addEventListener('keydown', (e) => {
  if (e.key === 'Escape' && running && !$('settings').open) { e.preventDefault(); stop(); }
});
$('stop').addEventListener('click', stop);
$('new').addEventListener('click', new_chat);
