-- Who waits for a resource: a sorted set, wait -> when it began (client wall clock, us).  A wait is
-- "<how> <channel> <name>": how to publish, 'P' or, in a Cluster, 'S'; the channel of its process; and what it is
-- called there.  It is one call of Acquire: the attempts that it makes come and go.
-- A resource is marked (resource.lua) while somebody may wait for it.  The name of the set is made of the
-- resource's, and only then, so that nothing is paid for it where nobody waits.
-- What fails here costs the order, never the lease: it is tried with pcall.
local ahead, turn = 3, 50 -- so many of a queue have a turn, of so long (ms)
local due -- in a batch, whom to tell at its end, by resource
local made
-- What there is to do with queues: made where somebody waits, for it would cost each request a tenth of the server's
-- time.
local function queues()
  if made then return made end
  local try, call = redis.pcall, redis.call
  local maxWaits = 1024
  local life = 5000 -- of a queue that nobody joins (ms), at least: who waits joins again before
  made = {}
  local function queue(resource) return (string.gsub(resource, '}r:', '}w:', 1)) end
  local function count(reply) return type(reply) == 'number' and reply end
  -- Where waits can be counted, and not be removed, the queue is given up: they would keep the resource from others.
  -- Who may not count is in no queue.
  local function remove(q, command, ...)
    if not count(try(command, q, ...)) and count(try('ZCARD', q)) then call('DEL', q) end
  end
  -- Adds a wait, unless the attempt that asks is over, and returns its place, the first is 1; 0 if it has none.  Whoever
  -- died in the queue stays until a grant passes it, or nobody has asked for long enough: how old a wait is does not
  -- tell whether it is alive.
  function made.join(resource, tombstone, wait, ticket, ms)
    local q = queue(resource)
    local added = count(try('ZADD', q, ticket, wait))
    if not added then return 0 end
    if added == 1 and ((count(try('ZCARD', q)) or 0) > maxWaits or call('EXISTS', tombstone) == 1) then
      remove(q, 'ZREM', wait)
      return 0
    end
    try('PEXPIRE', q, string.format('%.0f', math.max(ms, life)))
    local rank = count(try('ZRANK', q, wait))
    return rank and rank + 1 or 0
  end
  -- Gives a wait its place back.
  function made.rejoin(resource, wait, ticket)
    local q = queue(resource)
    try('ZADD', q, ticket, wait)
    try('PEXPIRE', q, life)
  end
  function made.leave(resource, wait) remove(queue(resource), 'ZREM', wait) end
  -- Removes so many of the first.
  function made.pass(resource, many) remove(queue(resource), 'ZREMRANGEBYRANK', 0, many - 1) end
  -- The first two of those that wait; where that may not be read, somebody who cannot be told.
  function made.heads(resource)
    local q = queue(resource)
    local first = try('ZRANGE', q, 0, 1)
    if first.err then first = {call('EXISTS', q) == 1 and '' or nil} end
    return first
  end
  -- How many wait; where that may not be read, and somebody does: more than have a turn.
  function made.length(resource)
    local q = queue(resource)
    return count(try('ZCARD', q)) or call('EXISTS', q) * 1e9
  end
  -- Tells the first two that the resource is free, and the second that it comes after the first.
  function made.wake(resource, waits)
    if #waits == 0 then return end
    if due then
      due[resource] = waits
      return
    end
    for n, wait in ipairs(waits) do
      local how, channel, name = string.match(wait, '^(%u) (.+) (%S+)$')
      if how then try(how == 'S' and 'SPUBLISH' or 'PUBLISH', channel, n .. ' ' .. name) end
    end
  end
  return made
end
