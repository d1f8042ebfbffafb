"""Signing in under attack: guesses at once, from many addresses, and hashes as a way to take the machine's memory."""

from __future__ import annotations

import os
import resource
import signal
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from django.contrib.auth.hashers import Argon2PasswordHasher, MD5PasswordHasher, check_password, make_password
from django.db import connection
from lorikeet_testing.addresses import every_address
from rest_framework.test import APIClient

from control_plane.core.config import Rate, SettingsError
from control_plane.core.http.access import Access
from control_plane.identity.accounts import attempts, hashing
from control_plane.identity.accounts.attempts import (
    AttemptLimiter,
    AttemptsUncountedError,
    MemoryAttempts,
    RedisAttempts,
    TooManyAttemptsError,
    count_address,
)
from control_plane.identity.accounts.hashing import BoundedArgon2Hasher, HashesBusyError, HashNotMadeError, Places
from control_plane.identity.accounts.hashing_child import NICE
from control_plane.identity.accounts.models import User
from control_plane.identity.accounts.passwords import reset_token
from control_plane.identity.accounts.views import CountedView
from control_plane.identity.tenants.roles import Role

PASSWORD, NEW = "correct horse battery", "a wholly new pass phrase"
AT_ONCE = 40
OWNER = "owner@acme.example"


def all_at_once(call: Callable[[int], Any], count: int = AT_ONCE) -> list[Any]:
    barrier = threading.Barrier(count)

    def one(number: int) -> Any:
        barrier.wait(30)
        try:
            return call(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def log_in(email: str = OWNER, password: str = "wrong", address: str = "192.0.2.1", **headers: str) -> Any:
    body = {"email": email, "password": password}
    return APIClient().post("/api/session", body, format="json", REMOTE_ADDR=address, **headers)


# -- the limiter ----------------------------------------------------------------------------------


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.services)])
def limiter(request: pytest.FixtureRequest) -> AttemptLimiter:
    return MemoryAttempts() if request.param == "memory" else RedisAttempts(os.environ["LORIKEET_TEST_REDIS_URL"])


def test_of_many_at_once_as_many_pass_as_the_rate_says(limiter: AttemptLimiter) -> None:
    name, rate = uuid.uuid4().hex, Rate(10, 60)
    waits = all_at_once(lambda _: limiter.take(name, rate))
    assert waits.count(0.0) == 10
    assert all(0 < wait <= 60 for wait in waits if wait)
    assert limiter.take(f"{name}-other", rate) == 0.0


def test_never_more_than_the_rate_within_its_period() -> None:
    now = 0.0
    limiter = MemoryAttempts(clock=lambda: now)
    passed = []
    while now < 200:
        if limiter.take("one", Rate(10, 60)) == 0:
            passed.append(now)
        now += 1.7
    assert max(sum(at - 60 < other <= at for other in passed) for at in passed) == 10
    assert len(passed) > 30  # and refusals do not count


def test_names_do_not_fill_the_memory() -> None:
    limiter = MemoryAttempts(most_names=100)
    for number in range(1000):
        limiter.take(str(number), Rate(10, 60))
    assert len(limiter._times) == 100


def test_a_rate_that_is_none() -> None:
    assert str(Rate.parse("5/hour")) == str(Rate.parse(" 5 / h")) == "5/hour"
    for text in ("", "10", "10/", "/min", "0/min", "-1/min", "1.5/min", "10/year", "٣/min"):
        with pytest.raises(SettingsError, match="10/min"):
            Rate.parse(text)


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
    ],
)
def test_who_counts_together(first: str, second: str, together: bool) -> None:
    rate = Rate(1, 60)
    count_address("login", first, rate)
    if together:
        with pytest.raises(TooManyAttemptsError):
            count_address("login", second, rate)
    else:
        count_address("login", second, rate)


# -- over HTTP ------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_forty_at_once_from_one_address() -> None:
    answers = all_at_once(lambda _: log_in("nobody@acme.example"))
    assert Counter(answer.status_code for answer in answers) == {401: 10, 429: 30}
    refused = [answer for answer in answers if answer.status_code == 429]
    assert all(0 < int(answer["Retry-After"]) <= 60 and answer.json()["error"]["fix"] for answer in refused)


@pytest.fixture
def three_for_an_account(lorikeet: Any, settings: Any) -> None:
    settings.LORIKEET = lorikeet.model_copy(update={"login_account_rate": Rate(3, 60)})


@pytest.mark.django_db
@pytest.mark.parametrize("email", [OWNER, "nobody@acme.example"])
def test_one_account_from_many_addresses(acme: Any, three_for_an_account: None, email: str) -> None:
    """The refusal is the same without such an account."""
    statuses = [log_in(email.upper(), address=f"198.51.100.{number}").status_code for number in range(5)]
    assert statuses == [401, 401, 401, 429, 429]
    assert log_in("viewer@acme.example", PASSWORD, address="198.51.100.9").status_code == 200


