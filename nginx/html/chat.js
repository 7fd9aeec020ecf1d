// The chat page: keeps conversations, sends one to /v1/chat/completions and shows the answer as it streams.
// What the model says reaches the page through markdown.js, and all other text through textContent; never as markup.
import * as api from './api.js';
import * as files from './files.js';
import * as store from './store.js';
import { ready } from './markdown.js';
import { MessageView, draw_chats } from './view.js';

const $ = (id) => document.getElementById(id);

const settings = store.settings();
let chat = { id: store.new_id(), messages: [] };   // {role, content}, and files, reasoning_content, tool_calls
let views = [];        // of the messages, in order
let running = null;    // while an answer streams: {abort, chat, message, kept}, the last the time when it was saved
let editing = false;   // the input holds the last question, to be asked anew
let model = null;      // id of the served model

const last_question = () => chat.messages.findLastIndex((m) => m.role === 'user');

// The first call that has no result yet: what is typed next is its result.
function pending_call() {
  const at = chat.messages.findLastIndex((m) => m.role !== 'tool');
  const results = chat.messages.slice(at + 1).map((m) => m.tool_call_id);
  return (chat.messages[at]?.tool_calls || []).find((c) => !results.includes(c.id));
}

// --- drawing -----------------------------------------------------------------------------------------------------

function add_view(message, is_running) {
  $('hello').hidden = true;
  const view = new MessageView(message, is_running);
  views.push(view);
  $('log').append(view.box);
  return view;
}

function draw_all() {
  for (const v of views) v.box.remove();
  views = [];
  $('hello').hidden = chat.messages.length > 0;
  for (const m of chat.messages) add_view(m, false);
  set_state();
  scroll_to_end();
}

