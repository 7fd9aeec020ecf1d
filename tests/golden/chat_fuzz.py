"""Random templates for chat_oracle.py: expressions, statements and white space, from a grammar and a seed. Expressions are
mostly well typed, so that most of them come to a value; ill typed ones check that both sides refuse."""
import random

from chat_cases import CONTEXT

NAMES = {"int": ["n", "neg", "zero"], "float": ["half", "f"], "str": ["s", "empty", "uni", "ws", "lines", "csv"],
         "bool": ["yes", "no"], "list": ["nums", "words", "none", "people", "nested"], "dict": ["d", "ed"], "any": ["nil", "mixed", "zz"]}
NAMES["list"][2] = "words"  # `none` is a literal
WORDS = ["", "a", "b", "ab", "Abc", " x ", "a,b", "é", "日本", "\\n", "it\\'s", "%s", "<b>", "0", "12", "-3.5", "user"]
TEXT_FILTERS = ["upper", "lower", "trim", "capitalize", "title", "string", "reverse", "escape", "e", "safe", "indent(2)",
                "replace('a', 'b')", "replace('', '-')", "default('x')", "center(9)", "trim('ab')", "indent(1, true)"]
TEXT_METHODS = ["upper()", "lower()", "strip()", "lstrip()", "rstrip()", "title()", "capitalize()", "replace('a', 'bb')",
                "strip('a ')", "removeprefix('a')", "zfill(4)", "ljust(4)", "rjust(5, '.')", "swapcase()", "center(6, '*')"]
LIST_FILTERS = ["sort", "reverse|list", "unique|list", "list", "map('string')|list", "select|list", "reject|list", "sort(reverse=true)",
                "map('upper')|list", "select('string')|list", "batch(2)|list", "slice(2)|list", "reject('none')|list",
                "map('length')|list", "select('defined')|list", "map('tojson')|list"]
TESTS = ["defined", "undefined", "none", "string", "number", "mapping", "sequence", "iterable", "boolean", "true", "false", "integer",
         "float", "odd", "even", "lower", "upper", "callable", "divisibleby 2", "eq 1", "ne 'a'", "gt 1", "in [1, 'a']", "sameas none"]


