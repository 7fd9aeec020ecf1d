// What the page keeps in the browser: settings and conversations in localStorage, the API key until the tab is closed.
// The page works without it: private windows may refuse, and a full store drops its oldest conversations.

const settings_key = 'infcgi.settings';
const api_key = 'infcgi.key';
const list_key = 'infcgi.chats';             // [{id, title, time}], the newest first
const current_key = 'infcgi.current';
const old_key = 'infcgi.history';            // before there were several
const chat_key = (id) => `infcgi.chat.${id}`; // its messages
const max_chats = 200;

function read(store, key) {
  try { return JSON.parse(store.getItem(key)); } catch { return null; }
}

function write(store, key, value) {
  try { store.setItem(key, JSON.stringify(value)); return true; } catch { return false; }
}

function drop(key) {
  try { localStorage.removeItem(key); } catch { /* nothing was kept */ }
}

const is_text = (x) => typeof x === 'string';

function is_file(f) {
  return f && is_text(f.name) && is_text(f.text);
}

function is_call(c) {
  return c && is_text(c.id) && c.function && is_text(c.function.name) && is_text(c.function.arguments);
}

function is_message(m) {
  if (!m || !is_text(m.content) || !['user', 'assistant', 'tool'].includes(m.role)) return false;
  if (m.role === 'tool' && !(is_text(m.tool_call_id) && is_text(m.name))) return false;
  return (!m.files || (Array.isArray(m.files) && m.files.every(is_file))) &&
    (!m.tool_calls || (Array.isArray(m.tool_calls) && m.tool_calls.every(is_call))) &&
    (!m.reasoning_content || is_text(m.reasoning_content));
}

// All of a list, or nothing: half a conversation would be another one.
function messages_of(x) {
  return Array.isArray(x) && x.every(is_message) ? x : [];
}

// --- conversations -----------------------------------------------------------------------------------------------

export function new_id() {
  return `${Date.now().toString(36)}${Math.random().toString(36).slice(2, 8)}`;
}

export function list() {
  const chats = read(localStorage, list_key);
  return Array.isArray(chats) ? chats.filter((c) => c && is_text(c.id) && is_text(c.title) && Number.isFinite(c.time)) : [];
}

export function messages(id) {
  return messages_of(read(localStorage, chat_key(id)));
}

export function remove(id) {
  drop(chat_key(id));
  write(localStorage, list_key, list().filter((c) => c.id !== id));
}

export function rename(id, title) {
  write(localStorage, list_key, list().map((c) => (c.id === id ? { ...c, title } : c)));
}

// Keeps a conversation and makes it the newest; the oldest others make room. False when it does not fit even alone.
export function save(id, title, its_messages) {
  const known = list().find((c) => c.id === id);
  const others = list().filter((c) => c.id !== id);
  const mine = { id, title: known ? known.title : title, time: Date.now() };
  const forget_oldest = () => drop(chat_key(others.pop().id));
  while (others.length >= max_chats) forget_oldest();
  while (!write(localStorage, chat_key(id), its_messages) || !write(localStorage, list_key, [mine, ...others])) {
    if (others.length === 0) return false;
    forget_oldest();
    write(localStorage, list_key, known ? [known, ...others] : others);
  }
  return true;
}

export function current() {
  const old = messages_of(read(localStorage, old_key));
  if (old.length > 0) {
    const id = new_id();
    if (save(id, old[0].content.slice(0, 60), old)) set_current(id);
  }
  drop(old_key);
  const id = read(localStorage, current_key);
  return list().some((c) => c.id === id) ? id : null;
}

export function set_current(id) {
  write(localStorage, current_key, id);
}

// --- settings and key --------------------------------------------------------------------------------------------

// temperature and max_tokens are null, and tools empty, where the server's hold.
export function settings() {
  const s = read(localStorage, settings_key) || {};
  return {
    system: is_text(s.system) ? s.system : '',
    temperature: typeof s.temperature === 'number' && s.temperature >= 0 && s.temperature <= 2 ? s.temperature : null,
    max_tokens: Number.isInteger(s.max_tokens) && s.max_tokens > 0 ? s.max_tokens : null,
    tools: Array.isArray(s.tools) ? s.tools : [],
    theme: ['light', 'dark'].includes(s.theme) ? s.theme : '',
  };
}

export function save_settings(s) {
  write(localStorage, settings_key, s);
}

export function key() {
  return read(sessionStorage, api_key) || '';
}

export function save_key(text) {
  write(sessionStorage, api_key, text);
}
