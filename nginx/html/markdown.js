// Markdown of a model becomes nodes of the page: marked parses it, DOMPurify lets through the tags and attributes below and
// no others. HTML within the Markdown is shown as the text that it is. Without the two (nginx/page.sh) text stays plain, and so
// does a text that the parser cannot take (bounds.js).
import { bounded_lexer } from './bounds.js';

let marked = null;
let lex = null;      // marked's tokens of a text; throws
let purify = null;

const allowed = {
  ALLOWED_TAGS: ['a', 'blockquote', 'br', 'code', 'del', 'em', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'hr', 'li', 'ol', 'p', 'pre',
    'strong', 'table', 'tbody', 'td', 'th', 'thead', 'tr', 'ul'],
  ALLOWED_ATTR: ['align', 'class', 'href', 'start', 'title'],
  ADD_URI_SAFE_ATTR: ['align', 'start'],   // their values are no addresses, which ALLOWED_URI_REGEXP would ask for
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  RETURN_DOM_FRAGMENT: true,
};

function escaped(text) {
  return text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
}

// An image would be fetched from where the model likes, with what it likes in the address: a link, for the reader to follow.
const renderer = {
  html: ({ text, block }) => (block ? `<p>${escaped(text.trim())}</p>\n` : escaped(text)),
  image: ({ href, text }) => `<a href="${escaped(href)}">${escaped(text || href)}</a>`,
  checkbox: ({ checked }) => (checked ? '☑ ' : '☐ '),
};

// Resolves when the libraries are there, or known not to be: to whether they are.
export const ready = (async () => {
  try {
    const [{ Lexer, Marked }, { default: DOMPurify }] = await Promise.all([import('./lib/marked.js'), import('./lib/purify.js')]);
    DOMPurify.addHook('afterSanitizeAttributes', (node) => {
      if (node.nodeName !== 'A') return;
      node.setAttribute('target', '_blank');
      node.setAttribute('rel', 'noopener noreferrer nofollow');
    });
    marked = new Marked({ gfm: true, breaks: true, renderer });
    lex = bounded_lexer(marked, Lexer);
    purify = DOMPurify;
  } catch { /* plain text */ }
  return purify !== null;
})();

export function el(tag, class_name, text) {
  const e = document.createElement(tag);
  if (class_name) e.className = class_name;
  if (text !== undefined) e.textContent = text;
  return e;
}

export function button(text, on_click, class_name) {
  const b = el('button', class_name, text);
  b.type = 'button';
  b.addEventListener('click', on_click);
  return b;
}

export function copy_button(text_of) {
  const b = button('Copy', async () => {
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

// Code in a box with its language and a button. Its text is that of the box's `code`.
export function code_box(language, text) {
  const box = el('div', 'code');
  const bar = el('div', 'bar');
  const pre = el('pre');
  const code = el('code');
  code.append(text);
  pre.tabIndex = 0;
  pre.append(code);
  bar.append(el('span', '', language || 'code'), copy_button(() => code.textContent));
  box.append(bar, pre);
  return box;
}

// The nodes of some HTML that are harmless.
export function clean(html) {
  const nodes = purify.sanitize(html, allowed);
  for (const pre of nodes.querySelectorAll('pre')) {
    const name = /language-([\w+#.-]+)/.exec(pre.firstElementChild?.className || '');
    pre.replaceWith(code_box(name ? name[1] : '', pre.textContent.replace(/\n$/, '')));
  }
  for (const table of nodes.querySelectorAll('table')) {   // which may be wider than the page
    const box = el('div', 'table');
    box.tabIndex = 0;
    table.replaceWith(box);
    box.append(table);
  }
  return nodes;
}

function nodes_of(tokens) {
  return clean(marked.parser(tokens).trim());
}

// All of a text as nodes; null: it stays plain, as without the libraries, or because it is over a bound. Whatever else the
// libraries throw, as when the stack is full, must not keep the text from the reader.
function parsed(text) {
  if (!marked) return null;
  try { return nodes_of(lex(text)); } catch { return null; }
}

// All of a text at once.
export function show(target, text) {
  const nodes = parsed(text);
  target.classList.toggle('plain', !nodes);
  target.replaceChildren(nodes || text);
}

// Text that grows, shown in `target`. What stands before its last block stays as it is, so that an answer of many blocks
// costs its length, not the length for each token; a fence that is open is not parsed at all, its lines are appended.
// At the end all is parsed once more, since a link can be defined after its use.
export class Growing {
  constructor(target) {
    this.target = target;
    this.text = '';
    this.settled = 0;   // characters that will not be parsed again before the end
    this.open = null;   // {end, node}: of a fence, what ends it, and its text
    this.plain = null;  // the node of a text that is not parsed
    this.tail = el('div', 'tail');
    target.replaceChildren(this.tail);
  }

  // text: all of it, which begins with what was shown before.
  show(text) {
    const from = this.text.length;
    this.text = text.includes('\r') ? text.replaceAll('\r', '') : text;   // as marked counts
    if (this.plain) return this.plain.appendData(this.text.slice(from));
    if (!marked) return this.show_plain();
    try {
      if (this.open && !this.show_code()) return;
      this.show_blocks();
    } catch {   // as in parsed()
      this.show_plain();
    }
  }

  show_plain() {
    this.plain = document.createTextNode(this.text);
    this.target.classList.add('plain');
    this.target.replaceChildren(this.plain);
  }

  // Appends what came to the open fence. True when it is closed now.
  show_code() {
    const { end, node } = this.open;
    const shown = this.settled;
    end.lastIndex = this.settled;
    const found = end.exec(this.text);
    // A last line that may become the fence's end waits.
    const line = this.text.lastIndexOf('\n') + 1;
    const until = found ? found.index : /^ {0,3}[`~]*[ \t]*$/.test(this.text.slice(line)) ? line : this.text.length;
    node.appendData(this.text.slice(shown, Math.max(shown, until)));
    this.settled = found ? end.lastIndex : Math.max(shown, until);
    if (!found) return false;
    node.data = node.data.replace(/\n$/, '');
    this.open = null;
    return true;
  }

  show_blocks() {
    const rest = this.text.slice(this.settled);
    const tokens = lex(rest);
    let last = tokens.length - 1;
    while (last > 0 && tokens[last].type === 'space') last -= 1;
    const before = tokens.slice(0, Math.max(0, last));
    if (before.length > 0) {
      before.links = tokens.links;
      this.tail.before(nodes_of(before));
      this.settled += before.reduce((n, t) => n + t.raw.length, 0);
    }
    const now = tokens.slice(Math.max(0, last));
    const fence = now[0]?.type === 'code' && /^( {0,3})(`{3,}|~{3,})([^\n]*)\n/.exec(now[0].raw);
    if (fence && this.text.startsWith(now[0].raw, this.settled)) {
      const is_closed = new RegExp(`\\n {0,3}${fence[2]}+[ \\t]*(?:\\n|$)`).test(now[0].raw);
      if (!is_closed) return this.begin_code(fence);
    }
    now.links = tokens.links;
    this.tail.replaceChildren(now.length > 0 ? nodes_of(now) : '');
  }

  begin_code(fence) {
    const box = code_box(fence[3].trim().split(/\s/)[0], '');
    const node = document.createTextNode('');
    box.querySelector('code').replaceChildren(node);
    this.tail.before(box);
    this.tail.replaceChildren();
    this.settled += fence[0].length;
    this.open = { node, end: new RegExp(`^ {0,3}${fence[2]}+[ \\t]*\\n`, 'gm') };
    if (this.show_code()) this.show_blocks();
  }

  end() {
    show(this.target, this.text);
  }
}