@pytest.mark.django_db
def test_one_address_does_not_lock_an_account(acme: Any) -> None:
    assert [log_in().status_code for _ in range(12)][-1] == 429
    assert log_in(password=PASSWORD, address="198.51.100.7").status_code == 200


@pytest.mark.django_db
def test_guesses_with_a_session_count_for_the_account(acme: Any, three_for_an_account: None) -> None:
    client = acme.client()
    body = {"current_password": "wrong", "password": NEW}
    statuses = [
        client.post("/api/password", body, format="json", REMOTE_ADDR=f"198.51.100.{number}").status_code
        for number in range(4)
    ]
    assert statuses == [400, 400, 400, 429]


@pytest.mark.django_db
def test_nobody_is_buried_in_mails(acme: Any, queue: Any, committing: Any) -> None:
    with committing():
        for number in range(7):
            body = {"email": "victim@corp.example"}
            APIClient().post("/api/password/forgot", body, format="json", REMOTE_ADDR=f"198.51.100.{number}")
        invited = acme.client().post(acme.path("invitations"), {**body, "role": "viewer"}, format="json")
    assert queue.names() == ["mail_reset_link"] * 5
    assert invited.status_code == 429


def test_whatever_strangers_may_post_is_counted() -> None:
    posts = [address.declared for address in every_address() if "post" in address.methods]
    views = [view for view in posts if getattr(view, "access", None) in (Access.PUBLIC, Access.SESSION)]
    views = [view for view in views if isinstance(view, type)]
    assert len(views) == 15
    # What a new host shows is a secret of 256 bits, which nobody guesses.
    assert [view.__name__ for view in views if not issubclass(view, CountedView)] == ["JoinView"]


