-- Runs several requests in their order, each as if it had been sent alone at this instant, but clock and guard are
-- read once.  An error of one is its own answer: '-' and the error.
-- KEYS resource and tombstone of each; guard
-- ARGV 1 to 7 as for a request that is sent alone, but for attempt and lease;
--      then groups of requests: word, how many, lease (ms), what they share, and of each: attempt, and its own.
--      What is shared and what is own is the order of the functions' last parameters, and of what stands at own+1
--      and following.
local requests = {A = acquire, R = renew, C = complete, E = release}
local shared = {A = 5, R = 4, C = 0, E = 6}
local own = {A = 1, R = 2, C = 8, E = 1}
local function failure(err)
  local text = type(err) == 'table' and err.err or tostring(err)
  return '-' .. string.gsub(text, '^@?user_script: ?%d+: %-?', '')
end
local fine, refused = pcall(head)
if not fine then refused = failure(refused) end
-- Nothing was written, and the client must hear it as an error, to look for another server.
local function readonly(reply) return string.sub(reply, 1, 9) == '-READONLY' end
if refused and readonly(refused) then return {err = string.sub(refused, 2)} end
local replies, at, k = {}, 7, 1
due = {}
local last = #KEYS - #KEYS % 2
while k < last do
  local word = ARGV[at + 1]
  local run, width = requests[word], own[word] + 1
  local count, lease = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local a, b, c, d, e, f = ARGV[at + 4], ARGV[at + 5], ARGV[at + 6], ARGV[at + 7], ARGV[at + 8], ARGV[at + 9]
  at = at + 3 + shared[word]
  for n = 1, count do
    local reply = refused
    if not refused or word == 'E' then
      fine, reply = pcall(run, KEYS[k], KEYS[k + 1], ARGV[at + 1], lease, at + 1, a, b, c, d, e, f)
      if not fine then
        reply = failure(reply)
        if readonly(reply) then return {err = string.sub(reply, 2)} end
      end
    end
    replies[(k + 1) / 2] = reply
    at, k = at + width, k + 2
  end
end
local free = due
due = nil
for resource, waits in pairs(free) do queues().wake(resource, waits) end
return replies
