"""Addresses of the native API, relative to where the project mounts them."""

from __future__ import annotations

from django.urls import path, register_converter

from convmem.api.conversations import (
    ConversationDetail,
    ConversationList,
    MessageList,
)
from convmem.api.paths import ConversationIdConverter
from convmem.api.runs import RunDetail, RunList

register_converter(ConversationIdConverter, "convmem_conversation_id")

CONVERSATION = "conversations/<convmem_conversation_id:conversation_id>/"

urlpatterns = [
    path("conversations/", ConversationList.as_view(), name="conversation-list"),
    path(f"{CONVERSATION}messages/", MessageList.as_view(), name="message-list"),
    path(CONVERSATION, ConversationDetail.as_view(), name="conversation-detail"),
    path("runs/", RunList.as_view(), name="run-list"),
    path("runs/<str:run_id>/", RunDetail.as_view(), name="run-detail"),
]
