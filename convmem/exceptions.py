"""One tree of errors. Each has a stable ``code`` and the HTTP status it maps to.

A message names the offending value and the remedy. ``details`` carries the same
facts for programs (for example ``{"index": 3, "field": "role"}``); it never holds a
secret and never an identifier that belongs to somebody else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from convmem.chat import Completion
    from convmem.messages import Message


class ConvmemError(Exception):
    """Base of every failure that convmem raises on purpose."""

    code: ClassVar[str] = "convmem_error"
    status: ClassVar[int] = 500

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


# --- what a caller sent ---


class BadInput(ConvmemError, ValueError):
    """The caller's input cannot be accepted; nothing was changed."""

    code = "bad_input"
    status = 400


class InvalidMessage(BadInput):
    """A message breaks a rule. ``details`` has ``index`` (or None) and ``field``."""

    code = "invalid_message"


class MessageTooLarge(BadInput):
    """A message's text is over ``CONVMEM["MAX_MESSAGE_BYTES"]``."""

    code = "message_too_large"
    status = 413


class EmptyBatch(BadInput):
    """``add`` or ``append`` was given no message."""

    code = "empty_batch"


class InvalidConversationId(BadInput):
    """The id is not a string of 1 to 255 characters."""

    code = "invalid_conversation_id"


class InvalidOwner(BadInput):
    """An owner's name or id is too long or has a wrong type."""

    code = "invalid_owner"


class InvalidWindow(BadInput):
    """A window or budget is negative or not an integer."""

    code = "invalid_window"


class InvalidTool(BadInput):
    """A tool is no callable, its name is refused, or two tools share one name."""

    code = "invalid_tool"


class InvalidFilter(BadInput):
    """An object in ``filters`` is not a filter."""

    code = "invalid_filter"


# --- what is not there ---


class NotFound(ConvmemError, LookupError):
    """The named object does not exist for this caller."""

    code = "not_found"
    status = 404


class ConversationNotFound(NotFound):
    """The caller has no conversation with this id."""

    code = "conversation_not_found"


class RunNotFound(NotFound):
    """The caller has no run with this id."""

    code = "run_not_found"


class UnknownAgent(NotFound):
    """No agent is registered under this name."""

    code = "unknown_agent"


# --- what stands against it ---


class Conflict(ConvmemError):
    """The request is well formed, but the present state refuses it."""

    code = "conflict"
    status = 409


class IdempotencyConflict(Conflict):
    """The same key was used before with another body."""

    code = "idempotency_conflict"


class OwnerMismatch(ConvmemError):
    """A handle bound to one owner was used in the name of another."""

    code = "owner_mismatch"
    status = 403


class RoleForbidden(ConvmemError):
    """A caller may not append messages of this role (``details["index"]``)."""

    code = "role_forbidden"
    status = 403


class StoreBusy(Conflict):
    """The database kept a lock for longer than its timeout; try again."""

    code = "store_busy"
    status = 503


# --- how the project is set up ---


class ConfigurationError(ConvmemError):
    """The project's settings or an object built in code are wrong."""

    code = "configuration_error"


class UnknownStore(ConfigurationError):
    """No store has this alias in ``CONVMEM["STORES"]``."""

    code = "unknown_store"


class UnknownMemory(ConfigurationError):
    """No memory provider has this alias, or ``memory=`` has an unknown form."""

    code = "unknown_memory"


class UnknownService(ConfigurationError):
    """No chat service has this alias in ``CONVMEM["SERVICES"]``."""

    code = "unknown_service"


class MixedMemory(ConfigurationError):
    """Two memories would act on one call (a filter and an agent, or two filters)."""

    code = "mixed_memory"


class MissingDependency(ConfigurationError):
    """An optional package is not installed; the message names the extra to install."""

    code = "missing_dependency"


class RunInTransaction(ConfigurationError):
    """A model would be called inside an open database transaction."""

    code = "run_in_transaction"


# --- what the model's side did ---


class ProviderError(ConvmemError):
    """A model call failed.

    ``upstream_status`` is the HTTP status of the provider's answer, if there was one;
    ``retryable`` says whether the same request may succeed later; ``retry_after`` is
    the wait in seconds that the provider asked for.
    """

    code = "provider_error"
    status = 502

    def __init__(
        self,
        message: str,
        *,
        upstream_status: int | None = None,
        upstream_code: str | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
        partial: Completion | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message, **details)
        self.upstream_status = upstream_status
        self.upstream_code = upstream_code
        self.retryable = retryable
        self.retry_after = retry_after
        self.partial = partial


class ProviderUnreachable(ProviderError):
    """No connection could be made, or it broke."""

    code = "provider_unreachable"


class ProviderTimeout(ProviderError):
    """A deadline passed: connect, first event, idle or total (``details["phase"]``)."""

    code = "provider_timeout"
    status = 504


class ProviderAuthError(ProviderError):
    """The provider refused the credentials (401 or 403)."""

    code = "provider_auth"


class ProviderRateLimited(ProviderError):
    """The provider answered 429."""

    code = "provider_rate_limited"


class ProviderRejected(ProviderError):
    """The provider refused the request (another 4xx)."""

    code = "provider_rejected"


class ProviderUnavailable(ProviderError):
    """The provider failed or is overloaded (5xx)."""

    code = "provider_unavailable"


class ToolUseFailed(ProviderRejected):
    """The model wrote no valid tool call (``details["failed_generation"]`` has it)."""

    code = "tool_use_failed"


class ProviderBadResponse(ProviderError):
    """The answer is not what the wire format promises."""

    code = "provider_bad_response"


class StreamIncomplete(ProviderError):
    """A stream ended before its terminal event; ``partial`` is what had come."""

    code = "stream_incomplete"


# --- how a run ended ---


class RoundsExceeded(ConvmemError):
    """The model still asked for tools after the allowed number of rounds."""

    code = "rounds_exceeded"
    status = 502


class TurnNotSaved(ConvmemError):
    """An agent's turn is complete, but its memory refused it (the error is chained).

    Nothing needs to run again: store ``messages`` with
    ``provider.append(error.conversation_id, error.messages, key=error.key)``.
    """

    code = "turn_not_saved"
    status = 503

    def __init__(
        self,
        message: str,
        *,
        conversation_id: str,
        messages: tuple[Message, ...],
        key: str,
    ) -> None:
        super().__init__(message)
        self.conversation_id = conversation_id
        self.messages = messages
        self.key = key


class ToolError(ConvmemError):
    """Raised by a tool: its message is meant for the model and is shown to it.

    Of any other exception the model sees the type alone, since messages may hold
    secrets.
    """

    code = "tool_error"


class Interrupted(BaseException):
    """Thrown into a flow whose caller has left or was cancelled.

    ``partial`` is the part of the completion that had come, or None. Like
    `asyncio.CancelledError` it is no `Exception`: whoever handles every exception, to
    retry or to fall back, must not go on for a caller who has left. It never leaves
    the drivers.
    """

    code: ClassVar[str] = "interrupted"
    status: ClassVar[int] = 499

    def __init__(
        self, message: str = "The caller left.", *, partial: Completion | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.partial = partial