function scroll_to_end() {
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

// What depends on whether an answer is running, and on what is last.
function set_state() {
  const call = running ? null : pending_call();
  $('send').hidden = !!running;
  $('stop').hidden = !running;
  $('log').setAttribute('aria-busy', String(!!running));
  $('editing').hidden = !editing;
  $('input').placeholder = call ? `Result of ${call.function.name}` : 'Message';
  const question = last_question();
  views.forEach((v, i) => {
    const actions = [];
    if (!running && i === question) actions.push(['Edit', edit_last]);
    if (!running && i === views.length - 1) {
      if (v.message.role === 'assistant') actions.push(['Regenerate', regenerate]);
      else if (!call) actions.push(['Answer', regenerate]);   // the page was left before one came
    }
    v.set_actions(actions);
  });
}

function fit_input() {
  const input = $('input');
  input.style.height = 'auto';
  input.style.height = `${input.scrollHeight + 2}px`;
}

function set_input(text, its_files) {
  $('input').value = text;
  files.set(its_files || []);
  fit_input();
}

// --- answers -----------------------------------------------------------------------------------------------------

// "12 tokens · 83.1 tokens/s · first after 0.05 s". Usage counts when it came, events until then.
function stats_text(run, now) {
  const tokens = run.usage ? run.usage.completion_tokens : run.events;
  const seconds = (now - run.first) / 1000;
  const speed = tokens > 1 && seconds > 0 ? ` · ${((tokens - 1) / seconds).toFixed(1)} tokens/s` : '';
  const first = run.first ? ` · first after ${((run.first - run.start) / 1000).toFixed(2)} s` : '';
  return `${tokens} tokens${speed}${first}`;
}

// Draws at most once a frame, and no more than a fifth of the time, however fast the tokens come and long a block is.
function start_drawing(view, run) {
  let frame = 0;
  let not_before = 0;
  const draw = () => {
    const start = performance.now();
    if (view.dirty && start >= not_before) {
      const follow = is_at_end();
      view.draw();
      $('stats').textContent = stats_text(run, run.last);
      if (follow) scroll_to_end();
      const end = performance.now();
      not_before = end + 4 * (end - start);
    }
    frame = requestAnimationFrame(draw);
  };
  frame = requestAnimationFrame(draw);
  return () => cancelAnimationFrame(frame);
}

const has_come = (m) => m.content || m.reasoning_content || m.tool_calls;

// Saves the conversation with the part of the answer that has come, so that leaving the page loses neither. A call is saved
// when it is whole. `every`: milliseconds that must have passed since the last time.
function keep_running(every) {
  if (!running || running.chat.is_deleted || performance.now() - running.kept < every) return;
  const { tool_calls: _, ...part } = running.message;
  const { id, messages } = running.chat;
  if (has_come(part)) store.save(id, title_of(messages), [...messages, part]);
  running.kept = performance.now();
}

// Answers the conversation as it is now. `undo` puts back what was before, when nothing comes because the server refused, or
// the reader stopped it. An empty answer is one too, and stays, unless it would be in the place of another (is_again).
async function answer(undo, is_again) {
  const message = { role: 'assistant', content: '' };
  const run = { start: performance.now(), first: 0, last: 0, events: 0, usage: null, finish: null };
  const abort = new AbortController();
  const mine = { abort: () => abort.abort(), chat, message, kept: performance.now() };
  const mine_chat = chat;
  const body = api.request_body(settings, chat.messages, model);
  if (!is_again) keep(chat);
  const view = add_view(message, true);
  running = mine;
  show_error('');
  set_state();
  scroll_to_end();
  $('status').textContent = 'Answering';
  const stop_drawing = start_drawing(view, run);
  let problem = '';
  let note = '';
  try {
    const on_change = () => {
      view.dirty = true;
      if (running === mine) keep_running(1000);
    };
    problem = await api.answer(message, run, { body, key: store.key(), signal: abort.signal, on_change });
    if (run.finish === 'length') note = 'cut at the longest answer';
  } catch (e) {
    if (e.name === 'AbortError') note = 'stopped';
    else problem = e instanceof SyntaxError ? 'The server sent something that is not JSON.' : 'The server cannot be reached.';
  }
  stop_drawing();
  if (chat === mine_chat && running === mine) running = null;
  if (run.finish !== 'tool_calls') delete message.tool_calls;   // half a call is none
  const is_empty = !has_come(message);
  const stays = !is_empty || (!problem && note !== 'stopped' && !is_again);
  if (is_empty && !problem && note !== 'stopped') problem = 'The answer was empty.';
  if (stays) mine_chat.messages.push(message);
  if (chat !== mine_chat) {   // another was opened meanwhile
    if (stays && !mine_chat.is_deleted) keep(mine_chat);
    return;
  }
  if (!stays) undo();
  const has_room = keep(chat);   // before it is drawn, whatever drawing does
  if (stays) view.end();
  set_state();
  if (problem || has_room) show_error(problem);
  $('stats').textContent = run.first ? stats_text(run, run.last) + (note ? ` · ${note}` : '') : note;
  $('status').textContent = problem ? '' : `Answer complete. ${message.content.slice(0, 2000)}`;
  $('input').focus();
}

// A function that brings back the conversation and the input of now.
function undo_to_now() {
  const before = [...chat.messages];
  const text = $('input').value;
  const was_editing = editing;
  return (its_files) => {
    chat.messages = before;
    editing = was_editing;
    if (!$('input').value) set_input(text, its_files);
    draw_all();
  };
}

function submit() {
  const text = $('input').value.trim();
  if ((!text && files.count() === 0) || running) return;
  const undo = undo_to_now();
  const its_files = files.take();
  const call = editing ? null : pending_call();
  if (editing) chat.messages.splice(last_question());
  const message = call ? { role: 'tool', tool_call_id: call.id, name: call.function.name, content: text } : { role: 'user', content: text };
  if (its_files.length > 0) message.files = its_files;
  const was_editing = editing;
  editing = false;
  set_input('');
  chat.messages.push(message);
  if (was_editing) draw_all();
  else add_view(message, false);
  if (call && pending_call()) {   // of several, each has a result before the model goes on
    set_state();
    keep(chat);
  } else {
    answer(() => undo(its_files));
  }
}

function regenerate() {
  if (running) return;
  const undo = undo_to_now();
  const was_answered = chat.messages.at(-1).role === 'assistant';
  if (was_answered) chat.messages.pop();
  draw_all();
  answer(() => undo([]), was_answered);
}

function edit_last() {
  const question = chat.messages[last_question()];
  editing = true;
  set_input(question.content, question.files);
  set_state();
  $('input').focus();
}

function stop_editing() {
  editing = false;
  set_input('');
  set_state();
  $('input').focus();
}

function stop() {
  if (running) running.abort();
}

// --- conversations -----------------------------------------------------------------------------------------------

function title_of(messages) {
  const first = messages[0];
  return (first.content || first.files?.[0]?.name || '').replace(/\s+/g, ' ').slice(0, 60);
}

// False, and an error is shown, when the browser has no room for it.
function keep(which) {
  let has_room = true;
  if (which.messages.length > 0) {
    has_room = store.save(which.id, title_of(which.messages), which.messages);
    if (!has_room) show_error('The browser has no room to keep this conversation.');
    if (which === chat) store.set_current(chat.id);
  } else {
    store.remove(which.id);
  }
  draw_list();
  return has_room;
}

function draw_list() {
  draw_chats($('chat-list'), store.list(), chat.id, {
    open: open_chat,
    rename(id, title) { store.rename(id, title); draw_list(); },
    remove(id) {
      store.remove(id);
      if (id === chat.id) {
        chat.is_deleted = true;
        open_chat(null);
      }
      draw_list();
    },
    save_as,
  });
}

// id: null for a new one.
function open_chat(id) {
  keep_running(0);   // it may be this one
  stop();
  running = null;
  editing = false;
  chat = { id: id || store.new_id(), messages: id ? store.messages(id) : [] };
  store.set_current(id);
  show_error('');
  set_input('');
  $('stats').textContent = '';
  draw_all();
  draw_list();
  if (!is_wide.matches) show_chats(false);
  $('input').focus();
}

function save_as(id) {
  const { title, time } = store.list().find((c) => c.id === id);
  const text = JSON.stringify({ title, time: new Date(time).toISOString(), model, messages: store.messages(id) }, null, 2);
  const a = document.createElement('a');
  a.href = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  a.download = `${title.replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '') || 'conversation'}.json`;
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 1000);
}

