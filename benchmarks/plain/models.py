from __future__ import annotations

from django.db import models, transaction
from django.db.models import Max


class Chat(models.Model):
    conversation_id = models.CharField(max_length=255, unique=True)
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return self.conversation_id


class ChatMessage(models.Model):
    chat = models.ForeignKey(Chat, on_delete=models.CASCADE, related_name="messages")
    position = models.IntegerField()
    role = models.CharField(max_length=16)
    body = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("position",)
        unique_together = (("chat", "position"),)

    def __str__(self) -> str:
        return f"{self.position}"


class PlainStore:
    """A conversation as model instances: read the largest position, save each."""

    def __init__(self, using: str) -> None:
        self.using = using

    def add(self, conversation_id: str, messages: list[dict[str, str]]) -> None:
        with transaction.atomic(using=self.using):
            chat, _ = Chat.objects.using(self.using).get_or_create(
                conversation_id=conversation_id
            )
            top = chat.messages.aggregate(top=Max("position"))["top"] or 0
            for offset, message in enumerate(messages, start=1):
                ChatMessage(
                    chat=chat,
                    position=top + offset,
                    role=message["role"],
                    body=message,
                ).save(using=self.using)
            chat.save(using=self.using)

    def newest(self, conversation_id: str, limit: int) -> list[dict[str, str]]:
        rows = ChatMessage.objects.using(self.using).filter(
            chat__conversation_id=conversation_id
        )
        return [row.body for row in rows.order_by("-position")[:limit]][::-1]
