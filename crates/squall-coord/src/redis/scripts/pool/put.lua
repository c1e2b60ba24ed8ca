-- Adds things that the pool does not have yet.
-- Keys: as the prelude, 10 pool_loaded_count (string; for the seed's clients), 11… payloads (strings), one per thing.
-- Args: as the prelude, 5 most things in the pool (-1: any), 6… id and payload in turn. Answer: 1 or 0 per thing.
-- Invariant: payload, id and count change together; a thing that is there, free or held, is never made free again.
redis.call('HSETNX', KEYS[1], ARGV[2], 0)
local total = tonumber(redis.call('HGET', KEYS[1], ARGV[2]))
if not total or total < 0 then return foreign(ARGV[2] .. ' of resources') end
local limit = tonumber(ARGV[5])
local added = {}
for at = 11, #KEYS do
  local id, payload = ARGV[6 + (at - 11) * 2], ARGV[7 + (at - 11) * 2]
  if (limit < 0 or total < limit) and redis.call('EXISTS', KEYS[at]) == 0 then
    redis.call('SET', KEYS[at], payload)
    redis.call('SADD', KEYS[2], id)
    total = redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
    added[at - 10] = 1
  else
    added[at - 10] = 0
  end
end
redis.call('SET', KEYS[10], whole(total))
call_next()
return added
