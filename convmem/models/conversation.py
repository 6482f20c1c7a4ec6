"""Conversations and their messages as rows.

The hot paths do not come this way: `convmem.stores.database` reads and writes these
tables in SQL. The models serve the admin, the API's lists and the migrations.
"""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from convmem.models.owned import OwnedManager
from convmem.models.partial import PartialIndex, PartialUniqueConstraint


class Conversation(models.Model):
    """One conversation of one owner.

    ``key`` alone finds it (see `convmem.owners.conversation_key`); the readable values
    stand beside it. ``last_position`` is where positions are allocated: it never goes
    back, also when the messages are cleared; ``first_position`` is then the one after.
    """

    key = models.CharField(max_length=64, editable=False)
    namespace = models.CharField(max_length=255, editable=False)
    owner_name = models.CharField(_("owner kind"), max_length=255, blank=True)
    owner_id = models.CharField(_("owner id"), max_length=255, blank=True)
    conversation_id = models.CharField(_("conversation id"), max_length=255)
    first_position = models.BigIntegerField(default=1, editable=False)
    last_position = models.BigIntegerField(default=0, editable=False)
    message_count = models.BigIntegerField(_("messages"), default=0, editable=False)
    created_at = models.DateTimeField(_("created"), editable=False)
    last_message_at = models.DateTimeField(_("last activity"), editable=False)

    objects = OwnedManager()

    class Meta:
        verbose_name = _("conversation")
        verbose_name_plural = _("conversations")
        ordering = ["-last_message_at", "-id"]
        constraints = [
            # Not unique=True: that adds a second, LIKE index on PostgreSQL.
            models.UniqueConstraint(fields=["key"], name="convmem_conversation_key"),
        ]
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

    Its primary key is its address: the conversation and the position in it. ``text`` is
    what search looks at. ``status`` is the message's, or ``superseded`` when a newer
    reply took its place. The first row of a batch that was appended with an idempotency
    key has ``append_key`` and ``append_digest`` (SHA-256 of the key and of the batch)
    and ``append_count`` (messages in the batch).
    """

    pk = models.CompositePrimaryKey("conversation_id", "position")
    conversation = models.ForeignKey(
        Conversation, on_delete=models.CASCADE, related_name="messages", db_index=False
    )
    position = models.BigIntegerField()
    role = models.CharField(max_length=16)
    status = models.CharField(max_length=16, default="complete")
    body = models.TextField()
    text = models.TextField(blank=True)
    created_at = models.DateTimeField()
    # NULL and not "", which would collide, and which an insert could not leave out.
    append_key = models.CharField(max_length=64, null=True, editable=False)  # noqa: DJ001
    append_digest = models.CharField(max_length=64, null=True, editable=False)  # noqa: DJ001
    append_count = models.PositiveIntegerField(null=True, editable=False)

    class Meta:
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        ordering = ["conversation_id", "position"]
        constraints = [
            PartialUniqueConstraint(
                fields=("conversation", "append_key"),
                name="convmem_message_append_key",
                where=models.Q(append_key__isnull=False),
            ),
        ]
        indexes = [
            PartialIndex(
                fields=["conversation", "role", "position"],
                name="convmem_message_system",
                where=models.Q(role__in=["system", "developer"]),
            ),
        ]

    def __str__(self) -> str:
        return f"#{self.position} {self.role}"
