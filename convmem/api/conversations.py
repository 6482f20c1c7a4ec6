"""Conversations of the caller and their messages.

These views read the rows of the store with the alias ``default``, which must be one
that keeps rows (`convmem.stores.DatabaseStore`).
"""

from __future__ import annotations

from typing import Any

from rest_framework import status
from rest_framework.generics import ListAPIView, RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from convmem.api.base import ConvmemView
from convmem.api.pagination import NewestActivityFirst, NewestMessageFirst
from convmem.api.paths import decode_id
from convmem.api.serializers import (
    AppendSerializer,
    ConversationSerializer,
    MessageSerializer,
)
from convmem.exceptions import BadInput, ConfigurationError, ConversationNotFound
from convmem.handlers import stores
from convmem.messages import Message
from convmem.models import Conversation, StoredMessage
from convmem.models.owned import OwnedQuerySet
from convmem.owners import conversation_key
from convmem.stores import DatabaseStore
from convmem.validation import MAX_ID_LENGTH


class ConversationView(ConvmemView):
    """A view of the caller's conversations in the default store."""

    serializer_class: Any = ConversationSerializer

    @property
    def store(self) -> DatabaseStore:
        """The default store, bound to the caller."""
        store = stores["default"]
        if not isinstance(store, DatabaseStore):
            raise ConfigurationError(
                'The API reads rows, so CONVMEM["STORES"]["default"] must be a '
                f"DatabaseStore, not {type(store).__name__}."
            )
        return store.for_owner(self.required_owner)

    @property
    def conversation_id(self) -> str:
        """The id that the address names."""
        return decode_id(self.kwargs["conversation_id"])

    def get_queryset(self) -> OwnedQuerySet[Conversation]:
        return self.store.conversations()

    def get_object(self) -> Conversation:
        """Return the conversation, found by its exact key alone.

        One that only somebody else has is no different from one that nobody has.
        """
        store, wanted = self.store, self.conversation_id
        key = conversation_key(store.namespace, self.required_owner, wanted)
        found = Conversation.objects.using(store.database).filter(key=key).first()
        if found is None:
            raise ConversationNotFound(f"You have no conversation {wanted!r}.")
        self.check_object_permissions(self.request, found)
        return found


class ConversationList(ConversationView, ListAPIView[Conversation]):
    """The caller's conversations, the most recently active first."""

    pagination_class = NewestActivityFirst


class ConversationDetail(ConversationView, RetrieveAPIView[Conversation]):
    """One conversation of the caller, without its messages."""


class MessageList(ConversationView):
    """The messages of one conversation: read, append, clear."""

    serializer_class = AppendSerializer
    pagination_class = NewestMessageFirst

    def get(self, request: Request, **kwargs: Any) -> Response:
        """Return a page of messages, the newest first."""
        rows = self.store.rows(self.get_object()).defer("text")
        page: Any = self.paginate_queryset(rows)
        messages = [
            _as_listed(message, row)
            for message, row in zip(self.store.messages_of(page), page, strict=True)
        ]
        return self.get_paginated_response(messages)

    def post(self, request: Request, **kwargs: Any) -> Response:
        """Append messages, all or none; make the conversation if there is none.

        With an ``Idempotency-Key`` header the same request may be sent again.
        """
        body = AppendSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        stored = self.store.add(
            self.conversation_id,
            body.validated_data["messages"],
            key=_idempotency_key(request),
        )
        show = MessageSerializer().to_representation
        return Response(
            {"messages": [show(message) for message in stored]},
            status=status.HTTP_201_CREATED,
        )

    def delete(self, request: Request, **kwargs: Any) -> Response:
        """Delete every message; positions go on from where they were."""
        self.get_object()
        self.store.clear(self.conversation_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _as_listed(message: Message, row: StoredMessage) -> dict[str, Any]:
    """Return the message's JSON; a reply that a newer one replaced says so."""
    shown = MessageSerializer().to_representation(message)
    return shown | {"status": row.status} if row.status == "superseded" else shown


def _idempotency_key(request: Request) -> str | None:
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return None
    if not 0 < len(key) <= MAX_ID_LENGTH:
        raise BadInput(
            f"Idempotency-Key must have 1 to {MAX_ID_LENGTH} characters; "
            f"this one has {len(key)}.",
            field="Idempotency-Key",
        )
    return str(key)
