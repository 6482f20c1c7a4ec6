"""Runs: ask an agent, and read how it went."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import connections, transaction
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from convmem.api.base import ConvmemView
from convmem.api.serializers import RunRequestSerializer, RunSerializer, link
from convmem.exceptions import RunNotFound
from convmem.models import Run
from convmem.pipeline import run_agent


class RunList(ConvmemView):
    """Ask an agent. The view stands outside ``ATOMIC_REQUESTS``: a failing model must
    not take the user's message with it."""

    serializer_class = RunRequestSerializer

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        view = super().as_view(**initkwargs)
        for alias in connections:
            view = transaction.non_atomic_requests(using=alias)(view)
        return view

    def post(self, request: Request) -> Response:
        """Run the agent on ``content`` and return its answer when it is there.

        Without a ``session_id`` a new conversation begins, whose id comes back.
        """
        body = RunRequestSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        outcome = run_agent(
            body.validated_data["agent_name"],
            body.validated_data["content"],
            conversation_id=body.validated_data.get("session_id"),
            owner=self.required_owner,
        )
        return Response(
            RunSerializer(outcome.run).data,
            status=status.HTTP_201_CREATED,
            headers={"Location": link(request, "run-detail", run_id=outcome.run.id)},
        )


class RunDetail(ConvmemView):
    """One run of the caller."""

    serializer_class = RunSerializer

    def get(self, request: Request, run_id: str) -> Response:
        """Return the run as it stands."""
        return Response(RunSerializer(self._run(run_id)).data)

    def _run(self, written: str) -> Run:
        try:
            wanted = uuid.UUID(written)
        except ValueError:
            wanted = None
        rows = Run.objects.for_owner(self.required_owner)
        found = rows.filter(id=wanted).first() if wanted else None
        if found is None:
            raise RunNotFound(f"You have no run {written!r}.")
        return found
