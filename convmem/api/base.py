"""What every view of the native API has in common."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from convmem.access import owner_of
from convmem.api.parsers import StrictJSONParser
from convmem.api.problems import ProblemRenderer, problem_handler
from convmem.exceptions import ConfigurationError
from convmem.owners import Owner


class ConvmemView(GenericAPIView[Any]):
    """A view for the request's owner, with problem documents for errors.

    Authentication, permissions and throttles are DRF's and the project's. Beside them
    each view demands an owner (``CONVMEM["OWNER"]``): by default only an authenticated
    user has one, whatever ``DEFAULT_PERMISSION_CLASSES`` allows.
    """

    parser_classes = [StrictJSONParser]
    # The version is a part of the address that the project mounts the API at.
    versioning_class = None

    @cached_property
    def owner(self) -> Owner | None:
        """Whose data this request may touch."""
        return owner_of(self.request)

    @property
    def required_owner(self) -> Owner:
        """The owner, after the permission check."""
        if self.owner is None:
            raise ConfigurationError("A convmem view was reached without an owner.")
        return self.owner

    def check_permissions(self, request: Request) -> None:
        if self.owner is None:
            self.permission_denied(
                request, message="This request has no owner of conversations."
            )
        super().check_permissions(request)

    def get_exception_handler(self) -> Any:
        return problem_handler

    def finalize_response(
        self, request: Request, response: Response, *args: Any, **kwargs: Any
    ) -> Response:
        final = super().finalize_response(request, response, *args, **kwargs)
        if getattr(final, "exception", False) and not _is_browsable(final):
            final.accepted_renderer = ProblemRenderer()
            final.accepted_media_type = ProblemRenderer.media_type
        return final


def _is_browsable(response: Any) -> bool:
    return response.accepted_renderer.format in {"api", "html"}
