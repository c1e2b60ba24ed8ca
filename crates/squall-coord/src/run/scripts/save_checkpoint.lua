-- Stores a checkpoint of the deltas up to a position.
-- Keys: 1 saved (hash: place = position, made = data), 2 deltas (stream). Args: 1 previous
--   position, 2 new position, 3 data, 4 ttl in ms, 5 start position.
-- Reply: 1 if stored, 0 if another client stored one first.
-- Invariant: deltas are dropped only when two checkpoints cover them, so a reader slightly behind
--   loses none.
local before = redis.call('HGET', KEYS[1], 'place') or ARGV[5]
if before ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'place', ARGV[2], 'made', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
if before ~= ARGV[5] then redis.call('XTRIM', KEYS[2], 'MINID', before) end
return 1
