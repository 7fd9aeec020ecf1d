// Text files that go with the next question: chosen, dropped or pasted; shown as chips.
import { button, el } from './markdown.js';

const max_file_bytes = 256 * 1024;
const max_bytes = 1024 * 1024;
const max_files = 20;

let files = [];   // {name, text}
let chips = null;
let on_problem = null;

// Of a file that is no text, or too large, throws why.
async function read(file) {
  if (file.size > max_file_bytes) throw new Error(`${file.name} is larger than ${max_file_bytes / 1024} KiB.`);
  const bytes = await file.arrayBuffer();
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    if (!text.includes('\0')) return { name: file.name, text };
  } catch { /* not UTF-8 */ }
  throw new Error(`${file.name} is not a text file: the model reads text alone.`);
}

export function draw_chips(target, list, on_remove) {
  target.replaceChildren(...list.map((f, i) => {
    const chip = el('li', 'chip');
    chip.append(el('span', '', f.name));
    chip.title = `${f.text.length} characters`;
    if (on_remove) {
      const b = button('×', () => on_remove(i));
      b.setAttribute('aria-label', `Remove ${f.name}`);
      chip.append(b);
    }
    return chip;
  }));
  target.hidden = list.length === 0;
}

export function set(list) {
  files = list;
  draw_chips(chips, files, (i) => {
    set(files.filter((_, k) => k !== i));
    document.getElementById('input').focus();
  });
}

export function take() {
  const taken = files;
  set([]);
  return taken;
}

export const count = () => files.length;

async function add(list) {
  on_problem('');
  for (const file of list) {
    try {
      const read_file = await read(file);
      const bytes = files.reduce((n, f) => n + f.text.length, read_file.text.length);
      if (files.length >= max_files || bytes > max_bytes) throw new Error(`${file.name} is too much: ${max_files} files and 1 MiB go with a question.`);
      set([...files, read_file]);
    } catch (e) {
      on_problem(e.message);
    }
  }
}

// on_error(text) is told why a file was not taken.
export function wire(on_error) {
  chips = document.getElementById('chips');
  on_problem = on_error;
  const input = document.getElementById('files');
  const has_files = (e) => [...e.dataTransfer.types].includes('Files');
  document.getElementById('attach').addEventListener('click', () => input.click());
  input.addEventListener('change', async () => {
    const chosen = [...input.files];
    input.value = '';   // the same one may be chosen again
    await add(chosen);
    document.getElementById('input').focus();
  });
  document.addEventListener('dragover', (e) => {
    if (!has_files(e)) return;
    e.preventDefault();
    document.body.classList.add('dropping');
  });
  document.addEventListener('dragleave', (e) => {
    if (!e.relatedTarget) document.body.classList.remove('dropping');
  });
  document.addEventListener('drop', (e) => {
    document.body.classList.remove('dropping');
    if (!has_files(e)) return;
    e.preventDefault();   // else the browser opens the file
    add(e.dataTransfer.files);
  });
  document.addEventListener('paste', (e) => {
    if (e.clipboardData.files.length === 0) return;
    e.preventDefault();
    add(e.clipboardData.files);
  });
}
