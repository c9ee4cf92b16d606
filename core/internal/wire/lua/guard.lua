-- The guard record of a node is one text: "<memory> <longest><mark>", and " <claim>" while Provision claims the node
-- and the node has granted nothing since.
-- memory: the name of what the node remembers, "<history>.<since>": the replication history under which it was
--   written, and the time at which it began (server ms); and "!" if Provision has declared the node new, so that it
--   needs no quarantine. History and time may repeat, the time by chance and the history after a flush; together they
--   name the memory
-- longest: lease in use (ms)
-- mark: '', or while an operator lowers longest "><to>@<us>": the new value, and when the node was marked (server us).
--   The mark ends with the first request that names more than the new value, with the memory, and after ten minutes. No
--   plain request overlooks it, because the record is not the one that the client expects
-- A record of another form belongs to another memory.
local function guarding(text) -- memory, history, since, '!' or '', longest, mark or '', claim or ''
  if text then return string.match(text, '^((%x+)%.(%d+)(!?)) (%d+)(>?%d*@?%d*) ?(%S*)$') end
end
-- Stores since when longest has its value (server ms), for operators. It has its own key because clients must know the
-- text of the record. It is stored only when the value changes: until then, the value is as old as the memory.
local function noting(guard, longest, since)
  redis.pcall('SET', string.sub(guard, 1, -2) .. 'm', int(longest) .. ' ' .. int(since))
end
