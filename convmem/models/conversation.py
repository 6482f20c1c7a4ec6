"""Conversations and their messages as rows.

The hot paths do not come this way: `convmem.stores.database` reads and writes these
tables in SQL. The models serve the admin, the API's lists and the migrations.
"""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from convmem.models.owned import OwnedQuerySet


class Conversation(models.Model):
    """One conversation of one owner.

    ``key`` alone finds it (see `convmem.owners.conversation_key`); the readable values
    stand beside it. ``last_position`` is where positions are allocated.
    """

    key = models.CharField(max_length=64, unique=True, editable=False)
    namespace = models.CharField(max_length=255, editable=False)
    owner_name = models.CharField(_("owner kind"), max_length=255, blank=True)
    owner_id = models.CharField(_("owner id"), max_length=255, blank=True)
    conversation_id = models.CharField(_("conversation id"), max_length=255)
    last_position = models.BigIntegerField(default=0, editable=False)
    message_count = models.BigIntegerField(_("messages"), default=0, editable=False)
    created_at = models.DateTimeField(_("created"), editable=False)
    last_message_at = models.DateTimeField(_("last activity"), editable=False)

    objects = OwnedQuerySet["Conversation"].as_manager()

    class Meta:
        verbose_name = _("conversation")
        verbose_name_plural = _("conversations")
        ordering = ["-last_message_at", "-id"]
        indexes = [
            models.Index(
                fields=["owner_name", "owner_id", "-last_message_at"],
                name="convmem_conv_owner",
            ),
            models.Index(fields=["-last_message_at", "-id"], name="convmem_conv_last"),
        ]

    def __str__(self) -> str:
        return self.conversation_id


class StoredMessage(models.Model):
    """One message as JSON text (``body``), with the columns that queries need.

    ``text`` is what search looks at. ``append_key`` stands on the first row of a batch
    that was appended with an idempotency key, ``append_digest`` beside it.
    """

    conversation = models.ForeignKey(
        Conversation, on_delete=models.CASCADE, related_name="messages", db_index=False
    )
    position = models.BigIntegerField()
    role = models.CharField(max_length=16)
    status = models.CharField(max_length=16, default="complete")
    body = models.TextField()
    text = models.TextField(blank=True)
    created_at = models.DateTimeField()
    append_key = models.CharField(max_length=255, null=True, editable=False)  # noqa: DJ001 - NULLs do not collide
    append_digest = models.CharField(max_length=64, default="", editable=False)

    class Meta:
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        ordering = ["conversation_id", "position"]
        constraints = [
            models.UniqueConstraint(
                fields=["conversation", "position"], name="convmem_message_position"
            ),
            models.UniqueConstraint(
                fields=["conversation", "append_key"], name="convmem_message_append_key"
            ),
        ]

    def __str__(self) -> str:
        return f"#{self.position} {self.role}"
