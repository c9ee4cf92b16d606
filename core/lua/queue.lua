-- Who waits for a resource: a sorted set, wait -> when it began (client wall clock, us).  A wait is
-- "<how> <channel> <name>": how to publish, 'P' or, in a Cluster, 'S'; the channel of its process; and what it is
-- called there.  It is one call of Acquire: the attempts that it makes come and go.
-- A resource is marked (resource.lua) while somebody may wait for it.  The name of the set is made of the
-- resource's, and only then, so that nothing is paid for it where nobody waits.
-- What fails here costs the order, never the lease: it is tried with pcall.
local try = redis.pcall
local function queue(resource) return (string.gsub(resource, '}r:', '}w:', 1)) end
local function count(reply) return type(reply) == 'number' and reply end
local maxWaits, ahead, turn = 1024, 3, 50 -- of those ahead, so many have a turn of so long (ms)
local queueLife = 5000 -- of a queue that nobody joins (ms), at least: who waits joins again before
-- Where waits cannot be removed, the queue is given up: they would keep the resource from others.
local function remove(q, command, ...)
  if not count(try(command, q, ...)) then call('DEL', q) end
end
-- Adds a wait, unless the attempt that asks is over, and returns its place, the first is 1; 0 if it has none.  Whoever died in the queue stays until
-- a grant passes it, or nobody has asked for long enough: how old a wait is does not tell whether it is alive.
local function join(resource, tombstone, wait, ticket, maxttl)
  local q = queue(resource)
  local added = count(try('ZADD', q, ticket, wait))
  if not added then return 0 end
  if added == 1 and ((count(try('ZCARD', q)) or 0) > maxWaits or call('EXISTS', tombstone) == 1) then
    remove(q, 'ZREM', wait)
    return 0
  end
  try('PEXPIRE', q, int(math.max(maxttl, queueLife)))
  local rank = count(try('ZRANK', q, wait))
  return rank and rank + 1 or 0
end
-- The first two of those that wait.
local function heads(resource)
  local first = try('ZRANGE', queue(resource), 0, 1)
  return first.err and {} or first
end
local due -- in a batch, whom to tell at its end, by resource
-- Tells the first two that the resource is free, and the second that it comes after the first.
local function wake(resource, waits)
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
