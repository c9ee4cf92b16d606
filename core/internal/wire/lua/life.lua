-- Returns how long Redis keeps a resource (ms, as text for SET) that is taken until e, and has a counter at f and a
-- record until kept; each 0 if there is none. Scripts judge all three by their own times. Redis keeps a taken resource
-- for a day more, and the others for 2h (in idle, for the counter), so that a clock that jumps ahead by less, and back,
-- drops none.
local lifeOf, lifeText
function life(e, f, kept)
  local ms = idle
  if f / 1000 > now then ms = ms + math.floor(f / 1000) - now end
  if e + 86400000 - now > ms then ms = e + 86400000 - now end
  if kept + 7200000 - now > ms then ms = kept + 7200000 - now end
  if ms ~= lifeOf then lifeOf, lifeText = ms, int(ms) end
  return lifeText
end
