-- The waiters for a resource: a sorted set, wait -> when it began (client wall clock, us). A wait is
-- "<how> <channel> <name>": how to publish, 'P' or, in a Cluster, 'S'; the channel of its process; and its name there.
-- It stands for one call of Acquire, whatever attempts the call makes.
-- A resource is marked (resource.lua) while a call may wait for it. Only then does a script derive the name of the set
-- from that of the resource, so that a resource without waiters costs nothing.
-- due: the waits to notify at the end of a command, by resource; nil = notify at once
local ahead, turn = 3, 50 -- a call comes after at most this many turns, of this length (ms)
local made
-- The operations on queues. They are made only if a call waits, because they would cost every request a tenth of the
-- server's time.
local function queues()
  if made then return made end
  local call = redis.call
  local maxWaits = 1024
  local life = 5000 -- of a queue that no call joins (ms), at least; waiters join again before
  made = {}
  local function queue(resource) return (string.gsub(resource, '}r:', '}w:', 1)) end
  -- Adds a wait, and returns 1 if it is new, 0 if not. If the server is out of memory, it returns nil: the wait has no
  -- place then, but the acquisition is still answered, and the release that restores a place still done.
  local function add(q, ticket, wait, ms)
    local added = redis.pcall('ZADD', q, ticket, wait)
    if type(added) ~= 'number' then return end
    call('PEXPIRE', q, string.format('%.0f', math.max(ms, life)))
    return added
  end
  -- Adds a wait, unless its attempt is over or the queue is full, and returns its place, from 1; 0 if it has none. A
  -- dead waiter stays until a grant passes it, or until no call has joined for long enough: the age of a wait does not
  -- tell whether its call is alive.
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
  -- Restores the place of a wait.
  function made.rejoin(resource, wait, ticket) add(queue(resource), ticket, wait, 0) end
  function made.leave(resource, wait) call('ZREM', queue(resource), wait) end
  local function tell(place, wait)
    local how, channel, name = string.match(wait, '^(%u) (.+) (%S+)$')
    if how then call(how == 'S' and 'SPUBLISH' or 'PUBLISH', channel, place .. ' ' .. name) end
  end
  -- Removes this many of the first waits, all at once, because each dead one would cost the others a turn. Live ones
  -- are notified as if they were second, so that they ask again and regain their places.
  function made.pass(resource, many)
    local q = queue(resource)
    for _, wait in ipairs(call('ZRANGE', q, 0, many - 1)) do tell(2, wait) end
    call('ZREMRANGEBYRANK', q, 0, many - 1)
  end
  -- Returns the first two waits.
  function made.heads(resource) return call('ZRANGE', queue(resource), 0, 1) end
  function made.length(resource) return call('ZCARD', queue(resource)) end
  -- Notifies the first two waits that the resource is free, and the second that it comes after the first.
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
