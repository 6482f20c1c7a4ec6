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
from convmem.models.owned import OwnedQuerySet
from convmem.pipeline import run_agent


class RunView(ConvmemView):
    """A view of the caller's runs."""

    serializer_class: Any = RunSerializer

    def get_queryset(self) -> OwnedQuerySet[Run]:
        return Run.objects.for_owner(self.required_owner)

    def get_object(self) -> Run:
        """Return the run that the address names; somebody else's is not there."""
        written = self.kwargs["run_id"]
        try:
            wanted = uuid.UUID(written)
        except ValueError:
            wanted = None
        found = self.get_queryset().filter(id=wanted).first() if wanted else None
        if found is None:
            raise RunNotFound(f"You have no run {written!r}.")
        self.check_object_permissions(self.request, found)
        return found


class RunList(RunView):
    """Ask an agent."""

    serializer_class = RunRequestSerializer

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        # Outside ATOMIC_REQUESTS: a failing model must not take the input with it.
        view = super().as_view(**initkwargs)
        for alias in connections:
            view = transaction.non_atomic_requests(using=alias)(view)
        return view

    def post(self, request: Request, **kwargs: Any) -> Response:
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


class RunDetail(RunView):
    """One run of the caller."""

    def get(self, request: Request, **kwargs: Any) -> Response:
        """Return the run as it stands."""
        return Response(RunSerializer(self.get_object()).data)
