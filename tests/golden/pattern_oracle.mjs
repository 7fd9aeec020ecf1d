// Random patterns of ECMA-262 with edges of words, look-ahead, anchors and properties of characters, and strings that Node's RegExp
// (flag u) judges: files of MaskBench's form, which maskbench then reads.
//
//     node pattern_oracle.mjs SEED N FOLDER
//
// Each pattern is a schema's, found anywhere in a string; of each fourth one the schema asks for the complement. Characters are of Unicode 10 at most, so that all tables know them.
import { mkdirSync, readdirSync, unlinkSync, writeFileSync } from "node:fs";

const [seed, count, folder] = [Number(process.argv[2]), Number(process.argv[3]), process.argv[4]];
const N_STRINGS = 40;
const OFTEN = ["a", "b", "-"];
const SELDOM = ["a", "A", "_", "1", " ", "\n", "\"", "\\", "/", "\t", "é", "Ω", "ж", "٣", "\u2028", "漢", "\u20D0", "©"];
const ASTRAL = ["😀", "𝒜", "👍🏽"];
const PROPERTIES = ["L", "Lu", "Ll", "N", "Nd", "P", "S", "M", "Zs", "Letter", "General_Category=Decimal_Number", "gc=Lu", "Script=Greek",
    "sc=Latin", "scx=Cyrl", "Script_Extensions=Han", "Alphabetic", "ASCII", "Any", "Assigned", "Emoji", "Emoji_Presentation",
    "Extended_Pictographic", "Emoji_Component", "ID_Start", "ID_Continue", "White_Space", "Uppercase", "Lowercase", "Math"];
const SETS = [".", "\\w", "\\W", "\\d", "\\D", "\\s", "\\S", "[ab]", "[^a]", "[a-]", "[\\w-]", "[^\\W_]"];

let state = (seed * 2654435761) % 4294967296 || 1;   // xorshift32
function below(n) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state % n;
}
const pick = (list) => list[below(list.length)];

function set() {
    const property = `\\${pick(["p", "p", "P"])}{${pick(PROPERTIES)}}`;
    return below(4) ? pick(SETS) : pick([property, property, `[${property}-]`, `[^${property}]`, `[^a${property}]`]);
}

function tree(depth) {
    const kind = below(depth === 0 ? 6 : 15);
    const inner = () => tree(depth - 1);
    if (kind < 3) return pick(OFTEN);
    if (kind < 5) return set();
    if (kind === 5) return pick(["\\b", "\\B", "\\b", "^", "$"]);
    if (kind < 9) return inner() + inner();
    if (kind === 9) return `(?:${inner()}|${inner()})`;
    if (kind === 10) return `(?=${inner()})`;
    if (kind === 11) return `(?!${inner()})`;
    return `(?:${inner()})${pick(["*", "+", "?", "{2}", "{1,2}", "{0,3}", "*", "{2,}", "+?"])}`;
}

function pattern() {
    const begin = pick(["", "", "^", "^", `^(?=.*${tree(1)})`, `^(?!.*${tree(1)})`, `^(?=${tree(2)}$)(?!${tree(2)})`, "\\b"]);
    return begin + tree(4) + pick(["", "", "$", "$", "\\b"]);
}

function string(of) {
    let s = "";
    for (let n = below(8); n > 0; n--) {
        s += pick(below(3) ? OFTEN : of);
    }
    return s;
}

// Tries each place by itself: a search of V8's also finds empty matches between the halves of a surrogate pair, where a pattern of
// flag u has no place.
function finds(judge, s) {
    for (let at = 0; at <= s.length; at += at < s.length && s.codePointAt(at) > 0xFFFF ? 2 : 1) {
        judge.lastIndex = at;
        if (judge.test(s)) {
            return true;
        }
    }
    return false;
}

mkdirSync(folder, { recursive: true });
for (const file of readdirSync(folder)) {
    if (file.endsWith(".json")) {
        unlinkSync(`${folder}/${file}`);
    }
}
for (let i = 0; i < count;) {
    const text = pattern();
    let judge;
    try {
        judge = new RegExp(text, "uy");
    } catch {
        continue;   // none of flag u, as a repeat of ^
    }
    const strings = new Set([""]);
    for (let k = 0; k < N_STRINGS; k++) {
        strings.add(string([...SELDOM, ...ASTRAL]));
    }
    const tests = [...strings].map((data) => ({ valid: finds(judge, data), data }));
    const isNot = below(4) === 0;   // the complement
    // What matches nothing would be refused; with another alternative it says what it takes.
    const isSome = tests.some((t) => t.valid !== isNot);
    const schema = isNot ? { type: "string", not: { pattern: isSome ? text : `^(?!x$)[^]*(?:${text})` } }
                         : { type: "string", pattern: isSome ? text : `(?:${text})|^x$` };
    writeFileSync(`${folder}/${seed}_${i++}.json`,
                  JSON.stringify({ schema, tests: tests.map((t) => ({ valid: t.valid !== isNot, data: t.data })) }));
}
