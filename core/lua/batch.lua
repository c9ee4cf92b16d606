-- Runs several requests in their order, each as if it had been sent alone at this instant, but clock and guard are
-- read once.  An error of one is its own answer: '-' and the error.
-- KEYS resource and tombstone of each; guard
-- ARGV 1 to 8 as for a request that is sent alone, but for attempt and lease;
--      then of each: word, attempt, lease (ms), and its own arguments
local requests = {A = acquire, R = renew, C = complete, E = release}
local arguments = {A = 3, R = 5, C = 7, E = 5}
local function failure(err)
  local text = type(err) == 'table' and err.err or tostring(err)
  return '-' .. string.gsub(text, '^@?user_script: ?%d+: %-?', '')
end
local fine, refused = pcall(head)
if not fine then refused = failure(refused) end
local replies, at = {}, 8
for k = 1, #KEYS - 1, 2 do
  local word = ARGV[at + 1]
  local reply = refused
  if not refused or word == 'E' then
    fine, reply = pcall(requests[word], KEYS[k], KEYS[k + 1], ARGV[at + 2], tonumber(ARGV[at + 3]), at + 3)
    if not fine then reply = failure(reply) end
  end
  -- Nothing was written, and the client must hear it as an error, to look for another server.
  if string.sub(reply, 1, 9) == '-READONLY' then return {err = string.sub(reply, 2)} end
  replies[#replies + 1] = reply
  at = at + 3 + arguments[word]
end
return replies
