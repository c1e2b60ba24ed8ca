-- Adds items that the pool lacks.
-- Keys: as the prelude, 10 pool_loaded_count (string, for vikhry's clients), 11 the reply to this
--   put (string, kept for a minute, in case the put is repeated), 12… payloads (strings), one per
--   item.
-- Args: as the prelude, 5 most items in the pool (-1: no limit), 6 run (-1: any), 7… id and payload
--   in turn. Reply: 1 or 0 per item.
-- Invariant: payload, id and count change together; an existing item, free or held, is never freed
--   by a put; an ended run adds nothing; a repeated put adds nothing and gets the same reply.
local before = redis.call('GET', KEYS[11])
local added = {}
if before then
  for at = 1, #before do added[at] = tonumber(string.sub(before, at, at)) end
  return added
end
if tonumber(ARGV[6]) >= 0 and tonumber(ARGV[6]) < run then return added end
redis.call('HSETNX', KEYS[1], ARGV[2], 0)
local total, all_loaded = load_created_items()
if not total or total < 0 then return not_a_number(ARGV[2] .. ' of resources') end
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
-- An item that is added here and loaded again later is the same item.
if all_loaded then redis.call('SET', KEYS[10], whole(total)) end
if #added > 0 then redis.call('SET', KEYS[11], table.concat(added), 'EX', 60) end
notify_next()
return added
