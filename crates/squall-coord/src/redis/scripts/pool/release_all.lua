-- Releases all items of a member in this pool and removes its queued requests.
-- Keys: as the prelude. Args: as the prelude, 5 holder. Reply: how many items it held.
-- Invariant: idempotent; requests and items of other members stay untouched.
local lost = {}
for _, by in ipairs(redis.call('HKEYS', KEYS[4])) do
  if string.match(by, '^%d+ (.*)$') == ARGV[5] then lost[by] = true end
end
local count = reclaim_from(lost)
for _, ticket in ipairs(redis.call('ZRANGE', KEYS[5], 0, -1)) do
  local of = queued_request(ticket)
  if of and of.holder == ARGV[5] then remove_from_queue(ticket) end
end
notify_next()
return count
