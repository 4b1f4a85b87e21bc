"""A chat template that loops without output ends within its processor time, and others render as jinja2 alone would."""

import time

import pytest
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sluice_engine.text.chat_template import ChatTemplate
from sluice_engine.text.template_budget import TemplateSlow, TimeBudget

MESSAGES = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
MANY = "range(100000)"
ENDLESS = {
    "nested loops": f"{{% for a in {MANY} %}}{{% for b in {MANY} %}}{{% endfor %}}{{% endfor %}}",
    "loops that reject all": f"{{% for a in {MANY} %}}{{% for b in {MANY} if not a %}}x{{% endfor %}}{{% endfor %}}",
    "a loop within itself": "{% for a in range(60) recursive %}{% if loop.depth < 60 %}{{ loop(range(60)) }}{% endif %}{% endfor %}",
    "a macro within itself": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "a variable of the same purpose": f"{{% set budget = none %}}{{% for a in {MANY} %}}{{% for b in {MANY} %}}{{% endfor %}}{{% endfor %}}",
}  # fmt: skip
ORDINARY = [
    "{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ m.role }}{% if loop.last %}.{% endif %}{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.length }}{{ m.content }}{% else %}none{% endfor %}",
    "{% for m in [] %}x{% else %}none{% endfor %}",
    "{% macro say(m) -%} {{ m.content }}! {%- endmacro %}{% for m in messages %}{{ say(m) }}{% endfor %}",
    "{% for m in messages recursive %}{{ m.content }}{% if loop.depth < 3 %}{{ loop(messages) }}{% endif %}{% endfor %}",
    "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.content }}{% break %}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for i in range(300) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
]


@pytest.mark.parametrize("name", ENDLESS)
def test_an_endless_template_is_stopped_after_its_processor_time(name: str) -> None:
    template = ChatTemplate(ENDLESS[name], (), {})
    began = time.thread_time()
    with pytest.raises(TemplateSlow, match=r"longer than 0.05 s of processor time .* send fewer"):
        template.render(MESSAGES, seconds=0.05)
    assert 0.05 <= time.thread_time() - began < 1.0


@pytest.mark.parametrize("source", ORDINARY)
def test_other_templates_render_as_ever(source: str) -> None:
    plain = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    expected = plain.from_string(source).render(messages=MESSAGES)
    assert expected and ChatTemplate(source, (), {}).render(MESSAGES) == [(expected, False)]


def test_a_request_cannot_replace_the_budget() -> None:
    template = ChatTemplate(ENDLESS["nested loops"], (), {})
    with pytest.raises(TemplateSlow):
        template.render(MESSAGES, {"time budget": None}, seconds=0.01)


def test_the_budget_counts_from_its_start() -> None:
    now = 5.0
    budget = TimeBudget(2.0, lambda: now)
    for _ in range(100):
        budget.spend()
    now = 7.5
    with pytest.raises(TemplateSlow, match="longer than 2 s"):
        for _ in range(100):
            budget.spend()
