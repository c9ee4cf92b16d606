-- Reads clock and guard. If it returns a reply, all requests of the command are refused with it, except releases.
read()
local history
if guard then
  local info = call('INFO', 'replication')
  local _, at = string.find(info, 'master_replid:', 1, true)
  history = at and string.match(info, '^%x+', at + 1)
  if not history then return 'NOGUARD ' .. int(now) end
  -- The role comes before the clock: a server that is no longer the node says so even if its clock is off, so that the
  -- client looks for the node.
  if not string.find(info, 'role:master', 1, true) then return 'REPLICA ' .. int(now) end
end
if window > 0 and math.abs(us - wall) > window * 1000 then return 'CLOCK ' .. int(us) end
-- Two readings of this clock that both passed the window may differ by this much in the wrong direction.
margin = window * 2.2
quarantine, memory, claimed = 0, '-', false
local since, longest = 0, maxttl
if guard then
  local text, of, s, new, m, mark, claim = guarding(call('GET', guard))
  m = tonumber(m or 0)
  longest = math.max(maxttl, math.min(m, 86400000)) -- no lease may be longer than a day
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
  -- Computed for each command: the node may learn of a longer lease later.
  if new == '' then quarantine = since + longest + lag end
end
-- The node may have been promoted so recently that the previous primary may still be serving.
doubled = lag > 0 and quarantine > 0 and now < since + lag
-- The range to which a proposed token is limited.
earliest, latest = us - maxttl * 250, us + maxttl * 250
clock = int(now)
if longest > maxttl then clock = clock .. ':' .. int(longest) end
