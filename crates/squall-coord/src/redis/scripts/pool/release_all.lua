-- Gives back everything a member has out of this pool, and its places in the queue.
-- Keys: as the prelude. Args: as the prelude, 5 holder. Answer: how many things it had.
-- Invariant: idempotent; nobody else's place or thing is touched.
local lost = {}
for _, by in ipairs(redis.call('HKEYS', KEYS[4])) do
  if string.match(by, '^%d+ (.*)$') == ARGV[5] then lost[by] = true end
end
local count = take_from(lost)
for _, ticket in ipairs(redis.call('ZRANGE', KEYS[5], 0, -1)) do
  local of = waiter(ticket)
  if of and of.holder == ARGV[5] then unqueue(ticket) end
end
call_next()
return count
