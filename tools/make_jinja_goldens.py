#!/usr/bin/env python3
"""Makes tests/goldens/llm/chat-templates.json: small templates, what they are given, and what Jinja2 makes of them, set up as
Hugging Face's tokenizers do for chat templates.

    make_jinja_goldens.py tests/goldens/llm/chat-templates.json         (needs jinja2)

A case is [template, variables, result]; the result is null where Jinja2 refuses the template or fails.
"""
import json
import sys

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

V = {
    "messages": [
        {"role": "system", "content": "  Be brief. "},
        {"role": "user", "content": "Hi <b>\"you\"</b> & 'me'\n"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello!", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.5, "s": "ü\n"}}}]},
        {"role": "tool", "content": "42"},
    ],
    "empty": [],
    "nothing": None,
    "yes": True,
    "n": 7,
    "f": 2.5,
    "s": "Grüße, Welt\t日本 \n",
    "d": {"b": 1, "a": [1, 2, {"c": None}], "items": "own"},
    "nums": [3, 1, 2, 3],
    "words": ["b", "A", "c", "a"],
}

EXPRESSIONS = """
1 + 2 * 3 ** 2 // 4 % 5 - -1
7 // 2, -7 // 2, 7 % 3, -7 % 3, 7 % -3, 7 / 2, 2 ** 10, 2 ** -1
1 ~ 'a' ~ none ~ true ~ 1.0 ~ 1e20 ~ 1e-7 ~ 0.1
'a' 'b' + "c"
'it\\'s' + "say \\"x\\"" + '\\t|\\n|\\\\'
"\\u00e9\\x41"
1 < 2 < 3, 1 < 2 > 3, 1 == 1.0, 'a' < 'b', [1, 2] == [1, 2], 'a' == 1
not true or false and true
'b' in 'abc', 'x' not in 'abc', 3 in nums, 'a' in d, 'z' in d
n if n > 5 else 'small'
'x' if false
(1, 2)
[1, 'two', none, true, 2.5, {'k': 'v'}]
{'a': 1, 'b': [1, 2]}
d
d.a[2].c
d['a'][0], d.a[-1], d.a[9] is defined, d.nope is defined
d.items() | list
d['items']
d.keys() | list, d.values() | list
d.get('b'), d.get('zz'), d.get('zz', 5)
s[0], s[-3:], s[:5], s[2:7:2], s[::-1]
nums[1:], nums[:-1], nums[::2], nums[::-1], nums[5:], nums[-2:]
s | length, nums | length, d | length, '' | length
s | trim, s | upper, s | lower, s | title, s | capitalize
'  x '.strip(), 'xxaxx'.strip('x'), 'xxaxx'.lstrip('x'), 'xxaxx'.rstrip('x')
'a,b,,c'.split(','), ' a  b '.split(), 'a-b-c'.split('-', 1), 'a-b-c'.rsplit('-', 1)
'abc'.startswith('ab'), 'abc'.endswith('bc'), 'abc'.startswith(('x', 'a')), 'abc'.find('c'), 'abc'.find('z')
'abcabc'.replace('b', 'X'), 'abcabc'.replace('b', 'X', 1), 'abcabc' | replace('c', '')
'a\\nb\\r\\nc'.splitlines(), 'Ab'.isupper(), 'AB'.isupper(), 'a1'.isalnum(), '12'.isdigit(), ' '.isspace(), 'abab'.count('ab')
'prefix-x'.removeprefix('prefix-'), 'x.txt'.removesuffix('.txt')
', '.join(words), words | join('/'), nums | join
d | tojson
messages[2].tool_calls | tojson
messages[2].tool_calls | tojson(indent=2)
'ü"\\\\\\n\\u0001' | tojson
{'z': 1, 'a': 2} | tojson(sort_keys=true)
[1.0, 2.5, 1e30, true, none] | tojson
nums | sort, nums | sort(reverse=true), words | sort, words | sort(case_sensitive=true), nums | unique | list
nums | first, nums | last, nums | max, nums | min, nums | sum, nums | reverse | list
messages | map(attribute='role') | join(' ')
messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list
messages | rejectattr('role', 'eq', 'user') | list | length
messages | selectattr('tool_calls', 'defined') | list | length
messages | selectattr('tool_calls') | list | length
nums | select('odd') | list, nums | reject('gt', 2) | list, words | map('upper') | list
d | dictsort | map('first') | list
d | items | list
undefined_thing | default('x'), '' | default('x'), '' | default('x', true), none | d('y', true)
missing is defined, missing is undefined, nothing is none, n is number, n is integer, f is float, s is string
d is mapping, nums is sequence, nums is iterable, s is iterable, yes is boolean, yes is true, yes is false, n is odd, n is even
n is divisibleby 7, n is divisibleby(2), n is eq 7, n is in [7], n is not none
'abc' is lower, 'ABC' is upper, 5 is not odd
'12' | int, 'x' | int, 'x' | int(3), '2.5' | float, 3.9 | int, -3 | abs, 2.567 | round(1), 2.5 | round, '0x' | int
'<a href="x">\\'&' | e
'a\\nb\\n\\nc' | indent(2), 'a\\nb' | indent(2, true), 'a\\nb' | indent
range(5) | list, range(2, 8, 3) | list, range(5, 0, -2) | list
dict(a=1, b=2)
[1] + [2, 3], 'ab' * 3, [0] * 3
n | string + '!'
messages[0]['content'] | trim ~ '|'
(n, s | trim)
true, True, none, None, false
1_000
not d.nope
missing
missing.x
missing + 1
none + 1
'a' + 1
1 / 0
d.a.b.c
nums()
s | nosuchfilter
s is nosuchtest
{'a'
1 +
'open
""".strip("\n").split("\n")

TEMPLATES = [
    "{% for m in messages %}{{ loop.index }}/{{ loop.length }} {{ m.role }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for m in messages if m.role != 'system' %}{{ loop.index0 }}{{ loop.first }}{{ loop.revindex }}{{ m['role'] }};{% else %}none{% endfor %}",
    "{% for x in empty %}x{% else %}nothing{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for x in nums %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in nums %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {{ loop.cycle('a', 'b') }} {{ loop.changed(x) }};{% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}",
    "{% set ns = namespace(x=1, y='a') %}{% for i in nums %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}",
    "{% if n > 10 %}a{% elif n > 5 %}b{% elif n > 1 %}c{% else %}d{% endif %}",
    "{% if true %}{% set inner = 3 %}{% endif %}{{ inner }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}",
    "{% set block %}x{{ n }}\n{% endset %}[{{ block }}]{% set up | upper %}abc{% endset %}{{ up }}",
    "{% macro m(a, b='B', c=none) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(1, c=3) }}{{ m('x', b='y', c='z') }}",
    "{% macro f(x) %}{% if x > 0 %}{{ x }}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "{% set g = 'global' %}{% macro m() %}{{ g }}{{ n }}{{ hidden }}{% endmacro %}{% for hidden in [1] %}{{ m() }}{% endfor %}",
    "{% macro m(x) -%}\n  {{ x }}\n{%- endmacro %}{{ m(1) | trim }}|{{ m(2) }}|",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}",
    "{% filter upper %}abc {{ s }}{% endfilter %}",
    "{% raw %}{{ not.this }} {% if %}{% endraw %}{{ n }}",
    "a{# comment {{ n }} #}b{#- x -#}  c",
    "  {% if true %}\n    x\n  {% endif %}\n  y\n",
    "x {% if true %} y {% endif %} z\n\n",
    "a\n  {%- if true -%}  \n b \n {%- endif -%} \n c",
    "a\n  {%+ if true %}\nb{% endif +%}\nc",
    "{{ 'a' }}\n{{ 'b' }}\n\n{% set x = 1 %}\n\n{{ x }}\n",
    "{{- ' a ' -}}   {{ 'b' -}}  \n c",
    "    {# c #}\n  text\n",
    "{% for x in [1, 2] %}\n  - {{ x }}\n{% endfor %}\nend",
    "line\r\nnext\r\n{% if true %}\r\nx{% endif %}\r\n",
    "{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a': 1}.a }}",
    "{{ '{{' }}{{ '%}' }}{{ \"}}\" }}",
    "{% for a in [1, 2] %}{% for b in [3, 4] %}{{ loop.index }}{{ a }}{{ b }} {% endfor %}{{ loop.index }}{% endfor %}",
    "{% for a, b in [(1, 2), (3, 4)] %}{{ a + b }} {% endfor %}",
    "{% for c in 'aü本' %}{{ c }}.{% endfor %}",
    "{% for k in d %}{{ k }} {% endfor %}",
    "{% for m in messages[1:] | reverse %}{{ m.role }} {% endfor %}",
    "{%- if messages[0]['role'] == 'system' -%}{%- set sys = messages[0]['content'] | trim -%}{%- set messages = messages[1:] -%}{%- endif -%}{{ sys }}{{ messages | length }}",
    "{{ messages[2].content.split('</think>')[-1].lstrip('\\n') }}",
    "{{ messages[2].content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}",
    "{% generation %}x{{ n }}{% endgeneration %}",
    "{% set x = namespace(found=false) %}{% for m in messages %}{% if m.role == 'tool' %}{% set x.found = true %}{% endif %}{% endfor %}{{ x.found }}",
    "{{ (messages | map(attribute='content') | join('|')) | length }}",
    "{% set d2 = dict(d, z=1) %}{{ d2.z }}{{ d2 | length }}",
    "{{ [1, 2, 3] | map('string') | join('+') }}",
    "{%- for tool in [{'name': 'f', 'parameters': {'type': 'object'}}] %}\n{{ tool | tojson }}\n{%- endfor %}",
    "{% if nothing is not none and nothing.x %}a{% else %}b{% endif %}",
    "{% if not (messages is defined and messages) %}a{% else %}b{% endif %}",
    "{{ 5 if n is defined and n > 3 else 6 }} {{ 'a' if nothing else 'b' if n else 'c' }}",
    "{% for x in range(3) %}{{ x }}{{ ', ' if not loop.last }}{% endfor %}",
    "{{ n }",
    "{% if n %}x",
    "{% endif %}",
    "{% for x in nums %}{% endif %}",
    "{% nosuchtag %}",
    "{% set s.x = 1 %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "{{ raise_exception('no') }}",
    "{{ m(1) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}",
    "{{ nums.append(1) }}",
    "{% break %}",
    "{# open",
    "{% raw %}x",
]


class Generation(jinja2.ext.Extension):
    """{% generation %}: its content, as in Hugging Face's tokenizers."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_content"), [], [], body).set_lineno(line)

    def _content(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    env, cases = environment(), []
    sources = ["{{ " + e + " }}" for e in EXPRESSIONS] + TEMPLATES
    for source in sources:
        try:
            result = env.from_string(source).render(**json.loads(json.dumps(V)))
        except Exception as error:  # whatever it is, the template does not work
            print(type(error).__name__, error, "in", source)
            result = None
        cases.append([source, result])
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump({"made_with": "jinja2 " + jinja2.__version__, "variables": V, "cases": cases}, out, ensure_ascii=False, indent=0)


if __name__ == "__main__":
    main()
