-- What requests about an attempt share: head.lua runs before the first of them.
-- resource: see resource.lua   tombstone of the attempt: string   guard: record of the node, see guard.lua
-- Every reply names the node's clock after its first word: "<ms>", or "<ms>:<longest lease in use>" where the
-- node knows of a longer one than the client.
-- Numbers go through int(): tostring and .. keep 14 digits, a token has 16.
local us -- server us, once it was read
local guarded, wall, window, maxttl, lag
guarded, wall, window, maxttl, lag, idle = unpack('<Bddddd', a)
local guard = guarded == 1 and KEYS[#KEYS]
local margin, quarantine, memory, claimed, unclaimed, doubled, clock, earliest, latest
-- All requests of a command are judged at one time.
local function read()
  if not us then
    local t = call('TIME')
    us = t[1] * 1000000 + t[2]
  end
  now = math.floor(us / 1000)
end
-- When a lease ends that is granted now, as a reply has it.  Mostly it is the same for all of a batch.
local leaseOf, endsAt
local function ends(lease)
  if lease ~= leaseOf then leaseOf, endsAt = lease, int(now + lease) end
  return endsAt
end
-- Writes the guard record.  It must get through: a renewal may come first to a server that is out of memory.
local function keep(record) press(guard .. 'x', guard, record) end
-- From now on the node has granted something.
local function used()
  keep(unclaimed)
  claimed = false
end