class Grammar:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, *options):
        return self.r.choice(options)()

    def expr(self, kind, depth):
        if self.r.random() < 0.03:
            kind = self.r.choice(["int", "float", "str", "bool", "list", "dict", "any"])
        if depth <= 0:
            return self.leaf(kind)
        if self.r.random() < 0.12:
            text = f"{self.expr(kind, depth - 1)} if {self.expr('bool', depth - 1)}"
            return f"({text} else {self.expr(kind, depth - 1)})" if self.r.random() < 0.9 else f"({text})"
        return getattr(self, "a_" + kind)(depth - 1)

    def leaf(self, kind):
        if self.r.random() < 0.5:
            return self.r.choice(NAMES[kind])
        r = self.r
        if kind == "int":
            return str(r.choice([0, 1, 2, 3, 5, 10, 42]))
        if kind == "float":
            return r.choice(["0.0", "1.5", "2.0", "1e3", "0.1", "1e-5", "3.14159", "1e16"])
        if kind == "str":
            return f"'{r.choice(WORDS)}'"
        if kind == "bool":
            return r.choice(["true", "false"])
        if kind == "list":
            return r.choice(["[]", "[1]", "[1, 2, 3]", "['a', 'B', 'c']", "[3, 1, 2]", "(1, 2)", "range(4)|list"])
        if kind == "dict":
            return r.choice(["{}", "{'a': 1}", "{'b': 'x', 'a': [1, 2]}", "people[0]", "{1: 2, 'k': none}"])
        return self.leaf(r.choice(["int", "float", "str", "bool", "list", "dict"])) if r.random() < 0.7 else r.choice(["none", "nil", "zz"])

    def a_int(self, d):
        e = self.expr
        return self.pick(
            lambda: f"{e('int', d)} {self.r.choice(['+', '-', '*', '//', '%'])} {e('int', d)}",
            lambda: f"({e('int', d)} {self.r.choice(['+', '-', '*'])} {e('int', d)})", lambda: f"-{self.atom('int', d)}",
            lambda: f"{self.atom('list', d)}|length", lambda: f"{self.atom('str', d)}|length", lambda: f"{self.atom('int', d)}|abs",
            lambda: f"{self.atom('str', d)}|int", lambda: f"{self.atom('float', d)}|int", lambda: f"{self.atom('str', d)}.find('a')",
            lambda: f"{self.atom('str', d)}.count('a')", lambda: f"[{e('int', d)}, {e('int', d)}]|{self.r.choice(['max', 'min', 'sum'])}",
            lambda: f"{self.atom('str', d)}|wordcount", lambda: f"{self.atom('dict', d)}|length", lambda: f"{e('int', d)} ** 2")

    def a_float(self, d):
        e = self.expr
        return self.pick(
            lambda: f"{e('float', d)} {self.r.choice(['+', '-', '*', '/', '//', '%'])} {e('int', d)}",
            lambda: f"({e('int', d)} / {e('float', d)})", lambda: f"{self.atom('float', d)}|round({self.r.choice([0, 1, 2, 3])})",
            lambda: f"{self.atom('int', d)}|float", lambda: f"{self.atom('float', d)}|abs", lambda: f"-{self.atom('float', d)}",
            lambda: f"{self.atom('float', d)}|round(1, '{self.r.choice(['ceil', 'floor'])}')", lambda: f"{self.atom('str', d)}|float")

    def a_str(self, d):
        e = self.expr
        return self.pick(
            lambda: f"{e('str', d)} + {e('str', d)}", lambda: f"({e('any', d)} ~ {e('any', d)})", lambda: f"{e('str', d)} ~ {e('int', d)}",
            lambda: f"{self.atom('str', d)}|{self.r.choice(TEXT_FILTERS)}", lambda: f"{self.atom('str', d)}.{self.r.choice(TEXT_METHODS)}",
            lambda: f"{self.atom('str', d)}[{self.slice()}]", lambda: f"{self.atom('any', d)}|string",
            lambda: f"{self.atom('any', d)}|tojson{self.json_style()}", lambda: f"{self.atom('list', d)}|join('{self.r.choice(WORDS)}')",
            lambda: f"'{self.r.choice(['%s', '[%5s]', '%-4s|', '%r'])}' % ({e('any', d)},)", lambda: f"{self.atom('str', d)} * {self.r.randrange(4)}",
            lambda: f"'{self.r.choice(['{}', '<{:>6}>', '{!r}', '{0}{0}'])}'.format({e('str', d)})",
            lambda: f"'{self.r.choice(['%d', '%5.2f', '%x', '%03d'])}' % {self.atom('int', d)}", lambda: f"({e('str', d)} or {e('str', d)})",
            lambda: f"{self.atom('str', d)}|first", lambda: f"{self.atom('str', d)}|last")

    def a_bool(self, d):
        e = self.expr
        return self.pick(
            lambda: f"{e('int', d)} {self.compare()} {e('int', d)}", lambda: f"{e('int', d)} {self.compare()} {e('float', d)} {self.compare()} {e('int', d)}",
            lambda: f"{e('str', d)} {self.compare()} {e('str', d)}", lambda: f"not {e('bool', d)}", lambda: f"({e('bool', d)} {self.r.choice(['and', 'or'])} {e('bool', d)})",
            lambda: f"{e('bool', d)} {self.r.choice(['and', 'or'])} {e('bool', d)}", lambda: f"{self.atom('any', d)} is {self.r.choice(['', 'not '])}{self.r.choice(TESTS)}",
            lambda: f"{e('str', d)} {self.r.choice(['in', 'not in'])} {e('str', d)}", lambda: f"{e('any', d)} in {self.atom('list', d)}",
            lambda: f"{self.atom('str', d)}.startswith({e('str', d)})", lambda: f"{e('any', d)} == {e('any', d)}",
            lambda: f"{self.atom('str', d)}.{self.r.choice(['isdigit', 'isalpha', 'isspace', 'isupper', 'islower', 'istitle', 'isalnum'])}()",
            lambda: f"{e('str', d)} in {self.atom('dict', d)}")

    def a_list(self, d):
        e = self.expr
        return self.pick(
            lambda: f"[{e('any', d)}, {e('any', d)}]", lambda: f"[{e('int', d)}, {e('int', d)}, {e('int', d)}]", lambda: f"{e('list', d)} + {e('list', d)}",
            lambda: f"{self.atom('list', d)}[{self.slice()}]", lambda: f"{self.atom('list', d)}|{self.r.choice(LIST_FILTERS)}",
            lambda: f"{self.atom('str', d)}.split({self.r.choice(['', repr('a'), repr(','), repr(' '), repr('b')+', 1'])})",
            lambda: f"{self.atom('dict', d)}.keys()|list", lambda: f"{self.atom('dict', d)}|dictsort", lambda: f"{self.atom('dict', d)}|items|list",
            lambda: f"({e('any', d)}, {e('any', d)})", lambda: f"({e('any', d)},)", lambda: f"{self.atom('str', d)}|list", lambda: f"{self.atom('str', d)}.splitlines()",
            lambda: f"{self.atom('list', d)} * {self.r.randrange(3)}", lambda: "people|map(attribute='name')|list",
            lambda: f"people|selectattr('age', 'gt', {e('int', d)})|map(attribute='name')|list", lambda: f"{self.atom('str', d)}.partition({e('str', d)})",
            lambda: f"range({self.r.randrange(5)}, {self.r.randrange(9)}, {self.r.randrange(1, 4)})|list")

    def a_dict(self, d):
        e = self.expr
        return self.pick(
            lambda: f"{{'k': {e('any', d)}}}", lambda: f"{{'x': {e('any', d)}, {e('str', d)}: {e('any', d)}}}", lambda: f"dict(a={e('any', d)})",
            lambda: f"{{{e('int', d)}: {e('any', d)}, true: 1}}", lambda: "people[1]")

    def a_any(self, d):
        if self.r.random() < 0.2:
            return self.pick(lambda: f"{self.atom('list', d)}[{self.r.randrange(-3, 4)}]", lambda: f"{self.atom('dict', d)}.{self.r.choice(['a', 'k', 'zz'])}",
                             lambda: f"{self.atom('dict', d)}['{self.r.choice(['a', 'b', 'x'])}']", lambda: f"{self.atom('dict', d)}.get('a', {self.expr('any', d)})",
                             lambda: f"{self.atom('any', d)}|default({self.expr('any', d)}, {self.r.choice(['true', 'false'])})",
                             lambda: f"{self.atom('list', d)}|first", lambda: f"{self.atom('list', d)}|last")
        return self.expr(self.r.choice(["int", "float", "str", "bool", "list", "dict"]), d)

    def atom(self, kind, depth):
        """An operand that filters and subscripts may follow."""
        text = self.expr(kind, depth)
        return text if text.isidentifier() and self.r.random() < 0.9 or self.r.random() < 0.1 else f"({text})"

    def compare(self):
        return self.r.choice(["==", "!=", "<", "<=", ">", ">="])

    def slice(self):
        part = [str(self.r.randrange(-4, 6)) if self.r.random() < 0.6 else "" for _ in range(2)]
        step = self.r.choice(["", "", ":", ":2", ":-1", ":-2"])
        return f"{part[0]}:{part[1]}{step}"

    def json_style(self):
        return self.r.choice(["", "", "", "(indent=2)", "(ensure_ascii=true)", "(separators=(',', ':'))", "(indent=1, ensure_ascii=false)"])

    # --- statements ---

    def gap(self):
        return self.r.choice(["", "", " ", "\n", "  ", "\n  ", "\n\n", "x", " y ", "z\n", "\t", "}", "\n\t{"])

    def tag(self, inside):
        return "{%" + self.r.choice(["", "", "-", "-", "+"]) + f" {inside} " + self.r.choice(["", "", "-", "-", "+"]) + "%}"

    def out(self, inside):
        return "{{" + self.r.choice(["", "", "-"]) + f" {inside} " + self.r.choice(["", "", "-"]) + "}}"

    def body(self, depth, in_loop=False):
        return "".join(self.gap() + self.statement(depth, in_loop) for _ in range(self.r.randrange(1, 4))) + self.gap()

    def statement(self, depth, in_loop):
        r = self.r
        kinds = ["out", "out", "comment", "set", "raw"]
        kinds += ["if", "for", "block", "filter", "macro", "generation"] if depth > 0 else []
        kinds += ["loop", "leave"] if in_loop else []
        kind = r.choice(kinds)
        t = self.tag
        if kind == "out":
            return self.out(self.expr("any", r.randrange(3)))
        if kind == "comment":
            return "{#" + r.choice(["", "-", "+"]) + " c " + r.choice(["", "-"]) + "#}"
        if kind == "set":
            return t(f"set {r.choice('vw')} = {self.expr('any', r.randrange(2))}") + self.out("v")
        if kind == "raw":
            return t("raw").replace("+%}", "%}") + self.gap() + "{{ x }}" + self.gap() + t("endraw")
        if kind == "loop":
            return self.out(r.choice(["loop.index", "loop.last", "loop.length", "loop.revindex0", "loop.previtem", "loop.nextitem", "loop.depth"]))
        if kind == "leave":
            return t(f"if {self.expr('bool', 1)}") + t(r.choice(["break", "continue"])) + t("endif")
        if kind == "if":
            middle = r.choice([lambda: "", lambda: t("else") + self.body(depth - 1, in_loop),
                               lambda: t(f"elif {self.expr('bool', 1)}") + self.body(depth - 1, in_loop)])()
            return t(f"if {self.expr('bool', 2)}") + self.body(depth - 1, in_loop) + middle + t("endif")
        if kind == "for":
            var = r.choice("ijv")
            test = r.choice(["", "", f" if {var} is not none", f" if {var}"])
            end = r.choice([lambda: "", lambda: t("else") + self.body(depth - 1)])()
            return t(f"for {var} in {self.expr('list', 1)}{test}") + self.out(var) + self.body(depth - 1, True) + end + t("endfor")
        if kind == "block":
            return t(f"set {r.choice(['w', 'w | upper', 'w | trim'])}") + self.body(depth - 1, in_loop) + t("endset") + self.out("w")
        if kind == "filter":
            return t(f"filter {r.choice(['upper', 'trim', 'indent(2)', 'replace(1, 2)'])}") + self.body(depth - 1, in_loop) + t("endfilter")
        if kind == "generation":
            return t("generation").replace("+%}", "%}") + self.body(depth - 1) + t("endgeneration")
        head = r.choice(["m(a)", "m(a, b=1)", "m(a=n)", "m(b, a=b)"])
        use = r.choice(["m(1)", "m(s)", "m(n, 2)", "m(a=3)", "m()"])
        return t(f"macro {head}") + self.out("a") + self.body(depth - 1) + t("endmacro") + self.out(use)


def generate(seed, n):
    g = Grammar(seed)
    for i in range(n):
        yield {"group": "random expressions", "name": str(i), "template": "{{ " + g.expr("any", 1 + i % 4) + " }}", "context": CONTEXT}
    for i in range(n // 2):
        yield {"group": "random statements", "name": str(i), "template": g.body(1 + i % 3), "context": CONTEXT}
    for i in range(n // 2):  # pieces of syntax in any order: mostly refused
        pieces = ["{{", "}}", "{%", "%}", "{#", "#}", "-", "+", " ", "\n", "n", "if", "else", "endif", "for", "in", "endfor", "(", ")",
                  "[", "]", "{", "}", ",", ":", ".", "|", "upper", "is", "not", "'a'", "1", "set", "=", "~", "**", "==", "raw", "endraw"]
        yield {"group": "random pieces", "name": str(i), "template": "".join(g.r.choice(pieces) for _ in range(g.r.randrange(1, 12))), "context": CONTEXT}
        inside = " ".join(g.r.choice(pieces[9:]) for _ in range(g.r.randrange(1, 8)))
        yield {"group": "random pieces", "name": f"{i} inside", "template": "{{ " + inside + " }}", "context": CONTEXT}
