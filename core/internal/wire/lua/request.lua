-- What requests about an attempt share: then head.lua runs, then the request. Sent alone, either is the script's
-- own text; in a batch, it is a function.
-- resource: see resource.lua
-- tombstone of the attempt: string
-- guard: record of the node, see guard.lua
-- KEYS of a request that is sent alone: 1 resource  2 tombstone  3 guard, only where the restart guard is on
-- ARGV 1 attempt  2 client wall clock (us)  3 clock window (ms, 0 = off)  4 lease (ms)
--      5 longest lease in use (ms)  6 replica lag (ms)  7 life of an idle fencing counter (ms)
-- What is its own begins at ARGV own+1; see batch.lua for what requests share.
-- Every reply names the node's clock after its first word: "<ms>", or "<ms>:<longest lease in use>" where the
-- node knows of a longer one than the client.
-- Numbers go through int(): tostring and .. keep 14 digits, a token has 16.  It takes its time, so what was read
-- or is passed on as it is stays a string.
local guard = #KEYS % 2 == 1 and KEYS[#KEYS]
local margin, quarantine, memory, claimed, unclaimed, doubled, clock, earliest, latest
local maxttl = tonumber(ARGV[5])
idle = tonumber(ARGV[7])
-- When a lease ends that is granted now, as a reply has it.  Mostly it is the same for all of a batch.
local leaseOf, endsAt
local function ends(lease)
  if lease ~= leaseOf then leaseOf, endsAt = lease, int(now + lease) end
  return endsAt
end
-- From now on the node has granted something.
local function used()
  call('SET', guard, unclaimed)
  claimed = false
end
