-- What requests about an attempt share. Each is a function in a file of its own; it is sent alone, or with
-- others in a batch.
-- resource: see resource.lua
-- tombstone of the attempt: string
-- guard: record of the node: hash  h = history it was written under
--                 s = since when the node's memory lasts (server ms)   m = longest lease in use (ms)
--                 n = claimed by Provision, and nothing granted since  v = '1': declared new, no quarantine
-- KEYS of a request that is sent alone: 1 resource  2 tombstone  3 guard, only where the restart guard is on
-- ARGV 1 attempt  2 client wall clock (us)  3 clock window (ms, 0 = off)  4 lease (ms)
--      5 longest lease in use (ms)  6 replica lag (ms)  7 life of an idle fencing counter (ms)  8 slack (ms)
-- Arguments of its own are ARGV at+1 and following.
-- Every reply names the node's clock after its first word: "<ms>", or "<ms>:<longest lease in use>" where the
-- node knows of a longer one than the client.
-- Numbers go through int(): tostring and .. keep 14 digits, a token has 16.  It takes its time, so what was read
-- or is passed on as it is stays a string.
local guard = #KEYS % 2 == 1 and KEYS[#KEYS]
local now, us, margin, since, quarantine, memory, claimed, longest, doubled, clock
local maxttl, idle, slack = tonumber(ARGV[5]), tonumber(ARGV[7]), tonumber(ARGV[8])
-- Reads clock and guard. What it returns is the answer to whatever was asked.
local function head()
  local wall, window, lag = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[6])
  local t = redis.call('TIME')
  us = t[1] * 1000000 + t[2]
  now = math.floor(us / 1000)
  if window > 0 and math.abs(us - wall) > window * 1000 then return 'CLOCK ' .. int(us) end
  -- Two readings of this clock that both passed the window may differ by so much in the wrong direction.
  margin = window * 2.2
  since, quarantine, memory, claimed, longest = 0, 0, '-', false, maxttl
  if guard then
    local info = redis.call('INFO', 'replication')
    local h = string.match(info, 'master_replid:(%x+)')
    if not h then return 'NOGUARD ' .. int(now) end
    if not string.find(info, 'role:master', 1, true) then return 'REPLICA ' .. int(now) end
    local g = redis.call('HMGET', guard, 'h', 's', 'm', 'n', 'v')
    local known = g[1] == h and tonumber(g[2] or '')
    longest = math.max(maxttl, math.min(tonumber(g[3] or '') or 0, 86400000)) -- nobody may use more
    if known then
      since, claimed = known, g[4]
      if longest ~= tonumber(g[3]) then redis.call('HSET', guard, 'm', int(longest)) end
    else
      since = now
      redis.call('HSET', guard, 'h', h, 's', int(since), 'm', int(longest))
      if g[4] or g[5] then redis.call('HDEL', guard, 'n', 'v') end
    end
    -- Not fixed at the first contact: the longest lease may become known later.
    if not (known and g[5]) then quarantine = since + longest + lag end
    -- s may repeat, h may too after a flush; together they name what the node remembers.
    memory = string.sub(h, 1, 8) .. '.' .. int(since)
  end
  -- The node was promoted so lately that the primary before it may still be serving.
  doubled = lag > 0 and quarantine > 0 and now < since + lag
  clock = int(now)
  if longest > maxttl then clock = clock .. ':' .. int(longest) end
end
-- When a lease ends that is granted now.
local leaseOf, endsAt
local function ends(lease)
  if lease ~= leaseOf then leaseOf, endsAt = lease, int(now + lease) end
  return endsAt
end
-- From now on the node has granted something.
local function used()
  if claimed then redis.call('HDEL', guard, 'n') end
  claimed = false
end
-- Scripts judge a record by kept. Redis keeps it for longer, so that a clock that jumps ahead by up to 2h, and
-- back, drops none.
local function keep(resource, ms, kept, tombstone)
  ms = math.max(ms, kept + 7200000 - now)
  if tombstone then press(resource, ms, tombstone) else save(resource, ms) end
end
