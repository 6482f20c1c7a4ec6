"""What the native API reads and writes.

Requests are strict: an unknown field is refused by name, texts are never trimmed and
numbers are not taken for texts. The rules of messages stand in `convmem.validation`;
the serializers add what a caller over HTTP may not do.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.reverse import reverse

from convmem.api.problems import public_detail
from convmem.conf import settings
from convmem.exceptions import InvalidMessage, RoleForbidden
from convmem.messages import Message, decode, to_dict
from convmem.models import Conversation, Run
from convmem.validation import as_message, check_batch, check_conversation_id

#: Fields of a message that only the server writes.
READ_ONLY = frozenset(
    {"created_at", "model", "position", "sanitized", "status", "supersedes", "usage"}
)

#: Arguments of this API's own addresses.
OWN = frozenset({"conversation_id", "run_id"})


def link(request: Request, name: str, **kwargs: Any) -> str:
    """Return the absolute address of a view of this API, wherever it is mounted.

    Arguments of the place itself (``<slug:tenant>/api/``) are carried over.
    """
    match = request.resolver_match
    namespace = (match.namespace if match else "") or "convmem"
    outer = {k: v for k, v in match.kwargs.items() if k not in OWN} if match else {}
    return reverse(f"{namespace}:{name}", kwargs=outer | kwargs, request=request)


# --- what comes in ---


class ExactText(serializers.Field[str, Any, str, Any]):
    """A text as it was sent: nothing is trimmed, nothing else is taken for a text."""

    default_error_messages = {"invalid": "Must be a string."}

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return data


class ConversationId(ExactText):
    """An exact conversation id of 1 to 255 characters."""

    def to_internal_value(self, data: Any) -> str:
        return check_conversation_id(data)


class StrictSerializer(serializers.Serializer[Any]):
    """A serializer that refuses the fields it does not know."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            unknown = [str(name) for name in data if name not in self.fields]
            if unknown:
                known = ", ".join(self.fields)
                raise serializers.ValidationError(
                    {
                        name: serializers.ErrorDetail(
                            f"Unknown field; known: {known}.", code="unknown_field"
                        )
                        for name in unknown
                    }
                )
        return super().to_internal_value(data)


class AppendableMessages(serializers.Field[list[Message], Any, Any, Any]):
    """The messages that a caller may append to a conversation.

    ``CONVMEM["APPEND_ROLES"]`` says of which roles (by default user, assistant and
    tool, so that a history can be brought along); a system or developer message would
    be an instruction in the project's voice. What the server writes about a message,
    such as its position or usage, cannot be sent.
    """

    def to_internal_value(self, data: Any) -> list[Message]:
        if isinstance(data, list):
            for index, item in enumerate(data):
                _refuse_read_only(item, index)
        messages = check_batch(data)
        for index, message in enumerate(messages):
            _check_role(message, index)
        return messages


class AppendSerializer(StrictSerializer):
    """The body of an append."""

    messages = AppendableMessages()


class Content(serializers.Field[Any, Any, Any, Any]):
    """A user's input: a text or a list of content parts, as a user message."""

    default_error_messages = {"empty": "Must not be empty."}

    def to_internal_value(self, data: Any) -> Message:
        if not isinstance(data, str | list):
            raise InvalidMessage(
                "content must be a string or a list of parts, "
                f"not {type(data).__name__}.",
                field="content",
            )
        message = as_message({"role": "user", "content": data})
        if message.is_empty:
            self.fail("empty")
        return message


class RunRequestSerializer(StrictSerializer):
    """The body of ``POST runs/``."""

    agent_name = ExactText()
    session_id = ConversationId(required=False, allow_null=True)
    content = Content()


def _refuse_read_only(item: Any, index: int) -> None:
    if not isinstance(item, Mapping):
        return
    for name in sorted(READ_ONLY & item.keys()):
        raise InvalidMessage(
            f"Message {index}, field {name!r}: only the server writes it; "
            "leave it out.",
            index=index,
            field=name,
        )


def _check_role(message: Message, index: int) -> None:
    allowed = settings.append_roles
    if message.role not in allowed:
        raise RoleForbidden(
            f"Message {index}: {message.role} messages cannot be appended here; "
            f"allowed roles: {', '.join(sorted(allowed))}.",
            index=index,
            field="role",
        )


# --- what goes out ---


class ConversationSerializer(serializers.ModelSerializer[Conversation]):
    """A conversation without its messages."""

    url = serializers.SerializerMethodField()
    messages_url = serializers.SerializerMethodField()

    class Meta:
        model = Conversation
        fields = [
            "conversation_id",
            "message_count",
            "created_at",
            "last_message_at",
            "url",
            "messages_url",
        ]

    def get_url(self, row: Conversation) -> str:
        return self._link("conversation-detail", row)

    def get_messages_url(self, row: Conversation) -> str:
        return self._link("message-list", row)

    def _link(self, name: str, row: Conversation) -> str:
        return link(self.context["request"], name, conversation_id=row.conversation_id)


class MessageSerializer(serializers.BaseSerializer[Message]):
    """A message: role, content and status always, everything else when it is set.
    One that is stored in a conversation has a position and a time."""

    def to_representation(self, instance: Message) -> dict[str, Any]:
        plain = to_dict(instance)
        return {**plain, "content": plain.get("content"), "status": instance.status}


class RunSerializer(serializers.BaseSerializer[Run]):
    """A run: who answered what, at what cost, or why not."""

    def to_representation(self, instance: Run) -> dict[str, Any]:
        return {
            "run_id": str(instance.id),
            "session_id": instance.conversation_id,
            "agent_name": instance.agent_name,
            "status": instance.status,
            "message": _answer(instance),
            "error": _error(instance),
            "model": instance.model or None,
            "usage": _usage(instance),
            "rounds": instance.rounds,
            "created_at": _time(instance.created_at),
            "started_at": _time(instance.started_at),
            "finished_at": _time(instance.finished_at),
        }


def _time(value: datetime | None) -> Any:
    """Return the time as DRF's settings write it."""
    return value and serializers.DateTimeField().to_representation(value)


def _answer(run: Run) -> dict[str, Any] | None:
    if not run.output:
        return None
    bodies = msgspec.json.decode(run.output, type=list[msgspec.Raw])
    return MessageSerializer(decode(bytes(bodies[-1]))).data if bodies else None


def _error(run: Run) -> dict[str, str] | None:
    if not run.error_code:
        return None
    return {"code": run.error_code, "detail": public_detail(run.error_code)}


def _usage(run: Run) -> dict[str, int | None]:
    return {
        name: getattr(run, name)
        for name in (
            "input_tokens",
            "output_tokens",
            "total_tokens",
            "cached_tokens",
            "reasoning_tokens",
        )
    }
