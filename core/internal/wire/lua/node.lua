-- For the scripts of operators: returns the server's clock (us and ms) and its replication history, or a refusal.
-- wall: the client's wall clock (us)   window: the clock window (ms, 0 = off)
-- The role comes before the clock: a server that is no longer the node says so even if its clock is off.
local function asked(wall, window) -- refusal or nil, us, now, history
  local t = redis.call('TIME')
  local us = t[1] * 1000000 + t[2]
  local now = math.floor(us / 1000)
  local info = redis.call('INFO', 'replication')
  local history = string.match(info, 'master_replid:(%x+)')
  if not history then return 'NOGUARD ' .. int(now) end
  if not string.find(info, 'role:master', 1, true) then return 'REPLICA ' .. int(now) end
  if window > 0 and math.abs(us - wall) > window * 1000 then return 'CLOCK ' .. int(us) end
  return nil, us, now, history
end
