// The nodes of a message and of the list of conversations.
import { Growing, button, code_box, copy_button, el, show } from './markdown.js';
import { draw_chips } from './files.js';

const who = { user: 'You', assistant: 'Assistant' };

function pretty(json) {
  try { return JSON.stringify(JSON.parse(json), null, 2); } catch { return json; }
}

function draw_calls(target, calls) {
  target.replaceChildren(...(calls || []).filter(Boolean).map((c) => {
    const call = el('details', 'call');
    call.open = true;
    call.append(el('summary', '', `Calls ${c.function.name}`), code_box('arguments', pretty(c.function.arguments)));
    return call;
  }));
}

// A message on the page. `running`: its text still grows, until end().
export class MessageView {
  constructor(message, running) {
    this.message = message;
    this.dirty = false;
    this.box = el('article', `message ${message.role}`);
    this.thinking = el('details', 'thinking');
    this.thoughts = el('div', 'thoughts');
    this.text = el('div', 'text');
    this.calls = el('div', 'calls');
    this.tools = el('div', 'tools');
    const files = el('ul', 'chips');
    this.thinking.append(el('summary', '', 'Thinking'), this.thoughts);
    this.box.append(el('div', 'who', who[message.role] || `Result of ${message.name}`), files, this.thinking, this.text, this.calls, this.tools);
    draw_chips(files, message.files || []);
    this.tools.append(copy_button(() => message.content));
    if (running) {
      this.box.classList.add('running');
      this.growing = { text: new Growing(this.text), thoughts: new Growing(this.thoughts) };
    }
    this.draw();
  }

  draw() {
    const { role, content, reasoning_content: thought, tool_calls: calls } = this.message;
    this.dirty = false;
    this.thinking.hidden = !thought;
    if (role !== 'assistant') {
      this.text.textContent = content;
    } else if (this.growing) {
      this.growing.text.show(content);
      this.growing.thoughts.show(thought || '');
    } else {
      show(this.text, content);
      show(this.thoughts, thought || '');
    }
    draw_calls(this.calls, calls);
    this.box.classList.toggle('empty', role === 'assistant' && !this.growing && !content && !thought && !calls);
  }

  end() {
    this.growing = null;
    this.draw();
    this.box.classList.remove('running');
  }

  // Buttons after "Copy": pairs of a name and what a click calls.
  set_actions(actions) {
    for (const old of this.tools.querySelectorAll('.action')) old.remove();
    this.tools.append(...actions.map(([name, on_click]) => button(name, on_click, 'action')));
  }
}

// The conversations as a list; `acts` has open(id), rename(id, title), remove(id) and save_as(id).
export function draw_chats(target, chats, current, acts) {
  target.replaceChildren(...chats.map((chat) => {
    const row = el('li');
    const open = button(chat.title, () => acts.open(chat.id), 'title');
    if (chat.id === current) open.setAttribute('aria-current', 'true');
    const rename = button('✎', () => {
      const input = el('input');
      input.value = chat.title;
      input.setAttribute('aria-label', 'Title');
      input.maxLength = 100;
      let is_done = false;
      const done = (title) => {
        if (!is_done) {   // its removal is a blur too
          is_done = true;
          acts.rename(chat.id, title.trim() || chat.title);
        }
      };
      input.addEventListener('keydown', (e) => {
        if (e.key === 'Enter') done(input.value);
        if (e.key === 'Escape') done(chat.title);
        if (e.key === 'Enter' || e.key === 'Escape') e.preventDefault();
        e.stopPropagation();
      });
      input.addEventListener('blur', () => done(input.value));
      row.replaceChildren(input);
      input.select();
    });
    const save = button('⇩', () => acts.save_as(chat.id));
    const remove = button('✕', () => {
      if (remove.textContent === 'Delete?') return acts.remove(chat.id);
      remove.textContent = 'Delete?';
      setTimeout(() => { remove.textContent = '✕'; }, 4000);
    }, 'remove');
    for (const [b, what] of [[rename, 'Rename'], [save, 'Export'], [remove, 'Delete']]) {
      b.title = what;
      b.setAttribute('aria-label', `${what}: ${chat.title}`);
    }
    row.append(open, rename, save, remove);
    return row;
  }));
}
