-- Runs a lone acquisition if it is plain: see 'A' in run.lua, which follows. script.go puts the unpacking before it.
local us, tried = false, true
do
  local call, KEYS, struct = redis.pcall, KEYS, struct
  local resource, t = KEYS[1], call('TIME')
  us = t[2] and t[1] * 1000000 + t[2]
  if us and us >= lo and us <= hi then
    local v, now, f = call('GET', resource), us / 1000, 0
    now = now - now % 1
    local ok = not v
    if v and #v > 25 then
      local mark, e, p, n
      mark, e, f, p, n = struct.unpack('<BdddB', v)
      ok = mark == 4 and #v == 26 + n and (now > e or n == 0) and token > f and not v:find(id, 27, true)
    end
    if ok and line then
      ok = now >= votes and call('GET', KEYS[3]) == known
      local info = ok and call('INFO', 'replication') or ''
      ok = #info > 26 and info:byte(21) == 109 and info:find(line, 27, true) -- 109: the m of role:master
    end
    if ok and token - us <= near and us - token <= near and call('EXISTS', KEYS[2]) == 0
      and not call('SET', resource, struct.pack('<BdddBc0c0', 4, now + lease, token, f, #id, id, behind), 'PX', life).err then
      return now
    end
  end
end
