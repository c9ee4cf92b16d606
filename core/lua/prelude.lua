-- Head of acquire, renew and complete: clock window, replication history, restart guard.
-- KEYS 1 resource: hash  e = logical expiry of the lease (server ms)   i = attempt that owns it
--                        f = fencing counter (last token handed out)   d = completion record
--                        c = "<attempt> <what its holder carries>"; counts only while i is that attempt
--      2 tombstone of the attempt
--      3 guard record of the node: hash  h = history it was written under  q = quarantined until (server ms)
--        m = longest lease in use (ms).  Passed only where the restart guard is on.
-- ARGV 1 attempt id  2 client wall clock (us)  3 clock window (ms, 0 = off)  4 lease (ms)
--      5 longest lease in use (ms)  6 replica lag (ms)  7 life of an idle fencing counter (ms)  8 slack (ms)
-- d is "<ballot> <kept until, server ms> <token that completed> <result>".
-- Numbers go through int(): tostring and .. keep 14 digits, a token has 16.
local id, wall, window, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local maxttl, lag, fencettl, slack = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local function int(x) return string.format('%.0f', x) end
local t = redis.call('TIME')
local us = t[1] * 1000000 + t[2]
local now = math.floor(us / 1000)
if window > 0 and math.abs(us - wall) > window * 1000 then return 'CLOCK ' .. int(us) end
local quarantine, history = 0, '-'
if KEYS[3] then
  local info = redis.call('INFO', 'replication')
  local h = string.match(info, 'master_replid:(%x+)')
  if not h then return 'NOGUARD ' .. int(now) end
  if not string.find(info, 'role:master', 1, true) then return 'REPLICA ' .. int(now) end
  local g = redis.call('HMGET', KEYS[3], 'h', 'q', 'm')
  local m = math.max(maxttl, tonumber(g[3] or 0) or 0)
  if g[1] ~= h then
    quarantine = now + m + lag
    redis.call('HSET', KEYS[3], 'h', h, 'q', int(quarantine), 'm', int(m))
  else
    quarantine = tonumber(g[2] or 0) or 0
    if m ~= tonumber(g[3] or 0) then redis.call('HSET', KEYS[3], 'm', int(m)) end
  end
  history = string.sub(h, 1, 8)
end
local function record(d)
  local ballot, kept, origin, result = string.match(d or '', '^(%d+) (%d+) (%d+) (.*)$')
  ballot, kept = tonumber(ballot or 0), tonumber(kept or 0)
  if now >= kept then return 0, 0 end
  return ballot, kept, origin, result
end
local function keep(ms, kept)
  redis.call('PEXPIRE', KEYS[1], int(math.max(ms, kept - now)))
end
