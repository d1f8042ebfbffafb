"""The log line of an inference request: who, which model, where, how many tokens, how long."""

from __future__ import annotations

import logging
from dataclasses import asdict

from control_plane.billing.usage.actions import Ended
from control_plane.billing.usage.models import Outcome
from control_plane.core.http.request_log import is_logged, logger


def log_inference(ended: Ended, base_model: str, client_request_id: str) -> None:
    """Log a request that has ended. Texts and keys are not in it."""
    failed = ended.outcome in (Outcome.FAILED, Outcome.REFUSED)
    if not logger.isEnabledFor(logging.INFO) or not is_logged(failed=failed):
        return
    counts, details = asdict(ended.counts), ended.details
    fields = {
        "request_id": ended.request_id,
        "tenant": ended.tenant.slug,
        "api_key": str(ended.api_key.pk) if ended.api_key else "",
        "model": ended.model,
        "version": ended.version.number if ended.version is not None else None,
        "base_model": base_model,
        "host": ended.host,
        "endpoint": ended.endpoint,
        "streamed": ended.streamed,
        "batch": ended.batch,
        "outcome": ended.outcome,
        "error_code": ended.error_code,
        "finish_reason": details.finish_reason,
        "auth_ms": details.auth_ms,
        "quota_ms": details.quota_ms,
        **counts,
    }
    if client_request_id:
        fields["client_request_id"] = client_request_id
    logger.info(
        "%s %s %s: %d + %d tokens", ended.endpoint, ended.model, ended.outcome, ended.counts.prompt_tokens,
        ended.counts.completion_tokens, extra=fields,
    )  # fmt: skip