const is_wide = window.matchMedia('(min-width: 64rem)');

function show_chats(on) {
  $('chats').hidden = !on;
  $('chats-open').setAttribute('aria-expanded', String(on));
}

// --- settings ----------------------------------------------------------------------------------------------------

function read_tools() {
  let tools = [];
  try { tools = JSON.parse($('tools').value.trim() || '[]'); } catch { tools = null; }
  $('tools').setCustomValidity(Array.isArray(tools) ? '' : 'Expected a JSON array of tools.');
  return Array.isArray(tools) ? tools : settings.tools;
}

function save_settings() {
  const t = Number.parseFloat($('temperature').value);
  const n = Number.parseInt($('max-tokens').value, 10);
  settings.system = $('system').value;
  settings.temperature = t >= 0 && t <= 2 ? t : null;
  settings.max_tokens = n > 0 ? n : null;
  settings.tools = read_tools();
  settings.theme = $('theme').value;
  document.documentElement.dataset.theme = settings.theme;
  store.save_settings(settings);
}

async function find_model() {
  const { model: found = null, why, again } = await api.find_model(store.key());
  model = found;
  $('model').textContent = found || why;
  $('model').title = found || '';
  if (again) setTimeout(find_model, again);
}

function wire_settings() {
  $('system').value = settings.system;
  $('temperature').value = settings.temperature ?? '';
  $('max-tokens').value = settings.max_tokens || '';
  $('tools').value = settings.tools.length > 0 ? JSON.stringify(settings.tools, null, 1) : '';
  $('theme').value = settings.theme;
  $('key').value = store.key();
  document.documentElement.dataset.theme = settings.theme;
  for (const id of ['system', 'temperature', 'max-tokens', 'tools', 'theme']) $(id).addEventListener('input', save_settings);
  $('key').addEventListener('change', () => {
    store.save_key($('key').value.trim());
    find_model();
  });
  $('settings-open').addEventListener('click', () => $('settings').showModal());
  $('settings').addEventListener('close', () => $('input').focus());
}

function wire() {
  wire_settings();
  files.wire(show_error);
  $('form').addEventListener('submit', (e) => { e.preventDefault(); submit(); });
  $('input').addEventListener('input', fit_input);
  $('input').addEventListener('keydown', (e) => {
    if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); submit(); }
  });
  document.addEventListener('keydown', (e) => {
    if (e.key !== 'Escape' || $('settings').open || !(running || editing)) return;
    e.preventDefault();
    if (running) stop();
    else stop_editing();
  });
  $('stop').addEventListener('click', stop);
  $('edit-cancel').addEventListener('click', stop_editing);
  $('new').addEventListener('click', () => open_chat(null));
  $('chats-open').addEventListener('click', () => show_chats($('chats').hidden));
  is_wide.addEventListener('change', () => show_chats(is_wide.matches));
  window.addEventListener('storage', draw_list);   // another tab's
  window.addEventListener('pagehide', () => keep_running(0));
}

wire();
show_chats(is_wide.matches);
find_model();
$('plain').hidden = await ready;
open_chat(store.current());
