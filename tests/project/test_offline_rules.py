"""What the offline model says: only what the messages of one request tell it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from project.offline_rules import Call, facts, reply_to


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def function(name: str, **properties: dict[str, Any]) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TIME = function("current_time", city={"type": "string"})
SUM = function("calculate", expression={"type": "string"})
ORDER = function("order_status", order_id={"type": "string"})


def say(*messages: dict[str, Any], tools: tuple[Any, ...] = ()) -> str:
    return reply_to(messages, tools).text


class TestMemory:
    def test_a_name_told_earlier_is_known(self):
        told = [user("My name is Ada."), assistant("Nice to meet you, Ada.")]
        assert say(*told, user("What is my name?")) == "Your name is Ada."

    def test_a_name_that_was_not_sent_is_not_known(self):
        assert say(user("What is my name?")) == (
            "I was not told your name: it is not in the 1 message that I was sent."
        )

    def test_only_user_messages_count_as_told(self):
        answer = say(assistant("My name is Eliza."), user("What is my name?"))
        assert answer.startswith("I was not told your name")

    def test_the_later_of_two_values_counts(self):
        told = [user("My name is Ada."), user("Call me Grace, please.")]
        assert say(*told, user("Who am I?")) == "Your name is Grace."

    @pytest.mark.parametrize(
        ("told", "asked", "answer"),
        [
            ("My favourite colour is blue.", "What is my favourite colour?", "blue"),
            ("my dog is Rex and I am tired", "Do you remember my dog?", "Rex"),
            ("I am called Zoë.", "What's my name?", "Zoë"),
            ("My name is 花子。", "What is my name?", "花子"),
            ("I live in Paris.", "Where do I live?", "Paris"),
            ("My name is Ada, and my cat is Tom.", "Remind me of my cat?", "Tom"),
        ],
    )
    def test_facts(self, told, asked, answer):
        assert say(user(told), user(asked)).removesuffix(".").endswith(answer)

    def test_a_question_tells_nothing(self):
        assert facts([user("Is my name is Bob? What is my name?")]) == {}

    def test_count(self):
        sent = [{"role": "system", "content": "Be brief."}, user("a"), assistant("b")]
        assert say(*sent, user("How many messages were you sent?")) == (
            "I was sent 4 messages: 1 assistant, 1 system, 2 user."
        )

    def test_summary_and_first_message(self):
        sent = [user("I like tea."), assistant("Good."), user("And coffee.")]
        summary = say(*sent, user("What did we talk about?"))
        assert summary == "The last 2 things you said: “I like tea.”; “And coffee.”."
        first = say(*sent, user("What did I say first?"))
        assert first.endswith("“I like tea.”")

    def test_nothing_to_sum_up(self):
        assert say(user("Summarise")) == "There is nothing before this message."

    def test_parts_are_read(self):
        parts = [
            {"type": "text", "text": "My name is Ada."},
            {"type": "image_url", "image_url": {"url": "data:,"}},
        ]
        assert say(user(parts)) == "Nice to meet you, Ada."

    def test_anything_else_is_echoed_with_the_count(self):
        assert say(user("The sky."), assistant("Yes."), user("Still   there")) == (
            "You said: “Still there” I was sent 3 messages."
        )


class TestTools:
    def call(self, text: str, *tools: dict[str, Any], choice: Any = None) -> Any:
        return reply_to([user(text)], tools, choice).calls

    def test_the_tool_that_fits_is_called(self):
        tools = (ORDER, SUM, TIME)
        assert self.call("What time is it in Paris?", *tools) == (
            Call("current_time", '{"city": "Paris"}'),
        )
        assert self.call("What is 12 * (3 + 4)?", *tools) == (
            Call("calculate", '{"expression": "12 * (3 + 4)"}'),
        )
        assert self.call("What is the status of order A-17?", *tools) == (
            Call("order_status", '{"order_id": "A-17"}'),
        )

    def test_two_places_are_two_parallel_calls(self):
        calls = self.call("What time is it in Paris and in New York?", TIME)
        cities = [json.loads(call.arguments)["city"] for call in calls]
        assert cities == ["Paris", "New York"]

    def test_no_tool_offered(self):
        assert self.call("What time is it in Paris?", SUM) == ()
        assert say(user("What time is it?")) == (
            "I was offered no tool for that, and I do not guess."
        )

    def test_a_date_is_no_sum(self):
        assert self.call("We met on 2024-05-15.", SUM) == ()

    def test_tool_choice(self):
        asked = "What is 1 + 1?"
        named = {"type": "function", "function": {"name": "order_status"}}
        assert self.call(asked, SUM, choice="none") == ()
        assert [c.name for c in self.call(asked, SUM, ORDER, choice=named)] == [
            "order_status"
        ]
        assert [c.name for c in self.call("Hm.", SUM, choice="required")] == [
            "calculate"
        ]

    def test_required_parameters_get_a_value_of_their_type(self):
        tool = function(
            "convert",
            amount={"type": "number"},
            unit={"enum": ["km", "mile"]},
            exact={"type": "boolean"},
            tags={"type": "array"},
        )
        (call,) = self.call("Convert 3.5 to mile", tool)
        assert json.loads(call.arguments) == {
            "amount": 3.5,
            "unit": "mile",
            "exact": False,
            "tags": [],
        }

    def test_results_are_put_into_words_in_order(self):
        calls = [
            {"id": "1", "type": "function", "function": {"name": "current_time"}},
            {"id": "2", "type": "function", "function": {"name": "calculate"}},
        ]
        answer = say(
            user("?"),
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "1", "content": "14:05."},
            {"role": "tool", "tool_call_id": "2", "content": [{"text": "4"}]},
            tools=(TIME, SUM),
        )
        assert answer == "current_time answers: 14:05. calculate answers: 4."


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=60), min_size=1, max_size=6))
def test_any_text_gets_the_same_answer_each_time(texts):
    messages = [user(text) for text in texts]
    first = reply_to(messages, (TIME, SUM, ORDER))
    assert first == reply_to(messages, (TIME, SUM, ORDER))
    assert first.text or first.calls
