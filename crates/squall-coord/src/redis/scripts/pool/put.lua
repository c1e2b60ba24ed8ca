-- Adds things that the pool does not have yet.
-- Keys: as the prelude, 10 pool_loaded_count (string; for the seed's clients), 11 what this very put was answered, if it is repeated
--   (string, for a minute), 12… payloads (strings), one per thing.
-- Args: as the prelude, 5 most things in the pool (-1: any), 6 run (-1: of none), 7… id and payload in turn. Answer: 1 or 0 per thing.
-- Invariant: payload, id and count change together; a thing that is there, free or held, is never made free again; a run that is over
--   adds nothing; a put that is repeated adds nothing and is answered as before.
local before = redis.call('GET', KEYS[11])
local added = {}
if before then
  for at = 1, #before do added[at] = tonumber(string.sub(before, at, at)) end
  return added
end
if tonumber(ARGV[6]) >= 0 and tonumber(ARGV[6]) < run then return added end
redis.call('HSETNX', KEYS[1], ARGV[2], 0)
local total = tonumber(redis.call('HGET', KEYS[1], ARGV[2]))
if not total or total < 0 then return foreign(ARGV[2] .. ' of resources') end
local limit = tonumber(ARGV[5])
for at = 12, #KEYS do
  local id, payload = ARGV[7 + (at - 12) * 2], ARGV[8 + (at - 12) * 2]
  if (limit < 0 or total < limit) and redis.call('EXISTS', KEYS[at]) == 0 then
    redis.call('SET', KEYS[at], payload)
    redis.call('SADD', KEYS[2], id)
    total = redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
    added[at - 11] = 1
  else
    added[at - 11] = 0
  end
end
redis.call('SET', KEYS[10], whole(total))
if #added > 0 then redis.call('SET', KEYS[11], table.concat(added), 'EX', 60) end
call_next()
return added
