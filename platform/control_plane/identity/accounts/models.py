"""A person who logs in."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.db import models
from django.db.models.functions import Lower
from django.utils.crypto import salted_hmac

from control_plane.identity.accounts.addresses import normalise_email


class UserManager(BaseUserManager["User"]):
    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        user = self.model(email=normalise_email(email), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def get_by_natural_key(self, username: str | None) -> User:
        return self.get(email=normalise_email(username or ""))


class User(AbstractBaseUser):
    """A person, known by e-mail address. Their memberships grant permissions."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    email = models.EmailField(max_length=254, unique=True)
    name = models.CharField(max_length=120, blank=True)
    is_active = models.BooleanField(default=True)
    is_operator = models.BooleanField(
        default=False, help_text="Whether the person runs the installation, and sees hosts and all tenants."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    email_verified_at = models.DateTimeField(
        null=True,
        help_text="Time at which it was proven that the address belongs to the person; null: it is not proven.",
    )
    second_factor_since = models.DateTimeField(
        null=True,
        help_text="Time since which every session of the person began with a second factor; null: they have none.",
    )

    objects = UserManager()

    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    class Meta:
        constraints = [models.UniqueConstraint(Lower("email"), name="user_email_ci_unique")]

    def __str__(self) -> str:
        return self.email

    def get_session_auth_hash(self) -> str:
        """Return what ends a session when the password changes, stored in the session's row only.

        It does not depend on the secret key: after a rotation Django would give the session another id, and requests
        that are under way with the old one would fail.
        """
        return salted_hmac("lorikeet: sessions", self.password, secret=b"-", algorithm="sha256").hexdigest()

    @property
    def address_proven(self) -> bool:
        """False for an account made from an invitation's link: its maker may not be the reader of the address."""
        return self.email_verified_at is not None

    @property
    def has_second_factor(self) -> bool:
        return self.second_factor_since is not None


class Identity(models.Model):
    """A person as an OpenID provider knows them. The provider never changes the subject; the address may change."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="identities")
    issuer = models.CharField(max_length=255)
    subject = models.CharField(max_length=255)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="identity_once")]

    def __str__(self) -> str:
        return f"{self.subject} of {self.issuer}"


class SignIn(models.Model):
    """A session of a person and the device it began on. Django's own table has the session itself."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="sign_ins")
    session_key = models.CharField(max_length=40, unique=True)
    address = models.CharField(
        max_length=64, blank=True, help_text="Network address from which the session was last used."
    )
    user_agent = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    last_seen_at = models.DateTimeField(help_text="Time of the last use, accurate to five minutes.")

    class Meta:
        indexes = [models.Index(fields=["user", "-last_seen_at"], name="sign_ins_of_a_person")]

    def __str__(self) -> str:
        return f"{self.user_id} on {self.user_agent or 'an unknown device'}"
