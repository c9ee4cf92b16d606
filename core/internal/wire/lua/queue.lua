-- Who waits for a resource: a sorted set, wait -> when it began (client wall clock, us).  A wait is
-- "<how> <channel> <name>": how to publish, 'P' or, in a Cluster, 'S'; the channel of its process; and what it is
-- called there.  It is one call of Acquire: the attempts that it makes come and go.
-- A resource is marked (resource.lua) while somebody may wait for it.  The name of the set is made of the
-- resource's, and only then, so that nothing is paid for it where nobody waits.
-- due: whom to tell at the end of a command, by resource; nil = at once
local ahead, turn = 3, 50 -- so many of a queue have a turn, of so long (ms)
local made
-- What there is to do with queues: made where somebody waits, for it would cost each request a tenth of the server's
-- time.
local function queues()
  if made then return made end
  local call = redis.call
  local maxWaits = 1024
  local life = 5000 -- of a queue that nobody joins (ms), at least: who waits joins again before
  made = {}
  local function queue(resource) return (string.gsub(resource, '}r:', '}w:', 1)) end
  -- Adds a wait.  A server that is out of memory refuses that: it costs the place in the queue, and neither the answer
  -- to who asks nor the release that gives a place back.
  local function add(q, ticket, wait, ms)
    local added = redis.pcall('ZADD', q, ticket, wait)
    if type(added) ~= 'number' then return end
    call('PEXPIRE', q, string.format('%.0f', math.max(ms, life)))
    return added
  end
  -- Adds a wait, unless the attempt that asks is over, and returns its place, the first is 1; 0 if it has none.  Whoever
  -- died in the queue stays until a grant passes it, or nobody has asked for long enough: how old a wait is does not
  -- tell whether it is alive.
  function made.join(resource, tombstone, wait, ticket, ms)
    local q = queue(resource)
    local added = add(q, ticket, wait, ms)
    if not added then return 0 end
    if added == 1 and (call('ZCARD', q) > maxWaits or call('EXISTS', tombstone) == 1) then
      call('ZREM', q, wait)
      return 0
    end
    return call('ZRANK', q, wait) + 1
  end
  -- Gives a wait its place back.
  function made.rejoin(resource, wait, ticket) add(queue(resource), ticket, wait, 0) end
  function made.leave(resource, wait) call('ZREM', queue(resource), wait) end
  local function tell(place, wait)
    local how, channel, name = string.match(wait, '^(%u) (.+) (%S+)$')
    if how then call(how == 'S' and 'SPUBLISH' or 'PUBLISH', channel, place .. ' ' .. name) end
  end
  -- Removes so many of the first, all at once, since those that are dead would cost the others a turn each.  Who is alive
  -- is told as if it were the second, and so asks again, and gets its place back.
  function made.pass(resource, many)
    local q = queue(resource)
    for _, wait in ipairs(call('ZRANGE', q, 0, many - 1)) do tell(2, wait) end
    call('ZREMRANGEBYRANK', q, 0, many - 1)
  end
  -- The first two of those that wait.
  function made.heads(resource) return call('ZRANGE', queue(resource), 0, 1) end
  function made.length(resource) return call('ZCARD', queue(resource)) end
  -- Tells the first two that the resource is free, and the second that it comes after the first.
  function made.wake(resource, waits)
    if #waits == 0 then return end
    if due then
      due[resource] = waits
      return
    end
    for place, wait in ipairs(waits) do tell(place, wait) end
  end
  return made
end
