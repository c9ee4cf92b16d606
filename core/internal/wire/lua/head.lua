-- Reads clock and guard. What it returns is the answer to whatever was asked.
read()
local history
if guard then
  local info = call('INFO', 'replication')
  local _, at = string.find(info, 'master_replid:', 1, true)
  history = at and string.match(info, '^%x+', at + 1)
  if not history then return 'NOGUARD ' .. int(now) end
  -- Before the clock: one that is not the node any more says so even if its clock is off, and the client looks for the node.
  if not string.find(info, 'role:master', 1, true) then return 'REPLICA ' .. int(now) end
end
if window > 0 and math.abs(us - wall) > window * 1000 then return 'CLOCK ' .. int(us) end
-- Two readings of this clock that both passed the window may differ by so much in the wrong direction.
margin = window * 2.2
quarantine, memory, claimed = 0, '-', false
local since, longest = 0, maxttl
if guard then
  local text, of, s, new, m, mark, claim = guarding(call('GET', guard))
  m = tonumber(m or 0)
  longest = math.max(maxttl, math.min(m, 86400000)) -- nobody may use more
  local known = of == history
  if not known then s, new, claim, text = now, '', '', history .. '.' .. int(now) end
  since, claimed, memory, unclaimed = tonumber(s), claim ~= '', text, text .. ' ' .. int(longest)
  local ended = false
  if mark and mark ~= '' then
    local to, at = string.match(mark, '^>(%d+)@(%d+)$')
    ended = not to or maxttl > tonumber(to) or math.abs(us - at) > 600000000
  end
  if not known or longest ~= m or ended then keep(unclaimed .. (claimed and ' ' .. claim or '')) end
  if m > 0 and longest ~= m then noting(guard, longest, now) end
  -- Not fixed at the first contact: the longest lease may become known later.
  if new == '' then quarantine = since + longest + lag end
end
-- The node was promoted so lately that the primary before it may still be serving.
doubled = lag > 0 and quarantine > 0 and now < since + lag
-- How far a token may be from this clock.
earliest, latest = us - maxttl * 250, us + maxttl * 250
clock = int(now)
if longest > maxttl then clock = clock .. ':' .. int(longest) end
