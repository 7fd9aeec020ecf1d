// Bounds on the work of the Markdown parser, which recurses on nested blocks and takes quadratic time on some texts. A text
// over a bound throws TooMuch, or one of its paragraphs stays unformatted; all other texts are parsed as marked does it. The
// bounds count characters, not time, so the result does not depend on the machine.

const max_text = 500_000;       // characters of a text
const max_depth = 20;           // quotes and lists in each other, and emphasis in each other
const max_paragraph = 20_000;   // characters of a paragraph that is formatted
const max_word = 1_000;         // characters of a word in a paragraph that is formatted
const max_work = 50_000_000;    // characters that the parser looks at again; 0.2 to 1 s of a CPU

export class TooMuch extends Error {}

// The cost of runs that regular expressions retry from each of their characters.
function squares(text, runs) {
  let sum = 0;
  for (const run of text.matchAll(runs)) sum += run[0].length ** 2;
  return sum;
}

function has_long_word(text) {
  for (const word of text.matchAll(/\S{100,}/g)) if (word[0].length > max_word) return true;
  return false;
}

// A paragraph as it is, with its line breaks.
function unformatted(text, tokens) {
  for (const [i, line] of text.split('\n').entries()) {
    if (i > 0) tokens.push({ type: 'br', raw: '\n' });
    tokens.push({ type: 'text', raw: line, text: line, escaped: false });
  }
  return tokens;
}

// A function from text to marked's tokens. marked: an instance of Marked, whose tokenizer is set here; Lexer: marked's class.
export function bounded_lexer(marked, Lexer) {
  let work = 0;
  let rest = 0;   // characters of the current block and of those after it
  // Each of the two is the first that marked tries at a place, with the text from there on; false: marked's own.
  marked.use({ tokenizer: {
    space(text) { rest = text.length; return false; },
    escape(text) { work += text.length; return false; },
  } });

  class Bounded extends Lexer {
    blocks = 0;
    inlines = 0;

    // after_quote: the call is from a quote, which goes through its remaining lines for each of its parts.
    blockTokens(text, tokens, after_quote) {
      const outer = rest;
      if (this.blocks > 0) work += text.length + (after_quote ? outer : 0);
      if (work > max_work || ++this.blocks > max_depth) throw new TooMuch();
      const found = super.blockTokens(text, tokens, after_quote);
      this.blocks -= 1;
      rest = outer;
      return found;
    }

    inlineTokens(text, tokens = []) {
      if (text.length <= max_paragraph) work += squares(text, /\S{100,}/g);
      if (text.length > max_paragraph || work > max_work || has_long_word(text)) return unformatted(text, tokens);
      if (++this.inlines > max_depth) throw new TooMuch();
      const found = super.inlineTokens(text, tokens);
      this.inlines -= 1;
      return found;
    }
  }

  return (text) => {
    work = squares(text, /[ \t]{100,}/g);
    if (text.length > max_text || work > max_work) throw new TooMuch();
    return new Bounded(marked.defaults).lex(text);
  };
}
