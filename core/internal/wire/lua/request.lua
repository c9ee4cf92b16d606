-- What the requests about attempts share. head.lua runs before the first of them that is not a release.
-- resource: see resource.lua   tombstone of the attempt: string   guard: record of the node, see guard.lua
-- The now of a reply is the node's clock: "<ms>", or "<ms>:<longest lease in use>" if the node knows of a longer one
-- than the client.
-- Numbers go through int(): tostring and .. keep 14 digits, a token has 16.
local us -- server us, once it was read
local guarded, wall, window, maxttl, lag
guarded, wall, window, maxttl, lag, idle = unpack('<Bddddd', a)
local guard = guarded == 1 and KEYS[#KEYS]
local margin, quarantine, memory, claimed, unclaimed, doubled, clock, earliest, latest
-- Reads the clock once: all requests of a command are judged at one time.
local function read()
  if not us then
    local t = call('TIME')
    us = t[1] * 1000000 + t[2]
  end
  now = math.floor(us / 1000)
end
-- Returns, as text, when a lease ends that is granted now. It is mostly the same for a whole batch.
local leaseOf, endsAt
local function ends(lease)
  if lease ~= leaseOf then leaseOf, endsAt = lease, int(now + lease) end
  return endsAt
end
-- Writes the guard record. This must succeed: a server that is out of memory may get a renewal first.
local function keep(record) press(guard .. 'x', guard, record) end
-- Drops the claim: the node has granted something.
local function used()
  keep(unclaimed)
  claimed = false
end