@pytest.mark.django_db
def test_without_redis_nobody_signs_in_uncounted(acme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    away = RedisAttempts("redis://127.0.0.1:9/0")
    monkeypatch.setattr(attempts, "limiter", lambda: away)
    answer = log_in(password=PASSWORD)
    assert answer.status_code == 503
    assert answer["Retry-After"]
    with pytest.raises(AttemptsUncountedError):
        away.take("x", Rate(1, 1))


# -- hashes ---------------------------------------------------------------------------------------


@pytest.fixture
def real_hashes(settings: Any) -> Iterator[None]:
    settings.PASSWORD_HASHERS = ["control_plane.identity.accounts.hashing.BoundedArgon2Hasher"]
    hashing.hashing.cache_clear()
    yield
    hashing.hashing().close()
    hashing.hashing.cache_clear()


def test_only_a_few_run_and_a_few_wait() -> None:
    places, release = Places(at_once=2, waiting=4, wait_s=30), threading.Event()
    running, most, lock = 0, 0, threading.Lock()
    refused = threading.Semaphore(0)

    def one(_: int) -> str:
        nonlocal running, most
        try:
            with places.one():
                with lock:
                    running += 1
                    most = max(most, running)
                release.wait(30)
                with lock:
                    running -= 1
            return "ran"
        except HashesBusyError:
            refused.release()
            return "refused"

    def let_go_when_the_others_were_refused() -> None:
        for _ in range(AT_ONCE - 6):
            refused.acquire(timeout=30)
        release.set()

    threading.Thread(target=let_go_when_the_others_were_refused, daemon=True).start()
    assert Counter(all_at_once(one)) == {"ran": 6, "refused": AT_ONCE - 6}
    assert most == 2


def test_waiting_ends() -> None:
    places = Places(at_once=1, waiting=1, wait_s=0.05)
    with places.one(), pytest.raises(HashesBusyError), places.one():
        pass
    with places.one():
        pass


def children() -> list[int]:
    return [child.process.pid for child in hashing.hashing()._idle]


def test_hashes_give_way(real_hashes: None) -> None:
    """First tokens waited for the threads of other people's sign-ins."""
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    assert check_password(PASSWORD, make_password(PASSWORD))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 46 * 256  # pages of one hash
    (child,) = children()
    assert os.getpriority(os.PRIO_PROCESS, child) == min(nice + NICE, 19)
    assert os.sched_getscheduler(child) == os.SCHED_BATCH
    assert (os.getsid(child), os.getpgid(child)) == (os.getsid(0), child)
    assert os.getpriority(os.PRIO_PROCESS, 0) == nice


def test_the_memory_of_forty_at_once(real_hashes: None) -> None:
    """Forty hashes at once would take 2 GB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def one(_: int) -> str:
        try:
            User().set_password(NEW)
        except HashesBusyError:
            return "refused"
        return "ran"

    outcomes = Counter(all_at_once(one))
    assert outcomes["ran"] >= 6
    assert 1 <= len(children()) <= 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40 * 1024


def test_hashes_are_as_owasp_has_them(real_hashes: None) -> None:
    assert make_password(PASSWORD).startswith("argon2$argon2id$v=19$m=47104,t=1,p=1$")


def test_an_older_hash_is_made_anew_when_its_owner_signs_in(real_hashes: None) -> None:
    older, kept = Argon2PasswordHasher().encode(PASSWORD, "s" * 22), list[str]()
    assert not check_password("wrong", older, setter=kept.append)
    assert kept == []
    assert check_password(PASSWORD, older, setter=kept.append)
    assert kept == [PASSWORD]


def test_what_is_no_hash(real_hashes: None) -> None:
    with pytest.raises(ValueError, match="InvalidHash"):
        BoundedArgon2Hasher().verify(PASSWORD, "argon2$nonsense")
    assert len(children()) == 1


def test_a_child_that_was_killed(real_hashes: None) -> None:
    encoded = make_password(PASSWORD)
    (before,) = children()
    os.kill(before, signal.SIGKILL)
    assert check_password(PASSWORD, encoded)
    assert children() != [before]


def test_a_child_that_always_dies(real_hashes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "CHILD", "control_plane.no_such_module")
    with pytest.raises(HashNotMadeError):
        make_password(PASSWORD)
    assert children() == []


def test_a_child_that_hangs(real_hashes: None) -> None:
    encoded = make_password(PASSWORD)
    (before,) = children()
    os.kill(before, signal.SIGSTOP)
    hashing.hashing()._answer_s = 0.05
    with pytest.raises(HashNotMadeError):
        check_password(PASSWORD, encoded)
    assert children() == []
    hashing.hashing()._answer_s = hashing.ANSWER_S
    assert check_password(PASSWORD, encoded)


def invitation(org: Any) -> str:
    body = {"email": "new@acme.example", "role": "viewer"}
    made = org.client().post(org.path("invitations"), body, format="json").json()
    return str(made["link"].partition("#")[2])


@pytest.mark.django_db
def test_whatever_hashes_is_refused_when_all_places_are_taken(acme: Any, real_hashes: None) -> None:
    owner = acme.users[Role.OWNER]
    owner.password = make_password(PASSWORD)
    owner.save()
    link, proof, person = invitation(acme), reset_token(acme.users[Role.VIEWER]), acme.client()

    def post_all() -> list[Any]:
        accept = {"token": link, "password": NEW}
        return [
            log_in(password=PASSWORD),
            person.post("/api/password", {"current_password": PASSWORD, "password": NEW}, format="json"),
            APIClient().post("/api/invitations/accept", accept, format="json"),
            APIClient().post("/api/password/reset", {"token": proof, "password": NEW}, format="json"),
        ]

    with ExitStack() as all_places:
        for _ in range(2):
            all_places.enter_context(hashing.hashing().places.one())
        hashing.hashing().places._wait_s = 0.01
        refused = post_all()
    assert [(answer.status_code, answer.json()["error"]["code"]) for answer in refused] == [(503, "sign_in_busy")] * 4
    assert all(answer["Retry-After"] for answer in refused)
    # Nothing was used up by the refusals: the links are good.
    assert [answer.status_code for answer in post_all()] == [200, 200, 200, 204]


@pytest.mark.django_db(transaction=True)
def test_no_transaction_waits_for_a_hash(acme: Any, real_hashes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[bool] = []
    plain = BoundedArgon2Hasher.encode

    def encode(self: Any, password: str, salt: str) -> str:
        held.append(connection.in_atomic_block)
        return plain(self, password, salt)

    monkeypatch.setattr(BoundedArgon2Hasher, "encode", encode)
    accept = {"token": invitation(acme), "password": NEW}
    assert APIClient().post("/api/invitations/accept", accept, format="json").status_code == 200
    body = {"token": reset_token(acme.users[Role.VIEWER]), "password": NEW}
    assert APIClient().post("/api/password/reset", body, format="json").status_code == 204
    assert held == [False, False]


@pytest.mark.django_db
def test_every_attempt_costs_one_hash_whoever_it_is_for(acme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the time of an answer does not tell whether there is such an account."""
    count = 0
    plain = MD5PasswordHasher.encode

    def encode(self: Any, password: str, salt: str) -> str:
        nonlocal count
        count += 1
        return str(plain(self, password, salt))

    by_provider, inactive = User.objects.get(email="viewer@acme.example"), User.objects.get(email="admin@acme.example")
    by_provider.set_unusable_password()
    by_provider.save()
    inactive.is_active = False
    inactive.save()
    monkeypatch.setattr(MD5PasswordHasher, "encode", encode)
    for email in (OWNER, by_provider.email, inactive.email, "nobody@acme.example"):
        count = 0
        assert log_in(email, "wrong pass phrase").status_code == 401
        assert count == 1, email
