"""The limiter of many processes: Lua scripts in Redis, one round trip per decision, by the Redis server's clock.

All keys of a tenant are in one hash slot, so that a cluster can hold them. `memory_limiter.py` does the same.

    leases          sorted set: lease -> when it expires, in ms
    open            hash: lease -> "tokens bucket day month scope ... n=choices"
    held            hash: "<scope>:n" running choices, "<scope>:k" tokens that they hold
    spent           hash: "<scope>:d:<day>", "<scope>:m:<first day of month>" tokens of requests that ended
    window:<scope>  hash: "r<bucket>" requests, "t<bucket>" tokens
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, cast

import redis.asyncio
from redis.exceptions import RedisError

from control_plane.billing.limits.values import Counted
from control_plane.billing.quotas.limiter_interface import (
    BUSY_WAIT_MS,
    DAY_MS,
    LEASE_MS,
    SPAN,
    UNRENEWED_MS,
    WIDTH_MS,
    BudgetPeriod,
    Decision,
    LimiterUnavailableError,
    OverLimit,
    Reading,
    ReservationRequest,
    Scope,
    Spent,
    UnknownSpendingError,
    period_of,
)
from control_plane.core.cancellation import to_completion
from control_plane.core.redis_client import TIMEOUT_S, options

# Seconds that a call may wait for a connection: during a burst the server is busy, not away.
QUEUE_S = 5.0
MAX_CONNECTIONS = 16
# Milliseconds for which a tenant's spending is kept: two months and some days.
SPENT_TTL_MS = 70 * DAY_MS

# KEYS: leases, open, held, spent, a window for each scope. ARGV: the time or "", the life of a lease.
# Times are the server's alone. After that clock stepped back, counts later than now are dropped
# and leases expire after their usual life.
_PRELUDE = (
    f"""
local WIDTH, SPAN, DAY, BUSY, UNRENEWED = {WIDTH_MS}, {SPAN}, {DAY_MS}, {BUSY_WAIT_MS}, {UNRENEWED_MS}
local SPENT_TTL = {SPENT_TTL_MS}
"""
    + """
local leases, open, held, spent = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local call = redis.call
local now = tonumber(ARGV[1])
if not now then
  local clock = call('TIME')
  now = clock[1] * 1000 + math.floor(clock[2] / 1000)
end
local life = tonumber(ARGV[2])
local bucket, day = math.floor(now / WIDTH), math.floor(now / DAY)

-- The first day of the month that a day is in, both as days since 1970: in a calendar whose years begin in March.
local function first_of_month(of_day)
  local floor = math.floor
  local day_of_era = (of_day + 719468) % 146097
  local year = floor(
    (day_of_era - floor(day_of_era / 1460) + floor(day_of_era / 36524) - floor(day_of_era / 146096)) / 365)
  local day_of_year = day_of_era - (365 * year + floor(year / 4) - floor(year / 100))
  local month_of_year = floor((5 * day_of_year + 2) / 153)
  return of_day - (day_of_year - floor((153 * month_of_year + 2) / 5))
end
local month = first_of_month(day)
local last_month, month_end = first_of_month(month - 1), first_of_month(month + 31)

local function number(text) return string.format('%.0f', text) end
local function count(key, field) return tonumber(call('HGET', key, field) or 0) end

