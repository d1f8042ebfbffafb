"""The setting of a tenant that its members must have a second factor."""

from __future__ import annotations

from django.db import transaction

from control_plane.core.errors import LorikeetError
from control_plane.core.events.recheck import recheck_user
from control_plane.identity.access.principal import Principal
from control_plane.identity.accounts.models import User
from control_plane.identity.audit import actions as audit
from control_plane.identity.tenants.models import Membership, Tenant


class NoSecondFactorYetError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "own_second_factor_missing",
            "You have no second factor yourself, so you would lock yourself out.",
            "Set one up under Account first.",
            param="second_factor_required",
            status=409,
        )


def set_requirement(*, acting: Principal, second_factor_required: bool) -> Tenant:
    """Require a second factor of the tenant's members, or end that. Websockets of members without one close.

    Raises NoSecondFactorYetError if the acting member has none.
    """
    assert acting.user is not None
    with transaction.atomic():
        # The lock on the person orders this before or after the removal of their last second factor.
        user = User.objects.select_for_update().get(pk=acting.user.pk)
        if second_factor_required and not user.has_second_factor:
            raise NoSecondFactorYetError
        tenant = Tenant.objects.select_for_update().get(pk=acting.tenant.pk)
        before, tenant.second_factor_required = tenant.second_factor_required, second_factor_required
        if before == second_factor_required:
            return tenant
        tenant.save(update_fields=["second_factor_required"])
        audit.record(
            acting.actor,
            "tenant.second-factor",
            tenant,
            tenant=tenant,
            label=tenant.slug,
            required=second_factor_required,
            before=before,
        )
        for user_id in Membership.objects.for_tenant(tenant).values_list("user_id", flat=True):
            recheck_user(user_id)
    return tenant
