"""Runs: one row for each request that went through the pipeline."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from convmem.models.owned import OwnedManager


class Run(models.Model):
    """One request: who asked which agent, with what, and how it ended.

    The row is written with its ``input`` before a model is called, so that a killed
    process leaves the question behind. ``input`` and ``output`` are JSON texts, each a
    list of messages. ``error_message`` is for operators: it holds no secret, but may
    name hosts and settings. Token columns are null while unknown.
    """

    class Status(models.TextChoices):
        QUEUED = "queued", _("queued")
        RUNNING = "running", _("running")
        COMPLETED = "completed", _("completed")
        FAILED = "failed", _("failed")
        INTERRUPTED = "interrupted", _("interrupted")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    agent_name = models.CharField(_("agent"), max_length=255)
    owner_name = models.CharField(_("owner kind"), max_length=255, blank=True)
    owner_id = models.CharField(_("owner id"), max_length=255, blank=True)
    conversation_id = models.CharField(_("conversation id"), max_length=255)
    status = models.CharField(
        _("status"), max_length=16, choices=Status.choices, default=Status.QUEUED
    )
    input = models.TextField(_("input"))
    output = models.TextField(_("output"), blank=True)
    error_code = models.CharField(_("error code"), max_length=64, blank=True)
    error_message = models.TextField(_("error message"), blank=True)
    model = models.CharField(_("model"), max_length=255, blank=True)
    input_tokens = models.BigIntegerField(_("input tokens"), null=True)
    output_tokens = models.BigIntegerField(_("output tokens"), null=True)
    total_tokens = models.BigIntegerField(_("total tokens"), null=True)
    cached_tokens = models.BigIntegerField(_("cached tokens"), null=True)
    reasoning_tokens = models.BigIntegerField(_("reasoning tokens"), null=True)
    rounds = models.PositiveIntegerField(_("rounds"), default=0)
    created_at = models.DateTimeField(_("created"), default=timezone.now)
    started_at = models.DateTimeField(_("started"), null=True)
    finished_at = models.DateTimeField(_("finished"), null=True)

    objects = OwnedManager()

    class Meta:
        verbose_name = _("run")
        verbose_name_plural = _("runs")
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(
                fields=["owner_name", "owner_id", "-created_at"],
                name="convmem_run_owner",
            ),
            models.Index(fields=["-created_at"], name="convmem_run_created"),
        ]

    def __str__(self) -> str:
        return f"{self.agent_name} {self.id}"