local function read_lease(lease)
  local words = {}
  for word in string.gmatch(call('HGET', open, lease), '%S+') do words[#words + 1] = word end
  local known = {
    tokens = tonumber(words[1]), bucket = words[2], day = words[3], month = words[4], scopes = {}, choices = 1
  }
  for i = 5, #words do
    local named = string.match(words[i], '^n=(%d+)$')
    if named then known.choices = tonumber(named) else known.scopes[#known.scopes + 1] = words[i] end
  end
  return known
end

local function drop(lease)
  local dropped = read_lease(lease)
  for _, scope in ipairs(dropped.scopes) do
    call('HINCRBY', held, scope .. ':n', -dropped.choices)
    call('HINCRBY', held, scope .. ':k', number(-dropped.tokens))
  end
  call('HDEL', open, lease)
  call('ZREM', leases, lease)
  return dropped
end

for _, lease in ipairs(call('ZRANGEBYSCORE', leases, '-inf', number(now))) do drop(lease) end
for _, lease in ipairs(call('ZRANGEBYSCORE', leases, '(' .. number(now + life), '+inf')) do
  call('ZADD', leases, number(now + life), lease)
end

local function extend()
  for _, key in ipairs({leases, open, held}) do call('PEXPIRE', key, number(life * 3)) end
end

local function window(key)
  local counts, old = {r = {}, t = {}}, {}
  local flat = call('HGETALL', key)
  for i = 1, #flat, 2 do
    local kind, at = string.sub(flat[i], 1, 1), tonumber(string.sub(flat[i], 2))
    if at <= bucket - SPAN or at > bucket then old[#old + 1] = flat[i] else counts[kind][at] = tonumber(flat[i + 1]) end
  end
  if #old > 0 then call('HDEL', key, unpack(old)) end
  return counts
end

local function total(counts)
  local sum = 0
  for _, value in pairs(counts) do sum = sum + value end
  return sum
end

local function reset(counts)
  for at = bucket, bucket - SPAN + 1, -1 do
    if (counts[at] or 0) > 0 then return (at + SPAN) * WIDTH - now end
  end
  return 0
end

-- Requests, reset, tokens, reset, day, month, open; -1 for spending that is not known.
local function reading(name, counts)
  local tokens = count(held, name .. ':k')
  local by_day = call('HGET', spent, name .. ':d:' .. day)
  local by_month = call('HGET', spent, name .. ':m:' .. month)
  return {
    total(counts.r), reset(counts.r), total(counts.t), reset(counts.t),
    by_day and tonumber(by_day) + tokens or -1, by_month and tonumber(by_month) + tokens or -1,
    count(held, name .. ':n')
  }
end
"""
)

# ARGV from 3 on: lease, tokens, choices, then for each scope its name and five limits ("" = none).
# Answer: day, month, refused scope (0 = none, -1 = spending unknown), refused limit, wait, readings of each scope.
_RESERVE = (
    _PRELUDE
    + """
local lease, tokens, choices = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local answer = {day, month, 0, 0, 0}
local scopes, known = {}, true
for i = 6, #ARGV, 6 do
  local scope = {name = ARGV[i], key = KEYS[4 + (i - 6) / 6 + 1], caps = {}}
  for limit = 1, 5 do scope.caps[limit] = tonumber(ARGV[i + limit]) end
  scope.window = window(scope.key)
  scope.reading = reading(scope.name, scope.window)
  known = known and not (scope.caps[3] and scope.reading[5] < 0) and not (scope.caps[4] and scope.reading[6] < 0)
  scopes[#scopes + 1] = scope
end

local function finish()
  for _, scope in ipairs(scopes) do
    for _, value in ipairs(reading(scope.name, window(scope.key))) do answer[#answer + 1] = value end
  end
  return answer
end

if call('HEXISTS', open, lease) == 1 then return finish() end
if not known then
  answer[3] = -1
  return finish()
end

local function choices_in(scope, lease)
  local known = read_lease(lease)
  for _, name in ipairs(known.scopes) do
    if name == scope then return known.choices end
  end
  return 0
end

-- Until so many choices of the scope may have ended. Leases that are renewed come first: nearly always one will do.
local function until_free(scope, excess)
  local unrenewed, first, page = {}, 0, nil
  repeat
    page = call('ZREVRANGE', leases, first, first + 63, 'WITHSCORES')
    for i = 1, #page, 2 do
      local choices, left = choices_in(scope, page[i]), tonumber(page[i + 1]) - now
      if left <= life - UNRENEWED then
        if choices > 0 then unrenewed[#unrenewed + 1] = {left = left, choices = choices} end
      else
        excess = excess - choices
        if excess <= 0 then return BUSY end
      end
    end
    first = first + 64
  until #page == 0
  local ms = BUSY
  for i = #unrenewed, 1, -1 do
    if excess <= 0 then break end
    ms, excess = unrenewed[i].left, excess - unrenewed[i].choices
  end
  return ms
end

local function wait(scope, limit, excess)
  if limit == 5 then return until_free(scope.name, excess) end
  if limit == 3 then return (day + 1) * DAY - now end
  if limit == 4 then return month_end * DAY - now end
  local counts = limit == 1 and scope.window.r or scope.window.t
  for at = bucket - SPAN + 1, bucket do
    excess = excess - (counts[at] or 0)
    if counts[at] and excess <= 0 then return (at + SPAN) * WIDTH - now end
  end
  return SPAN * WIDTH
end

for index, scope in ipairs(scopes) do
  local used = {scope.reading[1], scope.reading[3], scope.reading[5], scope.reading[6], scope.reading[7]}
  local requested = {1, tokens, tokens, tokens, choices}
  for limit = 1, 5 do
    local cap = scope.caps[limit]
    if cap and used[limit] + requested[limit] > cap then
      local ms = wait(scope, limit, used[limit] + requested[limit] - cap)
      if answer[3] == 0 or ms > answer[5] then answer[3], answer[4], answer[5] = index, limit, ms end
    end
  end
end
if answer[3] ~= 0 then return finish() end

local names = {}
for _, scope in ipairs(scopes) do
  names[#names + 1] = scope.name
  call('HINCRBY', scope.key, 'r' .. bucket, 1)
  call('HINCRBY', scope.key, 't' .. bucket, number(tokens))
  call('PEXPIRE', scope.key, (SPAN + 1) * WIDTH)
  call('HINCRBY', held, scope.name .. ':n', choices)
  call('HINCRBY', held, scope.name .. ':k', number(tokens))
end
names[#names + 1] = 'n=' .. choices
call('ZADD', leases, number(now + life), lease)
call('HSET', open, lease, table.concat({number(tokens), bucket, day, month, unpack(names)}, ' '))
extend()
return finish()
"""
)

# ARGV: lease, tokens ("" = not known). The windows are those of the lease's scopes, in their order.
_SETTLE = (
    _PRELUDE
    + """
local lease, tokens = ARGV[3], tonumber(ARGV[4])
if call('HEXISTS', open, lease) == 0 then return 0 end
local dropped = drop(lease)
if not tokens then return 1 end
for index, name in ipairs(dropped.scopes) do
  local key = KEYS[4 + index]
  window(key)
  if call('HEXISTS', key, 't' .. dropped.bucket) == 1 then
    call('HINCRBY', key, 't' .. dropped.bucket, number(tokens - dropped.tokens))
  end
  for _, field in ipairs({name .. ':d:' .. dropped.day, name .. ':m:' .. dropped.month}) do
    if call('HEXISTS', spent, field) == 1 then call('HINCRBY', spent, field, number(tokens)) end
  end
end
return 1
"""
)

_RENEW = (
    _PRELUDE
    + """
for i = 3, #ARGV do call('ZADD', leases, 'XX', number(now + life), ARGV[i]) end
extend()
return 1
"""
)

_READ = (
    _PRELUDE
    + """
local answer = {}
for i = 3, #ARGV do
  for _, value in ipairs(reading(ARGV[i], window(KEYS[4 + i - 2]))) do answer[#answer + 1] = value end
end
return answer
"""
)

# ARGV: day, month, then scope, tokens of the day, tokens of the month.
_RAISE = (
    _PRELUDE
    + """
local function lift(scope, field, value)
  local known = call('HGET', spent, field)
  if not known then
    call('HSET', spent, field, value)
  else
    -- The ledger may have parts of what open leases hold, which is counted when they are settled.
    local rest = tonumber(value) - count(held, scope .. ':k')
    if tonumber(known) < rest then call('HSET', spent, field, number(rest)) end
  end
end
for i = 5, #ARGV, 3 do
  lift(ARGV[i], ARGV[i] .. ':d:' .. ARGV[3], ARGV[i + 1])
  lift(ARGV[i], ARGV[i] .. ':m:' .. ARGV[4], ARGV[i + 2])
end
for _, field in ipairs(call('HKEYS', spent)) do
  local kind, at = string.match(field, ':(%a):(%-?%d+)$')
  local first, last = last_month, month
  if kind == 'd' then first, last = day - 1, day end
  if tonumber(at) < first or tonumber(at) > last then call('HDEL', spent, field) end
end
call('PEXPIRE', spent, number(SPENT_TTL))
return 1
"""
)


class RedisLimiter:
    """The limiter in Redis, for one event loop. A server that does not answer within a second counts as away."""

    def __init__(self, url: str, now_ms: Callable[[], int] | None = None, lease_ms: int = LEASE_MS) -> None:
        pool = redis.asyncio.BlockingConnectionPool.from_url(
            url,
            max_connections=MAX_CONNECTIONS,
            timeout=QUEUE_S,
            # The client may retry on a new connection: every call here is safe to repeat.
            **options(url, asynchronous=True, timeout_s=TIMEOUT_S),
        )
        self._redis: redis.asyncio.Redis = redis.asyncio.Redis.from_pool(pool)
        self._now_ms = now_ms
        self._lease_ms = lease_ms
        self._scripts = {text: self._redis.register_script(text) for text in (_RESERVE, _SETTLE, _RENEW, _READ, _RAISE)}

    async def reserve(self, request: ReservationRequest) -> Decision:
        limits = [str(part) for scope in request.scopes for part in (scope.name, *_caps(scope))]
        answer = await self._run(
            _RESERVE, request.tenant, _names(request.scopes), request.lease, request.tokens, request.choices, *limits
        )
        day, month, scope, limit, wait_ms = answer[:5]
        if scope < 0:
            raise UnknownSpendingError(BudgetPeriod(day, month))
        readings = _readings(answer[5:])
        if scope == 0:
            return Decision(None, readings)
        return Decision(_refusal(request, scope - 1, list(Counted)[limit - 1], readings, wait_ms), readings)

    async def settle(self, request: ReservationRequest, tokens: int | None) -> bool:
        counted = "" if tokens is None else str(tokens)
        return bool(await self._run(_SETTLE, request.tenant, _names(request.scopes), request.lease, counted))

    async def renew(self, tenant: str, leases: Sequence[str]) -> None:
        await self._run(_RENEW, tenant, (), *leases)

    async def read(self, tenant: str, scopes: Sequence[Scope]) -> tuple[Reading, ...]:
        names = _names(scopes)
        return _readings(await self._run(_READ, tenant, names, *names))

    async def raise_to(self, tenant: str, period: BudgetPeriod, spent: Iterable[Spent]) -> None:
        values = [part for each in spent for part in (each.scope, each.day, each.month)]
        await self._run(_RAISE, tenant, (), period.day, period.month, *values)

    async def period(self) -> BudgetPeriod:
        if self._now_ms:
            return period_of(self._now_ms())
        try:
            seconds, _ = await cast(Awaitable[Any], self._redis.time())
        except (RedisError, OSError, TimeoutError) as error:
            raise LimiterUnavailableError(str(error)) from error
        return period_of(seconds * 1000)

    async def close(self) -> None:
        await self._redis.aclose()

    async def _run(self, script: str, tenant: str, scopes: Sequence[str], *values: str | int) -> Any:
        keys = [f"lorikeet:quota:{{{tenant}}}:{name}" for name in ("leases", "open", "held", "spent")]
        keys += [f"lorikeet:quota:{{{tenant}}}:window:{scope}" for scope in scopes]
        now = self._now_ms() if self._now_ms else None
        arguments = ["" if now is None else now, self._lease_ms, *values]
        try:
            return await to_completion(cast(Awaitable[Any], self._scripts[script](keys=keys, args=arguments)))
        except (RedisError, OSError, TimeoutError) as error:
            raise LimiterUnavailableError(str(error)) from error


def _names(scopes: Sequence[Scope]) -> tuple[str, ...]:
    return tuple(scope.name for scope in scopes)


def _caps(scope: Scope) -> list[int | str]:
    return ["" if (allowed := scope.limits.of(limit)) is None else allowed for limit in Counted]


def _readings(flat: Sequence[int]) -> tuple[Reading, ...]:
    width = 7
    return tuple(_reading(flat[at : at + width]) for at in range(0, len(flat), width))


def _reading(flat: Sequence[int]) -> Reading:
    requests, requests_ms, tokens, tokens_ms, day, month, running = flat
    return Reading(
        requests, requests_ms, tokens, tokens_ms, None if day < 0 else day, None if month < 0 else month, running
    )


def _refusal(
    request: ReservationRequest, index: int, limit: Counted, readings: Sequence[Reading], wait_ms: int
) -> OverLimit:
    scope = request.scopes[index]
    allowed, used = scope.limits.of(limit), readings[index].used(limit)
    assert allowed is not None and used is not None  # otherwise it could not have refused
    return OverLimit(scope, limit, allowed, used, request.of(limit), wait_ms)
