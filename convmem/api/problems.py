"""Every error of the native API as ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from django.core.exceptions import (
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
)
from django.http import Http404
from rest_framework import exceptions, status
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.views import set_rollback

from convmem.exceptions import ConvmemError, StoreBusy

logger = logging.getLogger("convmem.api")

#: What callers read about failures that are not theirs. The error's own message may
#: name hosts and settings: it goes to the run row and to the log.
PUBLIC_DETAILS = {
    "interrupted": "The run was broken off.",
    "internal_error": "The run failed inside the server.",
    "provider_auth": "The model's provider refused the server's credentials.",
    "provider_bad_response": "The model's provider sent no valid answer.",
    "provider_error": "The model's provider failed.",
    "provider_rate_limited": "The model's provider is busy; try again later.",
    "provider_rejected": "The model's provider refused the request.",
    "provider_timeout": "The model did not answer in time.",
    "provider_unreachable": "The model's provider could not be reached.",
    "rounds_exceeded": "The model asked for tools more often than is allowed.",
    "store_busy": "The conversation is locked by another request; try again.",
    "stream_incomplete": "The model's answer broke off.",
    "turn_not_saved": "The answer came, but the conversation could not be saved.",
    "tool_use_failed": "The model wrote no valid tool call.",
}
SERVER_FAULT = "The server cannot do this now; its log says why."
#: Facts of an error that are part of its problem document.
MEMBERS = ("index", "field", "run_id", "session_id")


class ProblemRenderer(JSONRenderer):
    """JSON under the media type of problem documents."""

    media_type = "application/problem+json"
    format = "problem"
    charset = None


def public_detail(code: str) -> str:
    """Return the sentence for callers about a failure with this code."""
    return PUBLIC_DETAILS.get(code, SERVER_FAULT)


def problem_handler(exc: Exception, context: dict[str, Any]) -> Response | None:
    """Return the problem response of ``exc``, or None when it is a bug to be raised.

    The signature of DRF's ``EXCEPTION_HANDLER``; convmem's views use it by themselves.
    """
    if isinstance(exc, ConvmemError):
        return _of_convmem(exc)
    if isinstance(exc, Http404):
        exc = exceptions.NotFound()
    elif isinstance(exc, PermissionDenied):
        exc = exceptions.PermissionDenied()
    if isinstance(exc, exceptions.APIException):
        return _of_drf(exc)
    if isinstance(exc, RequestDataTooBig):
        return problem(
            status.HTTP_413_REQUEST_ENTITY_TOO_LARGE,
            "request_too_large",
            "The request body is larger than DATA_UPLOAD_MAX_MEMORY_SIZE allows.",
        )
    if isinstance(exc, SuspiciousOperation):  # such as a thousand query parameters
        return problem(
            status.HTTP_400_BAD_REQUEST, "bad_request", "The request was refused."
        )
    return None


def problem(
    status_code: int,
    code: str,
    detail: str,
    *,
    headers: dict[str, str] | None = None,
    **members: Any,
) -> Response:
    """Return a problem response; ``members`` that are None are left out."""
    set_rollback()
    data = {
        "type": f"urn:convmem:problem:{code}",
        "title": code.replace("_", " ").capitalize(),
        "status": status_code,
        "detail": _renderable(detail),
        "code": code,
    }
    data |= {
        name: _renderable(value) if isinstance(value, str) else value
        for name, value in members.items()
        if value is not None
    }
    return Response(data, status=status_code, headers=headers)


def _of_convmem(exc: ConvmemError) -> Response:
    detail = exc.message
    if exc.status >= status.HTTP_500_INTERNAL_SERVER_ERROR:
        detail = public_detail(exc.code)
        logger.error("%s: %s", exc.code, exc.message, exc_info=exc)
    headers = {"Retry-After": "1"} if isinstance(exc, StoreBusy) else None
    members = {name: exc.details.get(name) for name in MEMBERS}
    return problem(exc.status, exc.code, detail, headers=headers, **members)


def _of_drf(exc: exceptions.APIException) -> Response:
    headers = {}
    if auth_header := getattr(exc, "auth_header", None):
        headers["WWW-Authenticate"] = auth_header
    if wait := getattr(exc, "wait", None):
        headers["Retry-After"] = f"{wait:.0f}"
    if isinstance(exc, exceptions.ValidationError):
        errors = list(_flat(exc.detail))
        detail = "; ".join(
            ": ".join(filter(None, (error["field"], error["detail"])))
            for error in errors
        )
        return problem(
            exc.status_code, "bad_input", detail, headers=headers, errors=errors
        )
    code = exc.get_codes()
    return problem(
        exc.status_code,
        code if isinstance(code, str) else exc.default_code,
        str(exc.detail),
        headers=headers,
    )


def _flat(detail: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """Yield one ``{field, detail, code}`` for each leaf of a DRF error tree."""
    if isinstance(detail, dict):
        for name, below in detail.items():
            if name == api_settings.NON_FIELD_ERRORS_KEY:
                yield from _flat(below, path)
            else:
                yield from _flat(below, f"{path}.{name}" if path else str(name))
    elif isinstance(detail, list):
        for below in detail:
            yield from _flat(below, path)
    else:
        yield {
            "field": _renderable(path) or None,
            "detail": _renderable(str(detail)),
            "code": getattr(detail, "code", "invalid"),
        }


def _renderable(text: str) -> str:
    """Return ``text`` without lone surrogates, which have no UTF-8."""
    return text.encode(errors="replace").decode()
