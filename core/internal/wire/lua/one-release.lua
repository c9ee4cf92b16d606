-- Runs a lone release if it is plain: see 'E' in run.lua, which follows.
local us, tried = false, true
do
  local call, resource, struct = redis.pcall, KEYS[1], struct
  local v = call('GET', resource)
  if v and #v > 25 then
    local _, life, id = struct.unpack('<BBc0Bc0', ARGV[1], 43)
    local mark, e, f, p, n = struct.unpack('<BdddB', v)
    if mark == 4 and e > 0 and f > 0 and n == #id and v:find(id, 27, true) == 27
      and (#v == 26 + n or v:byte(27 + n) == 0 and v:byte(36 + n) == #v - 36 - n)
      and not call('SET', resource, struct.pack('<BdddBc0', 4, 0, f, -1, n, id), 'PX', life).err then
      return 1
    end
  end
end
