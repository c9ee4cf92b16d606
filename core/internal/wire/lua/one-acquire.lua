-- One acquisition, where it is plain: see 'A' in run.lua, which follows.
local us, tried = false, true
do
  local call, sub, resource = redis.pcall, string.sub, KEYS[1]
  local _, lo, hi, near, lease, life, token, id, behind = struct.unpack('<BddddBc0dBc0dc0', ARGV[1], at)
  local t = call('TIME')
  us = t[2] and t[1] * 1000000 + t[2]
  if us and us >= lo and us <= hi then
    local v, now, f = call('GET', resource), (us - us % 1000) / 1000, 0
    local ok = not v
    if v and #v > 25 then
      local mark, e, p, n
      mark, e, f, p, n = struct.unpack('<BdddB', v)
      ok = mark == 2 and #v == 26 + n and (now > e or n == 0) and token > f and sub(v, 27) ~= id
    end
    if ok and line then
      ok = now >= votes and call('GET', KEYS[3]) == known
      local info = ok and call('INFO', 'replication')
      ok = type(info) == 'string' and sub(info, 1, 26) == '# Replication\r\nrole:master' and string.find(info, line, 27, true)
    end
    if ok and token - us <= near and us - token <= near and call('EXISTS', KEYS[2]) == 0
      and not call('SET', resource, struct.pack('<BdddBc0', 2, now + lease, token, f, #id, id) .. behind, 'PX', life).err then
      return now
    end
  end
end
