"""Logs: one JSON object per line, with the request's identifier and without secrets."""

import re
from collections.abc import MutableMapping
from typing import Any

import structlog

SECRET_NAMES = re.compile(r"authorization|cookie|password|secret|token$|ticket|csrf|^key$", re.IGNORECASE)
SECRET_TEXTS = [
    (re.compile(r"(fb_[0-9a-f]{12})_[0-9a-f]{16,}"), r"\1_[redacted]"),
    (re.compile(r"(?i)\b(bearer\s+)[^\s\"',]+"), r"\1[redacted]"),
    (re.compile(r"(?i)\b((?:ticket|token|password|secret)=)[^\s&\"']+"), r"\1[redacted]"),
    (re.compile(r"(/login/)[\w-]{20,}"), r"\1[redacted]"),
    (re.compile(r"(://[^/\s:@]+:)[^/\s@]+@"), r"\1[redacted]@"),
]
REDACTED = "[redacted]"


def redact(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Take secrets out of a log line, by the name of the field and by how they look."""
    return {key: REDACTED if SECRET_NAMES.search(key) else clean(value) for key, value in event.items()}


def clean(value: Any) -> Any:
    """Return a value without the secrets inside it."""
    if isinstance(value, str):
        for pattern, replacement in SECRET_TEXTS:
            value = pattern.sub(replacement, value)
        return value
    if isinstance(value, dict):
        return {k: REDACTED if SECRET_NAMES.search(str(k)) else clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return value


SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
    structlog.stdlib.PositionalArgumentsFormatter(),
    redact,
]


def configure() -> None:
    """Send structlog's lines through the standard library, where everybody else's are."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def logging_settings(level: str) -> dict[str, Any]:
    """Return Django's LOGGING: every library's lines in the same form, to standard error."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "json": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": SHARED,
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    redact,
                    structlog.processors.JSONRenderer(default=str),
                ],
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            # The request log already says it, with more.
            "django.request": {"level": "ERROR"},
            "django.server": {"level": "ERROR"},
            "django.security.DisallowedHost": {"level": "CRITICAL"},
            # httpx writes the address of every webhook, which may hold a receiver's secret.
            "httpx": {"level": "WARNING"},
            # uvicorn writes the address of every WebSocket, ticket included, past our formatter.
            "uvicorn": {"handlers": [], "level": "INFO", "propagate": True},
            "uvicorn.error": {"handlers": [], "level": "WARNING", "propagate": True},
            "uvicorn.access": {"handlers": [], "level": "WARNING", "propagate": True},
        },
    }
