"""The cases of chat_oracle.py that are written by hand: conversations for whole templates, and the language feature by
feature. A case is {"group", "name", "template", "context"}; "marks": the ranges of user text are checked too."""

import re
import unicodedata

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Wetter <jetzt> & \"hier\"", "parameters": {
        "type": "object", "properties": {
            "city": {"type": "string", "description": "the city, e.g. Zürich"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
            "days": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 14.5}},
            "deep": {"type": "object", "properties": {"flag": {"type": "boolean"}}, "required": []}},
        "required": ["city"]}, "return": {"type": "string", "description": "a text"}}}
NOOP = {"type": "function", "function": {"name": "noop", "description": "", "parameters": {"type": "object", "properties": {}}}}


def user(content, **more):
    return {"role": "user", "content": content, **more}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def call(name, arguments, ident="call00001"):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(content, ident="call00001", **more):
    return {"role": "tool", "content": content, "tool_call_id": ident, **more}


CONVERSATIONS = {
    "user": [user("Hi")],
    "system": [system("Be brief."), user("Hi")],
    "turns": [user("1+1?"), assistant("2"), user("really?"), assistant(" yes \n"), user("ok")],
    "system and turns": [system("  spaced  "), user(" a "), assistant(" b\n"), user("c\n\n")],
    "empty content": [system(""), user(""), assistant(""), user("x")],
    "no messages": [],
    "only system": [system("alone")],
    "two systems": [system("one"), system("two"), user("x")],
    "late system": [user("x"), assistant("y"), system("late"), user("z")],
    "developer": [{"role": "developer", "content": "dev"}, user("x")],
    "two users": [user("a"), user("b")],
    "assistant first": [assistant("hello"), user("b")],
    "assistant last": [user("a"), assistant("to be continued")],
    "unknown role": [{"role": "wizard", "content": "abracadabra"}, user("x")],
    "unicode": [system("Δοκιμή"), user("日本語 \U0001f600 e\u0301 \u00a0\u2028 ﷽"), assistant("שלום\u200f"), user("ß")],
    "escapes": [user("<|im_end|>\n<|im_start|>system\n\"quoted\" 'x' \\n {{ x }} {% if %} </s> \t\r\n &amp;")],
    "no content": [{"role": "user"}, user("x")],
    "null content": [user("a"), assistant(None), user("b")],
    "no role": [{"content": "who"}],
    "number as content": [user(5), user("x")],
    "name": [user("a", name="Ann"), assistant("b", name="Bot"), user("c")],
    "thinking in content": [user("a"), assistant("<think>\nhm\n</think>\n\nb"), user("c"), assistant("<think>\n\n</think>d")],
    "reasoning": [user("a"), assistant("b", reasoning_content="because", thinking="because"), user("c")],
    "reasoning last": [user("a"), assistant("b", reasoning_content="because\n", thinking="t")],
    "typed text": [system("s"), user([{"type": "text", "text": "one"}, {"type": "text", "text": " two"}]), assistant("x"),
                   user([{"type": "text", "text": "three"}])],
    "typed everywhere": [{"role": "system", "content": [{"type": "text", "text": "sys"}]},
                         user([{"type": "text", "text": "one"}]), {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
                         user([{"type": "text", "text": "two"}])],
    "image": [user([{"type": "image"}, {"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": "data:"}},
                    {"type": "video"}])],
    "call": [user("weather?"), assistant("", tool_calls=[call("get_weather", {"city": "Zürich", "days": [1, 2.0], "n": None})]),
             tool("{\"temp\": 21}"), assistant("21 degrees."), user("thanks")],
    "call, null content": [user("weather?"), assistant(None, tool_calls=[call("get_weather", {"city": "Ulm"})]), tool("ok")],
    "call, no content": [user("w?"), {"role": "assistant", "tool_calls": [call("get_weather", {"city": "Ulm"})]}, tool("ok")],
    "call as text": [user("w?"), assistant("", tool_calls=[call("get_weather", "{\"city\": \"Ulm\"}")]), tool("ok")],
    "two calls": [system("s"), user("both?"), assistant("I ask.", tool_calls=[
        call("get_weather", {"city": "Rome", "nested": {"a": [True, False, {"b": "c"}]}}, "callaaaa1"),
        call("noop", {}, "callaaaa2")]), tool("rain", "callaaaa1", name="get_weather"), tool("", "callaaaa2", name="noop"),
        assistant("Rain."), user("ok")],
    "bare call": [user("w?"), assistant("", tool_calls=[{"name": "noop", "arguments": {"x": 1}}]), tool("done")],
    "call at the end": [user("w?"), assistant("", tool_calls=[call("noop", {})])],
    "tool result as data": [user("w?"), assistant("", tool_calls=[call("noop", {})]), tool({"deep": [1, "é"]})],
    "typed tool result": [user("w?"), assistant("", tool_calls=[call("noop", {})]), tool([{"type": "text", "text": "res"}])],
    "empty call list": [user("w?"), assistant("none", tool_calls=[]), user("x")],
    "reasoning and call": [user("w?"), assistant("", reasoning_content="need it", thinking="need it", tool_calls=[call("noop", {})]),
                           tool("r"), assistant("x", reasoning_content="done"), user("y")],
    "marks": [system("甲乙"), user("丙"), assistant("丁戊"), user("己庚辛")],
    "marks in calls": [user("甲"), assistant("乙", tool_calls=[call("丙", {"丁": "戊"})]), tool("己"), user("庚")],
}
SETTINGS = {
    "plain": {},
    "prompt": {"add_generation_prompt": True},
    "no prompt": {"add_generation_prompt": False},
    "tools": {"add_generation_prompt": True, "tools": [WEATHER]},
    "two tools": {"add_generation_prompt": False, "tools": [WEATHER, NOOP], "documents": None, "tool_choice": "auto"},
    "null tools": {"add_generation_prompt": True, "tools": None, "documents": None},
    "thinking": {"add_generation_prompt": True, "enable_thinking": True, "thinking": True, "reasoning_effort": "high"},
    "no thinking": {"add_generation_prompt": True, "enable_thinking": False, "thinking": False, "tools": []},
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def conversations(name, template):
    for talk, messages in CONVERSATIONS.items():
        for setting, more in SETTINGS.items():
            yield {"group": name, "name": f"{talk}, {setting}", "template": template, "whole": True,
                   "marks": talk.startswith("marks") and not re.search("[\u4e00-\u9fff]", template),
                   "context": {"messages": messages, **TOKENS, **more}}


# The context of the features below.
CONTEXT = {
    "n": 7, "neg": -3, "big": 9007199254740993, "wide": 2**64 - 1, "below": -(10**30), "zero": 0, "half": 0.5, "f": 3.0, "tiny": 1e-7, "huge": 1.5e300, "yes": True,
    "no": False, "nil": None, "s": "Hello World", "empty": "", "uni": "ÀÉîß ǆ İ 日本\U0001f600", "ws": " \t x y \n",
    "html": "<a href=\"x\">'&'</a>", "lines": "one\ntwo\r\nthree\n\nfive", "csv": "a,b,,c", "nums": [3, 1, 2], "none": [],
    "words": ["pear", "Apple", "fig", "apple"], "mixed": [1, "a", None, True, 2.5, [1], {"k": "v"}], "nested": [[1, 2], [3, [4]]],
    "d": {"b": 1, "a": 2, "C": 3, "items": "shadow", "x y": 4}, "ed": {}, "people": [
        {"name": "Bob", "age": 30, "tags": ["x"]}, {"name": "alice", "age": 25, "tags": []}, {"name": "Carl", "age": 30}],
    "messages": [user("甲"), assistant("乙"), user("丙")], "pct": "100%",
}

# One template a line; the group is the heading.
FEATURES = r'''
# text and white space
plain
plain with } and %} and #} and }} inside
a\nb\n
a\n\n
a{# comment #}b
a\n{# comment #}\nb
a\n  {# comment #}  \nb
a {#- trim -#} b
a {#+ keep +#}\nb
{# {{ x }} {% if %} #}
a\n{% if yes %}\nb\n{% endif %}\nc
a\n  {% if yes %}\n  b\n  {% endif %}\n  c
a  {% if yes %}  b  {% endif %}  c
a\n {%- if yes -%} \n b \n {%- endif -%} \n c
a\n  {%+ if yes %}\n  b\n  {%+ endif %}c
a\n{% if yes +%}\nb\n{% endif +%}\nc
{{ n }}\n
{{ n -}}  \n  x
x  \n  {{- n }}
x {{- n -}} y
x {{+ n }} y
  {{ n }}  
\t{% if yes %}x{% endif %}
x\t{% if yes %}x{% endif %}
{% if yes %}\n\n\nx{% endif %}
{% if yes -%}\n\n\nx{%- endif %}\n\n\ny
{% raw %}{{ x }} {% if %}{% endraw %}
a\n  {% raw %}\n  b{{\n  {% endraw %}\nc
a {%- raw -%} b {%- endraw -%} c
{% raw -%}   x   {%- endraw %}
{{ '{{' }}{{ '}}' }}{{ "{%" }}{{ '%}' }}{{ '{#' }}
{{ {'a': {'b': 1}}}}
{{ {'a': {'b': 1}} }}
{% set x = {'a': {}} %}{{ x }}
a\r\nb\rc\r\n
{%if yes%}x{%endif%}{%-if no-%}y{%-else-%} z{%-endif-%}
{{n}}{{-n-}}{{ n}}
  {%- set x = 1 -%}  {{ x }}
日本{% if yes %}語{% endif %}\u00a0{%- if yes %}x{% endif %}
line\n    {% for i in nums %}\n    {{ i }}\n    {% endfor %}\nend
line\n    {%- for i in nums %}\n    {{- i }}\n    {%- endfor %}\nend
{# open
{{ n
{% if
{{ 'open }}
{% raw %}x
{{ }}
{% %}
{{ n ]}}
{{ (n }}
{% endif %}
{% if yes %}
{% for i in nums %}{% endif %}
{% else %}
{% unknown %}
{{ ! }}
{{ n ? 1 : 2 }}
{{ $x }}
{{ a; b }}
# literals and printing
{{ 00 }} {{ 0_0 }} {{ 007.5 }} {{ 0xff + 1 }}
{{ 0x }}
{{ 1_ }}
{{ 1e }}
{{ 1.e5 }}
{{ 08 }}
{{ 1 }} {{ -1 }} {{ 007 }}
{{ 42 }} {{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }}
{{ 1.0 }} {{ 1.5 }} {{ 1e3 }} {{ 1E-5 }} {{ 1.5e+10 }} {{ 1e16 }} {{ 1e15 }} {{ 123456789012345678.0 }} {{ 0.1 + 0.2 }} {{ 1e-4 }} {{ 1e22 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }}
{{ 1. }}
{{ .5 }}
{{ 1__0 }}
{{ 9223372036854775807 }} {{ -9223372036854775807 }}
{{ true }} {{ True }} {{ false }} {{ False }} {{ none }} {{ None }}
{{ nil }} {{ yes }} {{ half }} {{ f }} {{ tiny }} {{ huge }} {{ big }}
{{ TRUE }} {{ NONE }}|
{{ 'a' "b" 'c' }}
{{ 'it''s' }}
{{ 'a\n\t\r\\\'\"' }} {{ "\x41\u00e9\U0001f600\101\0" | tojson }} {{ "\q\8" }}
{{ '\x4' }}
{{ '' }}{{ "" }}
{{ [] }} {{ [1] }} {{ [1,] }} {{ [1, 'a', None, 2.0, [True]] }}
{{ () }} {{ (1,) }} {{ (1, 2) }} {{ (1) }} {{ 1, 2 }} {{ 1, }}
{{ {} }} {{ {'a': 1} }} {{ {'a': 1, "b": [1], 3: 4, 2.5: None, True: 'x'} }} {{ {'a': 1,} }}
{{ {1: 'a', True: 'b', 1.0: 'c'} }}
{{ {[]: 1} }}
{{ {(1, 2): 3}[(1, 2)] }}
{{ mixed }} {{ d }} {{ nested }} {{ people[0] }}
{{ ['it\'s', "\"q\"", '\'"', 'a\\b', '\n\t\r\x01\x7f', 'é日', '\u00a0\u200b\u2028\ue000\U0001f600'] }}
{{ [nil, yes, undefined_thing] }}
{{ {'u': undefined_thing} }}
{{ [1.0, 1e100, -0.0, 1e-7] }}
{{ n }}{{ s }}{{ uni }}{{ ws }}|
{{ range(5) }} {{ range(1, 5) }} {{ range(1, 10, 2) }} {{ range(3)|list }} {{ range(10, 0, -3)|list }} {{ range(0) }}
{{ range(5)[2] }} {{ range(5)[-1] }} {{ range(10)[2:4] }} {{ range(10)[::3]|list }} {{ range(10)[::-1] }} {{ range(5)|length }} {{ 3 in range(5) }} {{ range(3) == range(3) }}
{{ range(1, 2, 0) }}
{{ range('a') }}
{{ range(100001) }}
{{ range(99999)|length }}
{{ range(1.5) }}
{{ range() }}
# arithmetic
{{ 1 + 2 }} {{ 5 - 7 }} {{ 3 * 4 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 // -2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }}
{{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ 7.5 % 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }} {{ 1e300 * 10 }} {{ -0.0 }} {{ 0.0 * -1 }}
{{ 2 ** 3 ** 2 }} {{ (2 ** 3) ** 2 }} {{ -2 ** 2 }} {{ 2 ** -1 ** 2 }} {{ - 2 * 3 }} {{ +5 }} {{ +-+5 }} {{ --5 }}
{{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ 10 - 2 - 3 }} {{ 100 / 10 / 2 }} {{ 2 * 3 % 4 }} {{ 1 + 2 ~ 3 + 4 }} {{ 1 ~ 2 * 3 }} {{ 1 + 1 ~ 'x' }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 1.0 / 0 }}
{{ true + 1 }} {{ true * 3 }} {{ -true }} {{ +true }} {{ false - 1 }} {{ true / 2 }}
{{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ 'ab' * 0 }} {{ 'ab' * -1 }}| {{ [1] + [2] }} {{ (1,) + (2,) }} {{ [1] * 2 }} {{ 2 * (1,) }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ [1] + (2,) }}
{{ 'a' - 'b' }}
{{ none + 1 }}
{{ -'a' }}
{{ +'a' }}
{{ -[] }}
{{ {} + {} }}
{{ 'a' * 'b' }}
{{ 'a' * 1.5 }}
{{ undefined_thing + 1 }}
{{ 'x' + undefined_thing }}
{{ -undefined_thing }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1] ~ undefined_thing ~ {} }}
{{ 1 ~ 2 }} {{ 'a' ~ 'b' ~ 'c' ~ 'd' }} {{ (1 ~ 2) * 2 }} {{ (1 ~ 2) is string }}
{{ 3 - -3 }} {{ 3--3 }} {{ 3 +-3 }}
{{ n-1 }} {{ n -1 }} {{ nums|length-1 }} {{ nums|length - 1 }} {{ -n|abs }} {{ (-n)|abs }} {{ -5|abs }}
{{ 2**62 }} {{ 0.1 * 3 }} {{ 1/3 }} {{ 2/3 }} {{ 10/4 }} {{ 1e308 + 1e308 }} {{ 3.0 ** 2 }} {{ 4 ** 0.5 }} {{ 2.0 // 0.3 }} {{ 5.0 % 0.7 }}
{{ 1e308 * 10 }} {{ -1e308 * 10 }} {{ 1e308 * 10 - 1e308 * 10 }}
# comparing and logic
{{ 1 == 1.0 }} {{ 1 == true }} {{ 0 == false }} {{ 1 != 2 }} {{ '1' == 1 }} {{ none == none }} {{ none == false }} {{ [] == () }} {{ [1, 2] == [1, 2] }} {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ [1, [2]] == [1, [3]] }}
{{ 1 < 2 }} {{ 2 <= 2 }} {{ 3 > 2 }} {{ 2 >= 3 }} {{ 'a' < 'b' }} {{ 'Z' < 'a' }} {{ 'é' > 'z' }} {{ [1, 2] < [1, 3] }} {{ [1] < [1, 0] }} {{ (1, 'a') < (1, 'b') }} {{ 1.5 < 2 }} {{ true < 2 }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ [] < 1 }}
{{ {} < {} }}
{{ undefined_thing < 1 }}
{{ 1 < undefined_thing }}
{{ [1] < (1,) }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 3 > 2 >= 2 > 1 }} {{ 1 == 1 == 1 }} {{ 1 < 2 > 1 }} {{ 1 in [1] in [[1]] }} {{ 1 == 1 in [1] }} {{ 3 > 2 < 'a' is string }}
{{ 1 < 2 == true }} {{ 'a' in 'abc' == true }}
{{ 'a' in 'abc' }} {{ '' in 'abc' }} {{ 'bc' in 'abc' }} {{ 'd' not in 'abc' }} {{ 1 in [1, 2] }} {{ 3 not in [1, 2] }} {{ 'a' in d }} {{ 'z' in d }} {{ 1 in (1,) }} {{ 'a' in ['a'] }} {{ none in [none] }} {{ 2.0 in [2] }}
{{ 1 in 'abc' }}
{{ 1 in 5 }}
{{ 1 in none }}
{{ [] in {} }}
{{ 'a' in undefined_thing }}
{{ undefined_thing in [1] }} {{ undefined_thing in 'abc' }}
{{ undefined_thing == undefined_thing }} {{ undefined_thing == none }} {{ undefined_thing != 1 }} {{ undefined_thing == other_thing }} {{ undefined_thing == '' }}
{{ not true }} {{ not 0 }} {{ not '' }} {{ not [] }} {{ not {} }} {{ not none }} {{ not undefined_thing }} {{ not 'a' }} {{ not 0.0 }} {{ not not 1 }}
{{ 1 and 2 }} {{ 0 and 2 }} {{ 1 or 2 }} {{ 0 or 2 }} {{ '' or 'x' }} {{ none or [] or 'y' }} {{ [] and 1 }} {{ 1 and 0 or 3 }} {{ 1 or 0 and 3 }} {{ not 1 and 0 }} {{ not (1 and 0) }} {{ undefined_thing or 'z' }} {{ 1 and undefined_thing }}
{{ not 1 == 2 }} {{ not 1 in [2] }} {{ not yes is true }} {{ 1 == 1 and 2 == 2 }} {{ 1 + not 1 }}
{{ 1 is not none and not none is not none }}
{{ yes and no or yes and not no }} {{ 1 < 2 and 2 < 3 or 1 / 0 }} {{ 0 and 1 / 0 }} {{ 1 or 1 / 0 }}
{{ 1 === 1 }}
{{ 1 <> 2 }}
{{ 1 = 2 }}
{{ not }}
{{ 1 and }}
{{ 1 in }}
{{ 1 not 2 }}
{{ !yes }}
{{ yes && no }}
# inline if
{{ 'a' if yes else 'b' }} {{ 'a' if no else 'b' }} {{ 'a' if no }}| {{ 'a' if yes }}
{{ ('a' if no) is defined }} {{ ('a' if no) ~ 'x' }}
{{ ('a' if no).b }}
{{ 1 if no else 2 if no else 3 }} {{ 1 if yes else 2 if yes else 3 }} {{ (1 if yes else 2) if no else 3 }} {{ 1 if (2 if no else 0) else 4 }}
{{ 1 + 2 if yes else 3 + 4 }} {{ 1 if no else 2 ~ 'x' }} {{ [1 if yes else 2, 3 if no else 4] }} {{ {'a' if yes else 'b': 1 if no else 2} }}
{{ 'x' if yes and not no else 'y' }} {{ 'x' if n == 7 else 'y' }} {{ 'x' if n in nums else 'y' }} {{ 'x' if n is defined else 'y' }} {{ n | string if yes else 'no' }} {{ 'a' if yes else 1/0 }} {{ 1/0 if no else 'b' }}
{{ (1 if yes else 2)|string ~ (3 if no else 4)|string }} {{ range(3 if yes else 5)|list }} {{ s[0 if yes else 1] }} {{ s[1 if no else 2:5 if yes else 6] }}
{{ 'a' if no|unknown_filter else 'b' }}
{{ 'a' if yes else 'b'|unknown_filter }}
{% set x = 1 if no %}{{ x is defined }}[{{ x }}]
{{ 1 if }}
{{ 1 if yes else }}
{{ if yes }}
{{ 1 if yes else 2, 3 }} {{ (1, 2 if no else 3) }}
{{ 1 if 2 if yes else 0 else 3 }}
{{ n|unknown_filter if no else 'b' }} {{ ((s|unknown_filter) if s is not string else s)|upper }} {{ 'a' if yes else ('b' is unknown_test) }} {{ 'a' if yes else unknown_function(1) }}
{{ [n|unknown_filter(1, a=2) if no else 'b', {'k': (1 is unknown_test) if no}] }}{% set a = s|unknown_filter if no else s %}{{ a }}
{{ n|unknown_filter if yes else 'b' }}
{{ 'a' if no else ('b' is unknown_test) }}
{% if no %}{{ n|unknown_filter }}{{ n is unknown_test }}{% elif no is unknown_test %}{% endif %}
{% if no %}{{ n|unknown_filter }}{{ n is not unknown_test(1) }}{% else %}b{% endif %}
# attributes, items, slices
{{ d.a }} {{ d['a'] }} {{ d["x y"] }} {{ d.zzz }}| {{ d['zzz'] }}| {{ d.zzz is defined }} {{ people[0].name }} {{ people[0]['name'] }} {{ people[1].tags }} {{ people.0.name }} {{ people[-1].name }} {{ nested[1][1][0] }} {{ nested.1.1.0 }}
{{ d.items }}
{{ d['items'] }}
{{ d.items() }}
{{ d.zzz.y }}
{{ d.zzz['y'] }}
{{ d.zzz[0] }}
{{ undefined_thing.x }}
{{ undefined_thing['x'] }}
{{ undefined_thing() }}
{{ nil.x }}| {{ nil['x'] }}| {{ n.x }}| {{ n['x'] }}| {{ n[0] }}| {{ s.zzz }}| {{ s['zzz'] }}| {{ nums['x'] }}| {{ nums.x }}| {{ d[0] }}|
{{ nil.x.y }}
{{ n.x.y }}
{{ nums[0] }} {{ nums[-1] }} {{ nums[3] }}| {{ nums[-4] }}| {{ nums[true] }} {{ nums[1.0] }}| {{ s[0] }} {{ s[-1] }} {{ s[99] }}| {{ uni[0] }} {{ uni[-1] }} {{ uni[8] }} {{ ''[0] }}|
{{ nums[nil] }}| {{ nums[undefined_thing] }}| {{ d[nil] }}| {{ d[undefined_thing] }}| {{ nums['0'] }}|
{{ nums[1:] }} {{ nums[:1] }} {{ nums[:] }} {{ nums[::-1] }} {{ nums[::2] }} {{ nums[-2:] }} {{ nums[:-1] }} {{ nums[5:] }} {{ nums[2:1] }} {{ nums[-99:99] }} {{ nums[1:2] }} {{ nums[::-2] }} {{ nums[2:0:-1] }} {{ nums[:1:-1] }} {{ nums[-1:0:-1] }}
{{ s[1:] }} {{ s[:5] }} {{ s[::-1] }} {{ s[-5:] }} {{ s[2:8:2] }} {{ s[::3] }} {{ uni[::-1] }} {{ uni[2:5] }} {{ uni[-3:] }} {{ s[99:] }}| {{ ''[::-1] }}| {{ s[:-99] }}| {{ s[8:2:-2] }}
{{ (1, 2, 3)[1:] }} {{ 'abc'[1] }} {{ [1, 2, 3][1] }} {{ {'a': 1}['a'] }} {{ {'a': 1}.a }} {{ 'abc'[::-1][0] }}
{{ nums[::0] }}
{{ nums['a':] }}
{{ nums[1.5:] }}
{{ d[1:2] }}
{{ n[1:2] }}|
{{ nil[1:2] }}|
{{ nums[none:none] }} {{ nums[none:2:none] }} {{ nums[undefined_thing:] }}
{{ nums[1:2:3:4] }}
{{ d. }}
{{ d.1 }}|
{{ s.__class__ }}
{{ s['__class__'] }}
{{ d.__class__.x }}
{{ ''.__class__.__mro__ }}
{{ nums.append(4) }}
{{ d.update({'z': 1}) }}
{{ d.pop('a') }}
{{ nums.sort() }}
{{ d.clear() }}
{{ nums.append is defined }} {{ nums.zzz is defined }} {{ d.get is defined }}
# if, for, loop
{% if n > 5 %}a{% elif n > 3 %}b{% else %}c{% endif %}{% if no %}x{% elif no %}y{% elif yes %}z{% endif %}{% if no %}x{% endif %}
{% if undefined_thing %}a{% else %}b{% endif %}{% if undefined_thing.x %}a{% endif %}
{% if nums and d and not none %}t{% endif %}
{% if 1, 2 %}tuple{% endif %}
{% if yes %}{% if no %}a{% else %}b{% endif %}{% else %}c{% endif %}
{% if yes %}a{% else %}b{% else %}c{% endif %}
{% if yes %}a{% else %}b{% elif no %}c{% endif %}
{% if (yes %}x{% endif %}
{% if yes x %}{% endif %}
{% for i in nums %}{{ i }},{% endfor %} {% for i in none %}x{% else %}empty{% endfor %} {% for i in nums %}{{ i }}{% else %}no{% endfor %}
{% for i in nums %}{{ loop.index }}/{{ loop.length }} {{ loop.index0 }} {{ loop.revindex }} {{ loop.revindex0 }} {{ loop.first }} {{ loop.last }} {{ loop.depth }} {{ loop.depth0 }} {{ loop.previtem }}|{{ loop.nextitem }};{% endfor %}
{% for i in nums %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}
{% for i in nums %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i > 1) }} {% endfor %}
{% for i in nums %}{{ loop.zzz }}|{{ loop['index'] }}|{{ loop.zzz is defined }}{% endfor %}
{% for i in nums %}{{ loop.cycle() }}{% endfor %}
{% for c in 'aé日' %}[{{ c }}]{% endfor %} {% for k in d %}{{ k }}{% endfor %} {% for k in {} %}x{% else %}e{% endfor %} {% for i in range(3) %}{{ i }}{% endfor %} {% for i in (1, 2) %}{{ i }}{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {% for k, v in people[0].items() %}{{ k }}={{ v }};{% endfor %} {% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %} {% for k, v in d|items %}{{ k }}{{ v }}{% endfor %}
{% for a, (b, c) in [[1, [2, 3]], [4, [5, 6]]] %}{{ a }}{{ b }}{{ c }} {% endfor %} {% for (a, b) in [[1, 2]] %}{{ a }}{{ b }}{% endfor %} {% for a, b in ['xy', 'zw'] %}{{ a }}{{ b }}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{% endfor %}
{% for a, b in [[1]] %}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% for i in n %}{% endfor %}
{% for i in nil %}{% endfor %}
{% for i in undefined_thing %}x{% else %}none{% endfor %}
{% for i in undefined_thing.x %}{% endfor %}
{% for i in nums if i > 1 %}{{ i }}{{ loop.index }}{{ loop.length }}{{ loop.last }} {% endfor %} {% for i in nums if i > 9 %}x{% else %}e{% endfor %} {% for i in nums if i > 1 %}{{ i }}{% endfor %}
{% for p in people if p.tags %}{{ p.name }}{% endfor %} {% for p in people if p.age == 30 and p.name != 'Bob' %}{{ p.name }}{{ loop.first }}{% endfor %} {% for k, v in d.items() if v is number and v > 1 %}{{ k }}{{ loop.index }}{% endfor %}
{% for i in nums if loop.index > 1 %}{{ i }}{% endfor %}
{% for i in [1, 2, 3] if i is odd else [9] %}{{ i }}{% endfor %}
{% for i in nums if i > 1 if i < 3 %}{% endfor %}
{% for i in nums %}{% for j in nums %}{{ i * j }}{{ loop.index }}{{ loop.depth }} {% endfor %}{{ loop.index }}{% endfor %}
{% for i in nums %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %} {% for i in nums %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% else %}x{% endfor %} {% for i in nums %}{% if i == 9 %}{% break %}{% endif %}{{ i }}{% else %}x{% endfor %} {% for i in nums %}{% continue %}{% else %}c{% endfor %} {% for i in nums %}{% break %}{% else %}b{% endfor %}
{% for i in nums %}{% for j in nums %}{% if j == 1 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% if i == 1 %}{% continue %}{% endif %}-{% endfor %}
{% for i in nums %}{% set x %}{{ i }}{% if i == 1 %}{% break %}{% endif %}{% endset %}{{ x }}{% endfor %}|
{% for i in nums %}{% filter upper %}a{{ i }}{% if i == 1 %}{% continue %}{% endif %}{% endfilter %}{% endfor %}|
{% break %}
{% continue %}
{% for i in nums %}{% else %}{% break %}{% endfor %}
{% for i in nums %}{% for j in [] %}{% else %}{% break %}{% endfor %}{{ i }}{% endfor %}
{% for i in nums %}{% set i = i + 1 %}{{ i }}{% endfor %}{{ i }}
{% set x = 0 %}{% for i in nums %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}
{% set i = 9 %}{% for i in nums %}{{ i }}{% endfor %}{{ i }}
{% set loop = 5 %}{{ loop }}{% for i in nums %}{{ loop.index }}{% endfor %}{{ loop }}
{{ loop }}|{{ loop is defined }}
{% for i in nums %}{% if loop.first %}{% set y = 1 %}{% endif %}{{ y is defined }}{% endfor %}{{ y is defined }}
{% for i in nums|sort|reverse %}{{ i }}{{ loop.length }}{% endfor %} {% for i in nums|map('string') %}{{ i }}{{ loop.last }}{% endfor %} {% for x in words|select('ne', 'fig') %}{{ x }}{{ loop.index }} {% endfor %}
{% for m in messages[::-1] %}{{ m.role }}{{ loop.index0 }}{{ messages[loop.index0].role }} {% endfor %} {% for m in messages[1:] %}{{ loop.index0 }}{% endfor %}
{% for i in nums recursive %}{{ i }}{% endfor %}
{% for i in nested recursive %}{{ loop(i) if i is iterable else i }}{% endfor %}
{% for loop in nums %}{{ loop }}{% endfor %}
{% for true in nums %}{% endfor %}
{% for x.y in nums %}{% endfor %}
{% for in nums %}{% endfor %}
{% for i nums %}{% endfor %}
{% for i in %}{% endfor %}
{% for i in 1, 2 %}{{ i }}{% endfor %}
{% for 1 in nums %}{% endfor %}
{% for i in nums %}{{ i }}{% endfor i %}
{% for i in nums %}{{ loop }}{% break %}{% endfor %}
{% for i in range(3) %}{% for j in range(i) %}{{ loop.length }}{% else %}e{% endfor %}{% endfor %}
{% for i in d.keys() %}{{ i }}{% endfor %}{% for i in d.values() %}{{ i }}{% endfor %}
{% for i in nums %}{{ loop.index is odd }}{{ loop.index0 % 2 == 0 }}{{ loop.first or loop.last }}{% endfor %}
# set, namespace, with, filter blocks
{% set x = 1 %}{{ x }}{% set x = x + 1 %}{{ x }}{% set x, y = 3, 4 %}{{ x }}{{ y }}{% set x = 1, 2 %}{{ x }}{% set (a, b) = [5, 6] %}{{ a }}{{ b }}
{% set x = 'a' if no else 'b' %}{{ x }}{% set x = nums|sort %}{{ x }}{% set x = not yes %}{{ x }}
{% if yes %}{% set x = 1 %}{% endif %}{{ x }}{% if no %}{% set z = 1 %}{% endif %}{{ z is defined }}
{% set x, y = 1 %}
{% set x, y = [1, 2, 3] %}
{% set x %}a{{ n }}b{% endset %}[{{ x }}]{% set x | upper %}abc{% endset %}{{ x }}{% set x | trim | upper %}  abc {% endset %}{{ x }}|{% set x %}{% endset %}[{{ x }}]{{ x is string }}
{% set x %}\n  a\n{% endset %}[{{ x }}]
{% set x | replace('a', 'b') | length %}banana{% endset %}{{ x }}
{% set x %}{% set y = 1 %}{% endset %}{{ y is defined }}
{% set ns = namespace() %}{% set ns.x = 1 %}{{ ns.x }}{% for i in nums %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}
{% set ns = namespace(a=1, b='x') %}{{ ns.a }}{{ ns.b }}{{ ns.c }}|{{ ns.c is defined }}{{ ns['a'] }}
{% set ns = namespace({'a': 1}) %}{{ ns.a }}{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{% set ns = namespace([['k', 'v']]) %}{{ ns.k }}
{% set ns = namespace(items=[1]) %}{{ ns.items }}{% set ns.items = ns.items + [2] %}{{ ns.items }}
{% set ns = namespace(f=false) %}{% for m in messages %}{% if m.role == 'assistant' %}{% set ns.f = true %}{% endif %}{% endfor %}{{ ns.f }}
{% set d.x = 1 %}
{% set n.x = 1 %}
{% set undefined_thing.x = 1 %}
{% set ns = namespace() %}{% set ns['x'] = 1 %}
{% set ns = namespace() %}{% set ns.x.y = 1 %}
{% set ns = namespace() %}{% set ns._x = 1 %}
{% set ns = namespace(x=1) %}{% set ns.x %}block{{ n }}{% endset %}{{ ns.x }}
{% set ns = namespace(1) %}
{{ namespace(a=1) }}
{{ namespace() is defined }} {{ namespace() is mapping }} {{ namespace() is iterable }} {{ namespace(a=1) == namespace(a=1) }} {% if namespace() %}t{% endif %}
{% set x = 1 %}{% set y = x %}{% set x = 2 %}{{ y }}
{% set true = 1 %}
{% set 1 = 1 %}
{% set x %}
{% set x = %}
{% set = 1 %}
{% set x 1 %}
{% set x = 1 y %}
{% set x += 1 %}
{% set 'a' = 1 %}
{% set f = s.upper %}{{ f() }}
{% filter upper %}abc {{ s }}{% endfilter %} {% filter replace('a', 'b')|trim %} banana {% endfilter %}| {% filter indent(2) %}a\nb{% endfilter %}
{% filter upper %}{% set x = 1 %}{{ x }}{% endfilter %}{{ x is defined }}
{% filter unknown_filter %}a{% endfilter %}
{% filter %}a{% endfilter %}
{% filter upper(1) %}a{% endfilter %}
{% filter length %}abc{% endfilter %}
{% generation %}a{{ n }}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x is defined }}
{%- for m in messages %}{% generation %}{{ m.role }}{{ loop.index }}{% endgeneration %}{% endfor %}
{% generation %}\n a\n{% endgeneration %}\nb
{% generation x %}a{% endgeneration %}
{% generation %}a
{% do nums %}
{% include 'x' %}
{% import 'x' as y %}
{% from 'x' import y %}
{% extends 'x' %}
{% trans %}x{% endtrans %}
{% debug %}
# macros
{% macro m() %}x{% endmacro %}{{ m() }}{{ m() }}
{% macro m(a, b=2, c=none) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c=5) }}{{ m(a=1) }}{{ m(c=1, b=2, a=3) }}{{ m() }}
{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}
{% macro m(a, b=a + '!', c=b + '?') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m('x') }}{{ m('x', 'y') }}
{% macro m(a) %}{{ a is defined }}{{ a }}{% endmacro %}{{ m() }}
{% macro m(a) %}{{ a.b }}{% endmacro %}{{ m() }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=1) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=1) }}
{% macro m(a=1, b) %}{% endmacro %}
{% macro m() %}{{ n }}{% set n = 5 %}{{ n }}{% endmacro %}{{ m() }}{{ n }}
{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}
{% macro m() %}{{ y }}{% endmacro %}{% set y = 2 %}{{ m() }}
{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(5) }}
{% macro a() %}a{{ b() }}{% endmacro %}{% macro b() %}b{% endmacro %}{{ a() }}
{{ m() }}{% macro m() %}x{% endmacro %}
{% macro m() %}  x  {% endmacro %}[{{ m() | trim }}][{{ m().strip() }}][{{ m() ~ 'y' }}][{{ m() + 'z' }}]{{ m()|length }}
{% macro m() -%}\n  x\n{%- endmacro %}[{{ m() }}]
{% macro m(x) %}{% for i in x %}{{ i }}{{ loop.index }}{% endfor %}{% endmacro %}{% for j in nums %}{{ m(nums) }}{{ loop.index }}{% endfor %}
{% for i in nums %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}{{ m is defined }}
{% for i in nums %}{% macro m() %}{{ loop.index }}{% endmacro %}{{ m() }}{% endfor %}
{% if yes %}{% macro m() %}x{% endmacro %}{% endif %}{{ m() }}
{% macro m() %}x{% endmacro %}{% call m() %}body{% endcall %}
{% macro m(caller) %}{% endmacro %}{{ m() }}
{% macro m(x) %}{{ x }}{% endmacro %}{{ [1, 2]|map('m')|list }}
{% macro m() %}x{% endmacro %}{{ m.name }}{{ m is callable }}{{ m is string }}{{ m() is string }}
{% macro m(a, a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a, %}{% endmacro %}
{% macro m %}{% endmacro %}
{% macro %}{% endmacro %}
{% macro m() %}
{% macro 1() %}{% endmacro %}
{% macro m() %}{% break %}{% endmacro %}
{% for i in nums %}{% macro m() %}{% break %}{% endmacro %}{{ m() }}{% endfor %}
{% macro upper(x) %}{{ x|upper }}{% endmacro %}{{ upper('a') }}
{% macro m(x, y) %}{{ x }}{{ y }}{% endmacro %}{{ m(y='b', x='a') }}{{ m('a', y='b') }}
{{ n() }}
{{ s() }}
{{ nil() }}
{{ nums() }}
{{ 'a'() }}
{% macro outer() %}{% macro inner() %}i{{ n }}{% endmacro %}{{ inner() }}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner is defined }}
{% macro m(d, indent=0) %}{% for k, v in d.items() %}{{ ' ' * indent }}{{ k }}{% if v is mapping %}\n{{ m(v, indent + 2) }}{% else %}={{ v }}\n{% endif %}{% endfor %}{% endmacro %}{{ m({'a': 1, 'b': {'c': 2, 'd': {'e': 3}}}) }}
{% macro m(x) %}{% set ns.v = x %}{% endmacro %}{% set ns = namespace(v=0) %}{{ m(5) }}{{ ns.v }}
{{ m(*[1]) }}
{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}
{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(**{'a': 1, 'b': 2}) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(a=1, a=2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(a=1, 2) }}
# tests
{{ n is defined }} {{ zz is defined }} {{ zz is undefined }} {{ n is not defined }} {{ d.zz is defined }} {{ d.a is defined }} {{ nil is defined }} {{ nums[9] is defined }}
{{ nil is none }} {{ n is none }} {{ zz is none }} {{ nil is not none }} {{ none is none }}
{{ s is string }} {{ n is string }} {{ nil is string }} {{ zz is string }} {{ [] is string }}
{{ n is number }} {{ half is number }} {{ yes is number }} {{ s is number }} {{ nil is number }} {{ zz is number }}
{{ n is integer }} {{ yes is integer }} {{ f is integer }} {{ f is float }} {{ n is float }} {{ yes is boolean }} {{ n is boolean }} {{ 1 is boolean }}
{{ yes is true }} {{ no is true }} {{ 1 is true }} {{ no is false }} {{ 0 is false }} {{ zz is false }} {{ zz is true }}
{{ d is mapping }} {{ nums is mapping }} {{ s is mapping }} {{ zz is mapping }}
{{ d is sequence }} {{ nums is sequence }} {{ s is sequence }} {{ n is sequence }} {{ zz is sequence }} {{ nil is sequence }} {{ (1,) is sequence }} {{ range(3) is sequence }} {{ d.keys() is sequence }} {{ d.items() is sequence }} {{ nums|map('string') is sequence }}
{{ d is iterable }} {{ nums is iterable }} {{ s is iterable }} {{ n is iterable }} {{ zz is iterable }} {{ nil is iterable }} {{ nums|map('string') is iterable }} {{ d.values() is iterable }} {{ range(2) is iterable }} {{ yes is iterable }}
{{ range is callable }} {{ s is callable }} {{ s.upper is callable }} {{ namespace is callable }} {{ zz is callable }} {{ nums is callable }} {{ raise_exception is callable }}
{{ 3 is odd }} {{ 4 is odd }} {{ 4 is even }} {{ -3 is odd }} {{ 3.0 is odd }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 10 is divisibleby 5 }}
{{ 'a' is odd }}
{{ 'a' is even }}
{{ zz is odd }}
{{ n is divisibleby 0 }}
{{ n is divisibleby }}
{{ 1 is eq 1 }} {{ 1 is equalto 1 }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 1 is le 1 }} {{ 2 is gt 1 }} {{ 2 is ge 2 }} {{ 1 is lessthan 2 }} {{ 2 is greaterthan 1 }} {{ 1 is sameas 1 }} {{ 'a' is in 'abc' }} {{ 1 is in [1] }} {{ 1 is not in [1] }} {{ yes is sameas true }} {{ nil is sameas none }} {{ 1 is sameas true }} {{ 1.0 is sameas 1 }} {{ nums is sameas nums }} {{ n is sameas n }} {{ 'a' is sameas none }}
{{ n is eq(7) }} {{ n is eq 7 and yes }} {{ n is eq 7 or no }} {{ (n is eq 7) == yes }} {{ n is gt 3 and n is lt 9 }} {{ n is in nums + [7] }} {{ n is in [7] + nums }}
{{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 'aBc' is lower }} {{ '123' is lower }} {{ 'a1' is lower }} {{ '' is lower }} {{ 'É' is upper }} {{ 'ß' is lower }} {{ n is lower }}
{{ 'upper' is filter }} {{ 'zzz' is filter }} {{ 'defined' is test }} {{ 'zzz' is test }} {{ 'tojson' is filter }}
{{ s is escaped }} {{ (s|safe) is escaped }} {{ (s|escape) is escaped }} {{ n is escaped }}
{{ n is defined and n }} {{ n is not defined or n }} {{ not n is defined }} {{ n is defined is true }}
{{ n is unknown_test }}
{{ n is not unknown_test }}
{% if no %}{{ n is unknown_test }}{% endif %}ok
{% if no %}{{ n|unknown_filter }}{% endif %}ok
{% if yes %}{{ n|unknown_filter }}{% endif %}
{{ n is }}
{{ n is not }}
{{ n is 5 }}
{{ n is none() }} {{ n is defined() }}
{{ n is string or s is string }} {{ 'x' if s is string else 'y' }} {{ s is string if yes else 0 }} {{ [s is string, n is number] }} {{ {'a': n is number} }} {{ range(n is number)|list }}
{{ 'a' is string 'b' }}
{{ n is eq n + 1 }}
{{ nums|length is gt 2 }} {{ s|upper is upper }} {{ n + 1 is eq 8 }} {{ -1 is number }} {{ not n is string }} {{ n ~ 1 is string }} {{ n * 2 is even }} {{ 2 ** 2 is even }}
{{ 3.0 % -7 }} {{ 3.0 % -3 }} {{ (-3.0) % 3 }} {{ 0.0 // -1 }} {{ -0.0 // 1 }} {{ 1e16 // -3 }} {{ 0.0 // 1 }}
{{ {(1, [2]): 3} }}
{{ {}.get((1, {})) }}
{{ {(1, (2, 3)): 4}[(1, (2, 3))] }} {{ (html|safe)|list|first }} {{ [('<'|safe)[0]] }}
# filters on text
{{ s|upper }} {{ s|lower }} {{ uni|upper }} {{ uni|lower }} {{ 'hELLO wORLD'|capitalize }} {{ 'ǆabc'|capitalize }} {{ 'éA'|capitalize }} {{ ''|capitalize }}| {{ "hello world-foo (bar) it's ÀB"|title }} {{ 'ǆ ß x1y'|title }} {{ n|upper }} {{ none|upper }} {{ undefined_thing|upper }}|
{{ ws|trim }}| {{ 'xxaxx'|trim('x') }} {{ '日a日'|trim('日') }} {{ '\u00a0\u2003a\u3000\x1c'|trim }}| {{ ''|trim }}| {{ n|trim }} {{ 'abcba'|trim('ab') }} {{ undefined_thing|trim }}| {{ 'a'|trim(none) }} {{ ' a'|trim(chars=' ') }}
{{ 'banana'|replace('a', 'o') }} {{ 'banana'|replace('a', 'o', 2) }} {{ 'banana'|replace('', '-') }} {{ 'banana'|replace('x', 'y') }} {{ 123|replace(2, 5) }} {{ 'aaa'|replace('aa', 'b') }} {{ 'a'|replace('a', '') }}| {{ 'é日'|replace('', '.') }} {{ 'banana'|replace('a', 'o', count=1) }} {{ 'aaa'|replace('a', 'b', 0) }} {{ 'aaa'|replace('', 'b', 2) }} {{ ''|replace('', 'x') }}
{{ 'a'|replace }}
{{ 'a'|replace('b') }}
{{ 'x'|center(5) }}| {{ 'xy'|center(5) }}| {{ 'xyz'|center(2) }} {{ 'ab'|center(7) }}| {{ 'é'|center(4) }}|
{{ s|length }} {{ uni|length }} {{ s|count }} {{ nums|length }} {{ d|length }} {{ ''|length }} {{ undefined_thing|length }}
{{ n|length }}
{{ nil|length }}
{{ (nums|map('string'))|length }}
{{ s|wordcount }} {{ 'a b-c d_e  f\n1'|wordcount }} {{ ''|wordcount }} {{ 'é日本 x'|wordcount }}
{{ 'a\nb\n\nc'|indent }} {{ 'a\nb\n\nc'|indent(2) }} {{ 'a\nb\n\nc'|indent(2, true) }} {{ 'a\nb\n\nc'|indent(2, true, true) }} {{ 'a\nb'|indent('> ') }} {{ 'a\nb'|indent(width=1, first=true) }} {{ ''|indent }}| {{ '\n'|indent(2, blank=true) }}| {{ 'a\n'|indent(3) }}| {{ 'a\n'|indent(3, false, true) }}| {{ 'a\r\nb\x0bc'|indent(1) }}
{{ n|indent }}
{{ s|string }} {{ n|string ~ 'x' }} {{ [1, 'a']|string }} {{ (1|string) is string }} {{ undefined_thing|string }}| {{ none|string }}
{{ html|escape }} {{ html|e }} {{ html|safe }} {{ html|safe|escape }} {{ html|forceescape }} {{ html|safe|forceescape }} {{ n|escape }} {{ (html|safe) + html }} {{ html + (html|safe) }} {{ (html|safe) ~ html }} {{ (html|escape)|length }}
{{ (html|safe)|upper }} {{ (html|safe).upper() }} {{ [html|safe] }} {{ (html|safe)|tojson }} {{ (html|safe) == html }} {{ (html|safe)[:3] + '<' }} {{ ('<'|safe) * 2 + '<' }} {{ ('%s'|safe) % '<' }} {{ ['<'|safe, '<']|join('&') }} {{ ('a'|safe)|replace('a', '<') }} {{ ('<'|safe)|trim + '<' }} {{ ('<'|safe) in html }}
{{ 'a%sb'|format('x') }} {{ '%s %s'|format(1, 'b') }} {{ '%(a)s'|format(a=1) }} {{ '%d%%'|format(5) }}
{{ '%s'|format() }}
{{ '%s'|format(1, 2) }}
{{ s|first }} {{ s|last }} {{ nums|first }} {{ nums|last }} {{ ''|first }}| {{ []|first }}| {{ []|last }}| {{ []|first is defined }} {{ d|first }} {{ d|last }} {{ range(3)|last }} {{ nums|map('string')|first }} {{ undefined_thing|first }}|
{{ nums|map('string')|last }}
{{ undefined_thing|last }}|
{{ n|first }}
{{ s|reverse }} {{ nums|reverse|list }} {{ uni|reverse }} {{ ''|reverse }}| {{ (1, 2)|reverse|list }} {{ d|reverse|list }} {{ range(3)|reverse|list }}
{{ n|reverse }}
{{ undefined_thing|reverse|list }}
{{ 'abc'|list }} {{ nums|list }} {{ d|list }} {{ (1, 2)|list }} {{ ''|list }} {{ range(2)|list }} {{ undefined_thing|list }} {{ d.items()|list }} {{ d.values()|list }} {{ d.keys()|list }}
{{ n|list }}
{{ nil|list }}
{{ s|upper|lower|title|length }} {{ s | upper | trim }} {{ s|upper() }} {{ s |upper}}
{{ s|unknown_filter }}
{{ s| }}
{{ s|upper(1) }}
{{ s|upper.x }}
{{ s|1 }}
{{ s|'upper' }}
# filters on numbers
{{ -5|abs }} {{ neg|abs }} {{ 5.5|abs }} {{ -2.5|abs }} {{ (-2.5)|abs }} {{ (-0.0)|abs }} {{ true|abs }}
{{ 'a'|abs }}
{{ undefined_thing|abs }}
{{ 2.5|round }} {{ 3.5|round }} {{ 2.567|round(2) }} {{ 2.5|round(0, 'ceil') }} {{ 2.5|round(method='floor') }} {{ 42|round }} {{ 42|round(-1) }} {{ 1234.5|round(-2) }} {{ 2.675|round(2) }} {{ 1.005|round(2) }} {{ 2.345|round(2, 'ceil') }} {{ 2.345|round(1, 'floor') }} {{ -2.5|round }} {{ (-2.5)|round }} {{ 0.5|round }} {{ 1.5|round }} {{ 7|round(1, 'ceil') }} {{ true|round }} {{ 15|round(-1) }} {{ 25|round(-1) }} {{ 1e20|round }} {{ 0.1|round(3) }}
{{ 2.5|round(0, 'x') }}
{{ 'a'|round }}
{{ 2.5|round('a') }}
{{ '42'|int }} {{ '42.7'|int }} {{ 'a'|int }} {{ 'a'|int(5) }} {{ ' 42 '|int }} {{ '-5'|int }} {{ 3.9|int }} {{ -3.9|int }} {{ (-3.9)|int }} {{ true|int }} {{ none|int }} {{ [1]|int }} {{ '0x1F'|int(0, 16) }} {{ '1F'|int(base=16) }} {{ '101'|int(0, 2) }} {{ '0b101'|int(0, 0) }} {{ '1_000'|int }} {{ ''|int }} {{ '1e3'|int }} {{ 'nan'|int(3) }} {{ '+7'|int }} {{ '12abc'|int(default=-1) }} {{ '0o17'|int(0, 8) }} {{ '08'|int }}
{{ undefined_thing|int }}
{{ '3.14'|float }} {{ 'a'|float }} {{ 'a'|float(1.5) }} {{ 3|float }} {{ '1e5'|float }} {{ ' 2 '|float }} {{ none|float }} {{ 'inf'|float }} {{ '-Infinity'|float }} {{ 'nan'|float }} {{ '1_0.5'|float }} {{ '.5'|float }} {{ '5.'|float }} {{ true|float }} {{ ''|float }} {{ 'x'|float(default=none) }} {{ '1e400'|float }}
{{ undefined_thing|float }}
{{ nums|sum }} {{ []|sum }} {{ nums|sum(start=10) }} {{ people|sum('age') }} {{ people|sum(attribute='age', start=1) }} {{ [1.5, 2]|sum }} {{ [true, 1]|sum }} {{ [[1], [2]]|sum(start=[]) }}
{{ words|sum }}
{{ ['a', 'b']|sum(start='') }}
{{ people|sum('zzz') }}
{{ nums|min }} {{ nums|max }} {{ words|min }} {{ words|max }} {{ words|min(true) }} {{ words|max(case_sensitive=true) }} {{ people|min(attribute='age') }} {{ (people|max(attribute='name')).name }} {{ []|min }}| {{ []|max }}| {{ 'hello'|max }} {{ [1, 2.5, true]|max }} {{ d|min }}
{{ mixed|max }}
{{ n|min }}
{{ 'inf'|float|int }}
{{ (1e308 * 10)|round }}
{{ (1e308 * 10)|round(1, 'ceil') }}
# filters on sequences
{{ nil|select|list }} {{ 0|map('upper')|list }} {{ nil|selectattr('x')|list }} {{ no|reject|list }} {{ ''|map('upper')|list }}
{{ 1|select|list }}
{{ [undefined_thing, undefined_thing]|sort|length }} {{ [none, none]|sort }}
{{ [none, 1]|sort }}
{{ {'a': {}, 'b': {}}|dictsort(by='value') }}
{{ nums|sort }} {{ nums|sort(true) }} {{ nums|sort(reverse=true) }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ words|sort(false, true) }} {{ people|sort(attribute='age')|map(attribute='name')|list }} {{ people|sort(attribute='age,name')|map(attribute='name')|list }} {{ people|sort(attribute='age', reverse=true)|map(attribute='name')|list }} {{ d|sort }} {{ 'hello'|sort }} {{ []|sort }} {{ [[2, 1], [1, 2], [1, 1]]|sort }} {{ nested|sort(attribute='0') }} {{ [[2, 'a'], [1, 'b']]|sort(attribute=1) }} {{ undefined_thing|sort }}
{{ mixed|sort }}
{{ n|sort }}
{{ [{}, {}]|sort }}
{{ d|dictsort }} {{ d|dictsort(true) }} {{ d|dictsort(reverse=true) }} {{ ed|dictsort }} {{ {'a': 3, 'b': 1}|dictsort(by='value') }} {{ {'a': 3, 'b': 1}|dictsort(false, 'value', true) }} {{ {'b': 'B', 'a': 'a', 'C': 'c'}|dictsort(by='value') }}
{{ nums|dictsort }}
{{ d|dictsort(by='x') }}
{{ d|dictsort(by='value') }}
{{ undefined_thing|dictsort }}
{{ d|items|list }} {{ undefined_thing|items|list }} {{ ed|items|list }}
{{ nums|items|list }}
{{ nil|items|list }}
{{ nums|join }} {{ nums|join(', ') }} {{ words|join('-') }} {{ []|join(',') }}| {{ 'abc'|join('.') }} {{ people|join(', ', attribute='name') }} {{ people|join(', ', 'age') }} {{ [1, none, true, 'x', undefined_thing]|join('|') }} {{ nums|join(1) }} {{ undefined_thing|join(',') }}| {{ d|join(',') }} {{ nums|map('string')|join('') }} {{ [[1], {'a': 1}]|join }}
{{ n|join(',') }}
{{ words|map('upper')|list }} {{ people|map(attribute='name')|list }} {{ people|map(attribute='zzz')|list }} {{ people|map(attribute='zzz', default='d')|list }} {{ people|map(attribute='tags.0')|list }} {{ nums|map('string')|list }} {{ words|map('replace', 'p', 'b')|list }} {{ nums|map('default', 5)|list }} {{ nested|map('first')|list }} {{ nested|map('join', '-')|list }} {{ nested|map(attribute=0)|list }} {{ words|map('length')|sum }} {{ words|map('tojson')|join(',') }} {{ 'abc'|map('upper')|join }} {{ undefined_thing|map('upper')|list }}
{{ nums|map('unknown')|list }}
{{ nums|map(foo='x')|list }}
{{ people|map(attribute='tags.0.x.y')|list }}
{{ n|map('string')|list }}
{{ nums|select|list }} {{ [0, 1, '', none, 'a']|select|list }} {{ nums|select('odd')|list }} {{ nums|select('gt', 1)|list }} {{ nums|reject('odd')|list }} {{ [0, 1]|reject|list }} {{ words|select('in', ['fig'])|list }} {{ words|select('equalto', 'fig')|list }} {{ mixed|select('string')|list }} {{ mixed|reject('none')|list }} {{ mixed|select('mapping')|list }} {{ words|select('==', 'fig')|list }} {{ nums|select('>', 1)|list }} {{ nums|select('<=', 2)|list }} {{ nums|reject('!=', 1)|list }} {{ nums|select('divisibleby', 3)|list }}
{{ nums|select('unknown')|list }}
{{ people|selectattr('tags')|map(attribute='name')|list }} {{ people|selectattr('age', 'eq', 30)|map(attribute='name')|list }} {{ people|rejectattr('age', 'equalto', 30)|map(attribute='name')|list }} {{ people|selectattr('tags', 'defined')|list|length }} {{ people|rejectattr('tags')|list|length }} {{ people|selectattr('name', 'in', ['Bob'])|list|length }} {{ messages|selectattr('role', 'equalto', 'user')|list|length }} {{ (messages|selectattr('role', 'equalto', 'user')|list)[-1].content }} {{ people|selectattr('tags', 'undefined')|map(attribute='name')|first }} {{ people|rejectattr('tags', 'undefined')|list|length }} {{ people|selectattr('tags.0', 'defined')|list|length }}
{{ people|selectattr('age', 'unknown')|list }}
{{ nums|selectattr('x')|list }}
{{ nums|selectattr('x.y')|list }}
{{ [1, 2, 1, 3, 2]|unique|list }} {{ words|unique|list }} {{ words|unique(true)|list }} {{ people|unique(attribute='age')|map(attribute='name')|list }} {{ 'hello'|unique|join }} {{ []|unique|list }} {{ [1, 1.0, true]|unique|list }} {{ [(1, 2), (1, 2)]|unique|list }}
{{ [[1], [1]]|unique|list }}
{{ range(7)|batch(3)|list }} {{ range(7)|batch(3, 'x')|list }} {{ []|batch(3)|list }} {{ range(6)|batch(3, 0)|list }} {{ range(7)|slice(3)|list }} {{ range(7)|slice(3, 'x')|list }} {{ range(2)|slice(3)|list }} {{ range(2)|slice(3, 'x')|list }} {{ []|slice(2)|list }}
{{ nums|batch }}
{{ nums|slice(0)|list }}
{{ nums|groupby('x') }}
{{ n|default(5) }} {{ zz|default(5) }} {{ zz|default }}| {{ zz|d('x') }} {{ nil|default(5) }} {{ nil|default(5, true) }} {{ ''|default('e', true) }} {{ ''|default('e') }}| {{ no|default(1, boolean=true) }} {{ d.zz|default('q') }} {{ zz|default(default_value='k') }} {{ 0|d(3, true) }}
{{ zz.y|default(5) }}
{{ d.zz.y|default(5) }}
{{ zz|default(undefined_thing) }}|{{ zz|default([])|length }}
{{ nums|select('odd')|list|length }} {{ nums|select('odd')|sum }} {{ (nums|select('odd')) is defined }} {% if nums|select('gt', 9) %}gen{% endif %} {% set g = nums|map('string') %}{{ g|list }}{{ g|list }}
{{ (nums|map('string'))[0] }}|
{{ people|map(attribute='name')|map('upper')|map('first')|join }} {{ nums|map('string')|map('length')|max }}
{{ nested|sum(start=[]) }} {{ [[1, 2], [3]]|map('sum')|list }} {{ [[2, 1]]|map('sort')|list }} {{ [['a', 'b']]|map('join')|first }} {{ nested|map('map', 'string')|map('list')|list }}
{{ d|tojson|from_json }}
{{ d|xmlattr }}
{{ nums|filesizeformat }}
# tojson
{{ wide }} {{ below }} {{ wide|tojson }} {{ [wide, below, {'a': wide}]|tojson }} {{ [wide] }} {{ wide|string }} {{ wide ~ 'x' }} {{ "%s" % wide }} {{ '{}'.format(below) }}
{{ wide == wide }} {{ wide == below }} {{ wide > below }} {{ wide > big }} {{ below < neg }} {{ wide is integer }} {{ wide is number }} {{ wide is float }} {{ wide|int }} {{ wide|float }} {{ wide|abs }} {{ 'yes' if wide }} {{ {wide: 1}|tojson }} {{ [wide, below, 5]|sort }}
{{ n|tojson }} {{ half|tojson }} {{ f|tojson }} {{ yes|tojson }} {{ nil|tojson }} {{ s|tojson }} {{ uni|tojson }} {{ html|tojson }} {{ nums|tojson }} {{ d|tojson }} {{ mixed|tojson }} {{ nested|tojson }} {{ ed|tojson }} {{ []|tojson }} {{ (1, 2)|tojson }} {{ ''|tojson }} {{ huge|tojson }} {{ tiny|tojson }} {{ big|tojson }}
{{ "\x00\x01\x08\x0c\x1f\x7f\x80\u2028\\/\"'\t\n\r" | tojson }} {{ "\x00\x7f\x80é日\U0001f600"|tojson(ensure_ascii=true) }}
{{ d|tojson(indent=2) }} {{ nested|tojson(indent=4) }} {{ ed|tojson(indent=2) }} {{ []|tojson(indent=2) }} {{ people|tojson(indent=1) }} {{ d|tojson(indent=0) }} {{ d|tojson(indent='\t') }} {{ {'a': [], 'b': {}}|tojson(indent=2) }} {{ d|tojson(indent=none) }} {{ 5|tojson(indent=2) }} {{ nums|tojson(indent=-1) }} {{ nums|tojson(indent=true) }}
{{ d|tojson(separators=(',', ':')) }} {{ d|tojson(separators=[',', ':']) }} {{ d|tojson(separators=(',', ':'), indent=2) }} {{ nums|tojson(separators=('; ', '=')) }}
{{ d|tojson(sort_keys=true) }} {{ uni|tojson(ensure_ascii=true) }} {{ uni|tojson(true) }} {{ d|tojson(ensure_ascii=False, indent=4, sort_keys=True) }} {{ {'b': {'d': 1, 'c': 2}, 'a': 3}|tojson(sort_keys=true, indent=1) }}
{{ {1: 2, true: 3, none: 4, 1.5: 5}|tojson }} {{ {'a': {1: none}}|tojson }}
{{ undefined_thing|tojson }}
{{ [undefined_thing]|tojson }}
{{ range(3)|tojson }}
{{ (nums|map('string'))|tojson }}
{{ d.items()|tojson }}
{{ d.keys()|list|tojson }} {{ d.items()|list|tojson }}
{{ s.upper|tojson }}
{{ namespace()|tojson }}
{{ {(1, 2): 3}|tojson }}
{{ d|tojson(separators=',') }}
{{ d|tojson(foo=1) }}
{{ {1: 1, 'a': 2}|tojson(sort_keys=true) }}
{{ 1e400|tojson }} {{ (1e308 * 10)|tojson }} {{ ('nan'|float)|tojson }} {{ [-1e308 * 10]|tojson }}
{{ messages|tojson }} {{ people[0]|tojson(indent=2)|indent(4) }} {{ {'a': 'x'}|tojson|length }} {{ '"' ~ {'a': 1}|tojson ~ '"' }}
# methods of text
{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ s.capitalize() }} {{ s.swapcase() }} {{ "they're bill's x1y ǆ"|string }} {{ "they're bill's x1y".title() }} {{ 'ß'.upper() }}
{{ ws.strip() }}| {{ ws.lstrip() }}| {{ ws.rstrip() }}| {{ 'xxaxx'.strip('x') }} {{ 'xyaxy'.lstrip('yx') }} {{ 'xyaxy'.rstrip('yx') }} {{ ' a '.strip(none) }}| {{ 'aéa'.strip('é') }} {{ '\n\nx\n'.strip('\n') }}|
{{ s.split() }} {{ csv.split(',') }} {{ csv.split(',', 1) }} {{ csv.rsplit(',', 1) }} {{ ' a  b '.split() }} {{ ' a  b '.split(' ') }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a--b--c'.split('--') }} {{ 'a b c'.split(none, 1) }} {{ 'a b c'.split(maxsplit=1) }} {{ 'a,b'.split(sep=',') }} {{ ' a b c '.rsplit(none, 1) }} {{ '\u3000a\x1cb'.split() }} {{ 'abc'.split('') is defined }}
{{ 'abc'.split('') }}
{{ 'abc'.split(1) }}
{{ '</think>x</think>y'.split('</think>')[-1] }} {{ '<t>a</t>b'.split('</t>')[0].split('<t>')[-1].strip('\n') }}
{{ s.startswith('Hell') }} {{ s.endswith('ld') }} {{ s.startswith('x') }} {{ s.startswith(('x', 'H')) }} {{ s.endswith(('d', 'x')) }} {{ s.startswith('') }} {{ s.startswith('World', 6) }} {{ s.endswith('Hello', 0, 5) }} {{ s.startswith('e', 1, 3) }} {{ 'a'.startswith('abc') }}
{{ s.startswith(1) }}
{{ s.startswith() }}
{{ s.startswith(['H']) }}
{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ s.replace('', '.') }} {{ s.replace('Hello', '') }}
{{ s.replace('a') }}
{{ s.replace(1, 2) }}
{{ s.find('o') }} {{ s.find('z') }} {{ s.rfind('o') }} {{ s.index('o') }} {{ s.count('l') }} {{ s.find('o', 5) }} {{ s.count('') }} {{ uni.find('日') }} {{ s.find('') }} {{ s.rfind('') }} {{ s.find('o', 5, 6) }} {{ s.rindex('o') }} {{ s.count('l', 3) }} {{ s.find('o', -4) }} {{ 'aaa'.count('aa') }} {{ 'é日é'.rfind('é') }}
{{ s.index('z') }}
{{ ','.join(words) }} {{ ''.join(['a']) }} {{ ', '.join('abc') }} {{ '-'.join([]) }}| {{ '-'.join(words|map('upper')) }} {{ ','.join(d) }} {{ ','.join(d.keys()) }}
{{ ','.join(nums) }}
{{ ','.join(1) }}
{{ 'abc'.isalpha() }} {{ 'a1'.isalnum() }} {{ '12'.isdigit() }} {{ '12'.isnumeric() }} {{ ' \n'.isspace() }} {{ 'abc'.islower() }} {{ 'ABC'.isupper() }} {{ 'Abc Def'.istitle() }} {{ ''.isalpha() }} {{ ''.isspace() }} {{ '²'.isdigit() }} {{ '½'.isnumeric() }} {{ 'é'.isalpha() }} {{ 'abc'.isascii() }} {{ 'a b'.isprintable() }}
{{ '42'.zfill(5) }} {{ '-42'.zfill(5) }} {{ 'x'.ljust(3) }}| {{ 'x'.rjust(3) }}| {{ 'x'.center(4) }}| {{ 'x'.center(4, '*') }} {{ 'x'.ljust(3, '.') }} {{ 'x'.rjust(3, '.') }} {{ 'abc'.center(2) }}
{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }} {{ 'abc'.rpartition('=') }} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x-suffix'.removesuffix('-suffix') }} {{ 'x'.removeprefix('y') }}
{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ 'a\n'.splitlines() }} {{ ''.splitlines() }} {{ 'a\x0bb\x0cc\x85d\u2028e'.splitlines() }} {{ '\n\n'.splitlines() }} {{ 'a\r\nb'.splitlines(keepends=true) }}
{{ '{} {}'.format(1, 'a') }} {{ '{0}{1}{0}'.format('a', 'b') }} {{ '{x}'.format(x=5) }} {{ '{{}}'.format() }} {{ '{:>5}|{:<5}|{:^5}'.format('a', 'b', 'c') }} {{ '{:05d}'.format(42) }} {{ '{:.2f}'.format(3.14159) }} {{ '{!r}'.format('a') }} {{ '{0[a]}'.format({'a': 1}) }} {{ '{:,}'.format(1234567) }} {{ '{:x}'.format(255) }} {{ '{:*^9}'.format('mid') }} {{ '{:+d}'.format(5) }} {{ '{:%}'.format(0.5) }} {{ '{:e}'.format(12345.678) }} {{ '{:g}'.format(0.0001) }} {{ '{:b}'.format(5) }} {{ '{}'.format(none) }} {{ '{!s:>6}'.format(none) }}
{{ '{}'.format(1.0) }} {{ '{}'.format([1]) }} {{ '{}'.format(true) }} {{ '{:d}'.format(true) }} {{ '{:5}|'.format(42) }} {{ '{:5}|'.format('a') }} {{ '{:<5}|'.format(1.5) }} {{ '{0.real}'.format(1) is string }}
{{ '{} {}'.format(1) }}
{{ '{'.format(1) }}
{{ '{x}'.format(1) }}
{{ '{:d}'.format('a') }}
{{ s.zzz() }}
{{ s.upper(1) }}
{{ s.maketrans }}
{{ 'a'.join }}
{{ s.upper().lower().strip().split('o')[0] }} {{ (s + '!').upper() }} {{ 'abc'.upper()[0] }} {{ ('a' ~ 'b').upper() }} {{ s.strip().split()|last }}
{{ '%s' % 'a' }} {{ '%s %s' % (1, 2) }} {{ '%d' % 5 }} {{ '%d' % 5.7 }} {{ '%05d' % 42 }} {{ '%5d|%-5d|%+d' % (1, 2, 3) }} {{ '%.2f' % 3.14159 }} {{ '%5.1f|' % 2.25 }} {{ '%x %X %o' % (255, 255, 8) }} {{ '%r' % 'a' }} {{ '%%' % () }} {{ '%c' % 'x' }} {{ '%c' % 65 }} {{ '%e' % 12345.6 }} {{ '%g' % 1e10 }} {{ '%(a)s %(b)d' % {'a': 1, 'b': 2} }} {{ '%s' % none }} {{ '%s' % [1, 'a'] }} {{ '%10s|%-10s|' % ('a', 'b') }} {{ '%.3s' % 'abcdef' }} {{ '%i' % 3 }} {{ '%s' % (1,) }} {{ '%*d' % (5, 3) }} {{ '%#x' % 255 }} {{ '%s' % undefined_thing }}| {{ '% d' % 5 }} {{ 'x' % () }} {{ 'x' % [] }} {{ '%s' % {} }}
{{ '%d' % 'a' }}
{{ '%s %s' % 1 }}
{{ '%s' % (1, 2) }}
{{ '%q' % 1 }}
{{ '%' % 1 }}
{{ 'x' % 1 }}
{{ '%(a)s' % 1 }}
{{ '%(z)s' % {'a': 1} }}
{{ pct % 1 }}
# methods of dicts and lists
{{ d.get('a') }} {{ d.get('zz') }} {{ d.get('zz', 5) }}
{{ d.get('zz', 'x') }} {{ d.get('a', 'x') }} {{ {}.get('a', {}).get('b') }} {{ d.keys() }} {{ d.values() }} {{ {'a': 1}.items() }} {{ d.keys()|list }} {{ d.values()|list }} {{ d.items()|length }} {{ d.keys()|length }} {{ 'a' in d.keys() }} {{ 1 in d.values() }} {{ d.copy() == d }} {{ d.items()|list|first }}
{{ d.get() }}
{{ d.get([]) }}
{{ d.zzz() }}
{{ d.keys()[0] }}|
{{ d.items().x }}|
{{ d.setdefault('a', 1) }}
{{ people[0].get('name') }} {{ people[2].get('tags', []) }} {{ people[0].name.upper() }} {{ people[0].tags[0] }} {{ people|map(attribute='name')|list|first }}
{{ nums.index(1) }} {{ nums.count(1) }} {{ (1, 2).index(2) }} {{ nums.copy() }} {{ [1, 2, 1].count(1) }} {{ range(5).index(3) }} {{ range(5).count(3) }}
{{ nums.index(99) }}
{{ nums.insert(0, 1) }}
{{ nums.extend([1]) }}
{{ nums.reverse() }}
{{ nums.remove(1) }}
{{ dict(a=1, b=2) }} {{ dict({'a': 1}, b=2) }} {{ dict([['a', 1]]) }} {{ dict() }} {{ dict(a=1).a }} {{ dict(d)|length }}
{{ dict.fromkeys(['a', 'b']) }} {{ dict.fromkeys('ab', 1) }} {{ dict.fromkeys({'k': 1}, [2]).k }} {{ dict.fromkeys([]) }} {{ {'x': 1}.fromkeys(range(2), 's') }} {{ dict.fromkeys(['b', 'a', 'b'])|list }} {{ dict.fromkeys }}
{{ dict.fromkeys() }}
{{ dict.fromkeys(1) }}
{{ dict.fromkeys([[]]) }}
{{ range.fromkeys }}|{{ namespace.fromkeys }}|
{{ dict(1) }}
{{ dict([1]) }}
{{ dict({'a': 1}, {'b': 2}) }}
# functions
{{ raise_exception('boom') }}
{{ raise_exception() }}
{% if no %}{{ raise_exception('boom') }}{% endif %}ok
{{ raise_exception(n) }}
{{ strftime_now('%Y-%m-%d %H:%M:%S') }} {{ strftime_now('%d %b %Y') }} {{ strftime_now('%A %B %j %p %I %y %a %%') }} {{ strftime_now('') }}| {{ strftime_now('%e %-d %-m') }} {{ strftime_now('%c|%x|%X|%D|%F|%T|%R') }} {{ strftime_now('%U %W %u %w %G %V %s'[:17]) }} {{ strftime_now('x日') }}
{{ strftime_now() }}
{{ strftime_now(1) }}
{{ cycler('a', 'b').next() }} {% set c = cycler(1, 2) %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}
{{ cycler() }}
{% set j = joiner(', ') %}{% for i in nums %}{{ j() }}{{ i }}{% endfor %} {% set j = joiner() %}{{ j() }}a{{ j() }}b
{{ range.x }}|
{{ unknown_function() }}
{{ namespace.x }}|
{{ context }}|{{ env }}|{{ __name__ }}|{{ varargs }}|{{ caller }}|
# refused here
{{ "\N{BULLET}" }}
{{ {(1, 2): 3}[1, 2] }}
{{ nums[] }}
{% with a = 1 %}{{ a }}{% endwith %}
{% block a %}x{% endblock %}
{% autoescape true %}{{ html }}{% endautoescape %}
{% include 'x' %}
{% import 'x' as y %}
{% do nums.append(1) %}
{% macro m() %}{{ varargs }}{% endmacro %}{{ m(1) }}
{% macro m() %}{{ kwargs }}{% endmacro %}{{ m(a=1) }}
{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}body{% endcall %}
{% for i in nested recursive %}{{ loop(i) if i is iterable else i }}{% endfor %}
{{ m(*[1]) }}
{{ dict(**d) }}
{{ s|striptags }}
{{ s|urlencode }}
{{ s|urlize }}
{{ s|truncate(5) }}
{{ s|wordwrap(3) }}
{{ d|xmlattr }}
{{ people|groupby('age')|list }}
{{ nums|random }}
{{ nums|pprint }}
{{ n|filesizeformat }}
{{ nums|map|list }}
{{ people|selectattr|list }}
{{ 'a\tb'.expandtabs() }}
{{ 'é'.encode() }}
{{ 'Straße'.casefold() }}
{{ '%a' % 'é' }}
{{ '{:{}}'.format('a', 5) }}
{{ ('{}'|safe).format('<') }}
{{ nums.pop() }}
{{ nums.clear() }}
{{ lipsum() }}
{{ self.x }}
{{ 9223372036854775808 }}
{{ 9223372036854775807 + 1 }}
{{ 10 ** 20 }}
{{ "\ud800" }}
# user text
{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}
{{ messages[0].content|upper }}{{ messages[0].content * 3 }}{{ messages|map(attribute='content')|join(' - ') }}{{ messages[1].content ~ 'x' ~ messages[2].content }}
{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t + '<' + m.content + '>' %}{% endfor %}{{ ns.t }}{{ ns.t[1:-1] }}{{ ns.t[::-1] }}{{ ns.t.split('><') }}{{ ns.t|replace('<', '[') }}{{ ns.t|length }}
{{ messages|map(attribute='content')|list }}{{ messages[0].content|tojson }}{{ {'a': messages[0].content}|tojson(ensure_ascii=true)|length }}{{ '%s|%5s' % (messages[0].content, messages[1].content) }}{{ '{}<{:>4}>'.format(messages[0].content, messages[1].content) }}
{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m(messages[0].content) }}{% set b %}({{ messages[1].content }}){% endset %}{{ b }}{{ b|trim('()') }}{% filter replace('x', 'y') %}x{{ messages[2].content }}x{% endfilter %}
{{ (messages|first).content.strip() }}{{ messages[0].content.center(5, '*') }}{{ ' '.join([messages[0].content, 'x']) }}{{ messages[0].content.replace('甲', 'template') }}{{ messages[0].content.partition('甲') }}{{ (messages|map(attribute='content')|join)[1] }}
'''


def features():
    group = ""
    for i, line in enumerate(FEATURES.strip("\n").split("\n")):
        if line.startswith("# "):
            group = line[2:]
            continue
        case = {"group": group, "name": f"line {i}", "template": unescape(line), "context": CONTEXT,
                "marks": group == "user text", "refused": group == "refused here"}
        yield case
        prints = re.findall(r"\{\{ .*? \}\}(?=[ |]|$)", line)
        if len(prints) > 1 and "{%" not in line and "{#" not in line and group != "text and white space":
            for text in prints:  # each alone too, so that one difference hides no other
                yield {**case, "template": text}


def characters():
    """Every character of planes 0 and 1 that this Python's Unicode has through the filters and methods that look at its properties."""
    whole = ["chars|upper", "chars|lower", "chars|capitalize", "chars|title", "chars.title()", "chars.swapcase()", "chars.split()",
             "chars.splitlines()", "chars|wordcount", "chars|tojson(true)", "[chars]", "chars.upper().lower()"]
    each = ["isalpha", "isalnum", "isdigit", "isnumeric", "isspace", "isprintable", "isupper", "islower", "istitle"]
    for first in range(0, 0x20000, 0x800):
        if 0xD800 <= first < 0xE000:
            continue
        chars = "".join(c for c in map(chr, range(first, first + 0x800)) if unicodedata.category(c) != "Cn")
        chars = chars.replace("Σ", "")  # the rule of the final sigma is not followed
        for e in whole:
            yield {"group": "characters", "name": f"{first:x} {e}", "template": "{{ " + e + " }}", "context": {"chars": chars}}
        for e in each:
            yield {"group": "characters", "name": f"{first:x} {e}", "context": {"chars": chars},
                   "template": "{% for c in chars %}{% if c." + e + "() %}{{ c }}{% endif %}{% endfor %}"}


def unescape(line):
    out, in_code, i = [], False, 0
    while i < len(line):
        two = line[i:i + 2]
        if two in ("{{", "{%"):
            in_code = True
        elif two in ("}}", "%}"):
            in_code = False
        if not in_code and two in ("\\n", "\\t", "\\r"):
            out.append({"n": "\n", "t": "\t", "r": "\r"}[two[1]])
            i += 2
        elif not in_code and two == "\\u":
            out.append(chr(int(line[i + 2:i + 6], 16)))
            i += 6
        else:
            out.append(line[i])
            i += 1
    return "".join(out)
