"""Real recorded answers decode to what they say, however they are cut."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from convmem.chat import Completion, Delta, ReasoningDelta, TextDelta, ToolCallDelta
from convmem.dialects.openai import (
    StreamDecoder,
    decode_message,
    decode_reply,
    encode_message,
)
from convmem.exceptions import (
    ProviderAuthError,
    ProviderError,
    ProviderRateLimited,
    ProviderRejected,
    ToolUseFailed,
)
from tests.dialects.recordings import SHARED, Recording, load

if not SHARED.is_dir():
    pytest.skip("../shared is not here", allow_module_level=True)

WHOLE = load(streams=False)
STREAMS = load(streams=True)
PLAIN = [r for r in STREAMS if '"error"' not in r.response["sse_text"]]
BROKEN = [r for r in STREAMS if '"error"' in r.response["sse_text"]]
BY_STATUS = {
    400: ProviderRejected,
    401: ProviderAuthError,
    404: ProviderRejected,
    429: ProviderRateLimited,
}


def name(recording: Recording) -> str:
    return recording.name


def test_recorded_files_are_all_here() -> None:
    assert len(WHOLE) + len(STREAMS) == 40


@pytest.mark.parametrize("recording", WHOLE, ids=name)
def test_recorded_reply(recording: Recording) -> None:
    status = recording.response["status"]
    body = json.loads(recording.body)
    if status >= 400:
        with pytest.raises(BY_STATUS[status]) as caught:
            decode(recording)
        check_error(caught.value, body["error"], status)
        return
    completion = decode(recording)
    choice = body["choices"][0]
    check_message(completion, choice["message"])
    assert completion.raw_finish_reason == choice.get("finish_reason")
    assert completion.model == body["model"]
    assert completion.id == body["id"]
    usage = body["usage"]
    assert completion.usage is not None
    assert completion.usage.input_tokens == usage["prompt_tokens"]
    assert completion.usage.output_tokens == usage["completion_tokens"]
    assert completion.usage.total_tokens == usage["total_tokens"]
    assert completion.message.usage == completion.usage
    assert len(completion.extra.get("choices", [])) == len(body["choices"]) - 1


def decode(recording: Recording) -> Completion:
    response = recording.response
    return decode_reply(
        response["status"], response["headers"], recording.body, recording.profile
    )


def check_error(error: ProviderError, body: dict[str, Any], status: int) -> None:
    assert error.upstream_status == status
    assert body["message"] in error.message
    expected = body.get("code") or body.get("type")
    assert error.upstream_code == (str(expected) if expected else None)
    failed = body.get("failed_generation")
    assert isinstance(error, ToolUseFailed) == (body["code"] == "tool_use_failed")
    assert error.details.get("failed_generation") == failed


def check_message(completion: Completion, wire: dict[str, Any]) -> None:
    message = completion.message
    assert message.text == (wire.get("content") or wire.get("refusal") or "")
    calls = wire.get("tool_calls") or []
    assert [(c.name, c.arguments) for c in message.tool_calls] == [
        (c["function"]["name"], c["function"]["arguments"]) for c in calls
    ]
    assert all(call.id for call in message.tool_calls)
    for call, given in zip(message.tool_calls, calls, strict=True):
        assert not given["id"] or call.id == given["id"]
    reasoning = wire.get("reasoning_content") or wire.get("reasoning")
    found = [part.text for part in message.parts if type(part).__name__[:3] == "Rea"]
    assert found == ([reasoning] if reasoning else [])


def play(
    recording: Recording, pieces: list[bytes]
) -> tuple[list[Delta], Completion, ProviderError | None]:
    decoder = StreamDecoder(recording.profile, recording.response["headers"])
    deltas: list[Delta] = []
    try:
        for piece in pieces:
            deltas += decoder.feed(piece)
        return deltas, decoder.finish(), None
    except ProviderError as error:
        return deltas, decoder.partial(), error


@pytest.mark.parametrize("recording", STREAMS, ids=name)
def test_recorded_stream_byte_at_a_time_equals_whole(recording: Recording) -> None:
    data = recording.stream
    whole = play(recording, [data])
    single = play(recording, [data[i : i + 1] for i in range(len(data))])
    assert single[:2] == whole[:2]
    assert str(single[2]) == str(whole[2])


@pytest.mark.parametrize("recording", STREAMS, ids=name)
def test_recorded_stream_in_random_pieces_equals_whole(recording: Recording) -> None:
    data = recording.stream
    whole = play(recording, [data])
    dice = random.Random(recording.name)
    for most in (2, 3, 7, 50, 1000):
        pieces, at = [], 0
        while at < len(data):
            size = dice.randint(0, most)
            pieces.append(data[at : at + size])
            at += size
        again = play(recording, pieces)
        assert again[:2] == whole[:2]
        assert str(again[2]) == str(whole[2])


@pytest.mark.parametrize("ending", ["\r\n", "\r"], ids=["CRLF", "CR"])
@pytest.mark.parametrize("recording", STREAMS, ids=name)
def test_recorded_stream_with_other_line_ends(
    recording: Recording, ending: str
) -> None:
    whole = play(recording, [recording.stream])
    data = recording.response["sse_text"].replace("\n", ending).encode()
    for size in (1, 5, len(data)):
        pieces = [data[i : i + size] for i in range(0, len(data), size)]
        assert play(recording, pieces)[:2] == whole[:2]


@pytest.mark.parametrize("recording", PLAIN, ids=name)
def test_recorded_stream_says_what_its_chunks_say(recording: Recording) -> None:
    deltas, completion, error = play(recording, [recording.stream])
    assert error is None
    chunks = [
        json.loads(line.split("data: ", 1)[1])
        for line in recording.response["sse_text"].split("\n")
        if "data: {" in line
    ]
    mine = [c for chunk in chunks for c in chunk["choices"] if c["index"] == 0]
    text = "".join(c["delta"].get("content") or "" for c in mine)
    assert completion.text == text
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == text
    reasons = [c["finish_reason"] for c in mine if c["finish_reason"]]
    assert completion.raw_finish_reason == (reasons[-1] if reasons else None)
    usages = [c.get("usage") or c.get("x_groq", {}).get("usage") for c in chunks]
    usages = [usage for usage in usages if usage]
    if usages:
        assert completion.usage is not None
        assert completion.usage.output_tokens == usages[-1]["completion_tokens"]
    calls = {d.index: d for d in reversed(deltas) if isinstance(d, ToolCallDelta)}
    assert len(calls) == len(completion.tool_calls)
    for index, call in enumerate(completion.tool_calls):
        assert (calls[index].id, calls[index].name) == (call.id, call.name)
        assert json.loads(call.arguments) is not None
    if completion.tool_calls:
        assert completion.finish_reason == "tool_calls"


@pytest.mark.parametrize("recording", BROKEN, ids=name)
def test_recorded_error_inside_a_stream(recording: Recording) -> None:
    deltas, partial, error = play(recording, [recording.stream])
    assert isinstance(error, ProviderRejected)
    assert error.upstream_status == 400
    assert error.partial == partial
    assert partial.message.status == "incomplete"
    reasoning = "".join(d.text for d in deltas if isinstance(d, ReasoningDelta))
    assert reasoning
    assert partial.message.parts[0].text == reasoning  # type: ignore[union-attr]


def test_recorded_error_kinds_inside_streams() -> None:
    found = {r.name: play(r, [r.stream])[2] for r in BROKEN}
    kinds = {name: error.details["kind"] for name, error in found.items() if error}
    assert kinds == {
        "openai_compat/07-openrouter-error-inside-stream": "invalid_request",
        "groq/07-stream-error-tool-use-failed": "tool_use_failed",
    }


@pytest.mark.parametrize("recording", PLAIN, ids=name)
def test_recorded_stream_cut_anywhere_is_incomplete(recording: Recording) -> None:
    data = recording.stream
    end = data.index(b"data: [DONE]") + len(b"data: [DONE]")
    for at in range(0, end - 1, max(end // 40, 1)):
        decoder = StreamDecoder(recording.profile)
        deltas = decoder.feed(data[:at])
        with pytest.raises(ProviderError) as caught:
            decoder.finish()
        assert caught.value.code == "stream_incomplete"
        partial = caught.value.partial
        assert partial is not None
        text = "".join(d.text for d in deltas if isinstance(d, TextDelta))
        assert partial.text == text


@pytest.mark.parametrize("recording", load(), ids=name)
def test_recorded_request_messages_there_and_back(recording: Recording) -> None:
    for wire in recording.request["json"]["messages"]:
        expected = {key: value for key, value in wire.items() if value is not None}
        expected.setdefault("content", None)
        assert encode_message(decode_message(wire)) == expected


@pytest.mark.parametrize("recording", WHOLE, ids=name)
def test_recorded_reply_message_there_and_back(recording: Recording) -> None:
    if recording.response["status"] != 200:
        return
    wire = json.loads(recording.body)["choices"][0]["message"]
    once = decode_message(wire, seed="x")
    assert decode_message(encode_message(once)) == once
    for key in ("content", "tool_calls", "reasoning", "reasoning_content"):
        if wire.get(key) and key != "tool_calls":
            assert encode_message(once)[key] == wire[key]


def wire_messages(value: Any) -> Iterator[dict[str, Any]]:
    """Every message in a tree of JSON."""
    if isinstance(value, dict):
        if isinstance(value.get("messages"), list):
            yield from value["messages"]
        for inner in value.values():
            yield from wire_messages(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from wire_messages(inner)


@pytest.mark.parametrize(
    ("name", "count"),
    [("recorded_openai_chat.json", 51), ("taubench_airline_gpt4o.jsonl", 456)],
)
def test_recorded_conversation_there_and_back(name: str, count: int) -> None:
    text = (SHARED / "conversations" / name).read_text()
    lines = [text] if name.endswith(".json") else text.splitlines()
    wires = [wire for line in lines for wire in wire_messages(json.loads(line))]
    assert len(wires) == count
    for index, wire in enumerate(wires):
        message = decode_message(wire, index=index)
        again = encode_message(message)
        assert decode_message(again) == message
        assert again["role"] == wire["role"]
        assert (again["content"] or "") == (wire.get("content") or "")
        given = wire.get("tool_calls") or []
        assert [c["function"] for c in again.get("tool_calls", [])] == [
            c["function"] for c in given
        ]
