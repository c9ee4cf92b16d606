-- Reads clock and guard. What it returns is the answer to whatever was asked.
local wall, window, lag = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[6])
local t = call('TIME')
local us = t[1] * 1000000 + t[2]
now = math.floor(us / 1000)
if window > 0 and math.abs(us - wall) > window * 1000 then return 'CLOCK ' .. int(us) end
-- Two readings of this clock that both passed the window may differ by so much in the wrong direction.
margin = window * 2.2
quarantine, memory, claimed = 0, '-', false
local since, longest = 0, maxttl
if guard then
  local info = call('INFO', 'replication')
  local _, at = string.find(info, 'master_replid:', 1, true)
  local h = at and string.match(info, '^%x+', at + 1)
  if not h then return 'NOGUARD ' .. int(now) end
  if not string.find(info, 'role:master', 1, true) then return 'REPLICA ' .. int(now) end
  local g = call('HMGET', guard, 'h', 's', 'm', 'n', 'v')
  local known = g[1] == h and tonumber(g[2] or '')
  local text, m = g[2], tonumber(g[3] or '') or 0
  longest = math.max(maxttl, math.min(m, 86400000)) -- nobody may use more
  if known then
    since, claimed = known, g[4]
    if longest ~= m then call('HSET', guard, 'm', int(longest)) end
  else
    since, text = now, int(now)
    call('HSET', guard, 'h', h, 's', text, 'm', int(longest))
    if g[4] or g[5] then call('HDEL', guard, 'n', 'v') end
  end
  -- Not fixed at the first contact: the longest lease may become known later.
  if not (known and g[5]) then quarantine = since + longest + lag end
  -- s may repeat, h may too after a flush; together they name what the node remembers.
  memory = string.sub(h, 1, 8) .. '.' .. text
end
-- The node was promoted so lately that the primary before it may still be serving.
doubled = lag > 0 and quarantine > 0 and now < since + lag
-- How far a token may be from this clock.
earliest, latest = us - maxttl * 250, us + maxttl * 250
clock = int(now)
if longest > maxttl then clock = clock .. ':' .. int(longest) end
