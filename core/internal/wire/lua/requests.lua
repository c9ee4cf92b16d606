-- Unpacks a request, and runs it as if it were alone. An error is the reply to its request: '-' and the error.
-- Beside the kinds of run.lua, each alone:
--   'a' like 'A', to complete a record, then '<d' lease    'r' like 'R', then '<ddBc0' lease, granted, remembered
--   'e' like 'E', then '<dBBc0d' cooldown, 1 = undo + 2 = again, wait, ticket    't' nothing, for touch.lua
--   'c' '<dBc0Bc0dddBBc0dc0' ballot, attempt, remembered, retention, by, buried, 1 = decided, wait, result
-- KEYS resource and tombstone; for 't' the resource
local asked, refused
local kind, k, count, lease -- of the current request
local function failure(err)
  local text = type(err) == 'table' and err.err or tostring(err)
  return '-' .. string.gsub(text, '^@?user_script: ?%d+: %-?', '')
end
local function serve(at, run, ...)
  local ok, reply
  if run ~= release then
    if not asked then
      asked, ok, refused = true, pcall(head)
      if not ok then refused = failure(refused) end
    end
    reply = refused
  end
  if not reply then
    ok, reply = pcall(run, KEYS[k], ...)
    if not ok then reply = failure(reply) end
  end
  return reply, at, us
end
-- Returns the tombstone of an attempt, for plain renewals and releases, whose KEYS do not contain it.
local function over(id)
  local _, at = string.find(KEYS[k], '}r:', 1, true)
  return sub(KEYS[k], 1, at - 2) .. 'x:' .. id
end
return function(own, ...)
  if not own then
    local free = due
    due = nil
    for resource, waits in pairs(free) do queues().wake(resource, waits) end
    return
  end
  kind, k, count, lease, us = ...
  if kind == 65 or kind == 97 then
    local token, id, behind, more, at = unpack('<dBc0dc0d', a, own)
    local channel, wait, ticket = '', '', 0
    if more > 0 then channel, wait, ticket, at = unpack('<Bc0Bc0d', a, at) end
    if kind == 97 then lease, at = unpack('<d', a, at) end
    return serve(at, acquire, KEYS[k + count], id, lease, token, kind == 97, sub(behind, 11), channel, wait, ticket)
  elseif kind == 82 or kind == 114 then
    local token, id, confirmed, turn, carried, at = unpack('<dBc0ddBc0', a, own)
    if kind == 82 then return serve(at, renew, over(id), id, lease, token, confirmed, 0, '', turn, carried) end
    local granted, remembered
    lease, granted, remembered, at = unpack('<ddBc0', a, at)
    return serve(at, renew, KEYS[k + 1], id, lease, token, confirmed, granted, remembered, turn, carried)
  elseif kind == 69 or kind == 101 then
    local id, drop, buried, at = unpack('<Bc0dd', a, own)
    if kind == 69 then return serve(at, release, over(id), id, drop, buried, 0, true, false, '', 0) end
    local cooldown, how, wait, ticket
    cooldown, how, wait, ticket, at = unpack('<dBBc0d', a, at)
    return serve(at, release, KEYS[k + 1], id, drop, buried, cooldown, how > 1, how % 2 == 1, wait, ticket)
  elseif kind == 99 then
    local ballot, id, remembered, retention, by, buried, decided, wait, result, at = unpack('<dBc0Bc0dddBBc0dc0', a, own)
    return serve(at, complete, KEYS[k + 1], id, ballot, remembered, retention, by, buried, decided == 1, wait, result)
  end
  return serve(own, touch)
end
