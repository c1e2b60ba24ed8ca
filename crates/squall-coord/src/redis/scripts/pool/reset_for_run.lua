-- Empties a pool once per run.
-- Keys: as the prelude, 10 pool_loaded_count. Args: as the prelude, 5 run. Reply: 1 if it emptied
--   the pool.
-- Payload keys are derived from KEYS[2] and share its slot, because only the pool knows which ids
--   exist.
-- Invariant: items added after the reset of a run stay; an earlier run changes nothing; grants and
--   arrivals keep counting, so an old grant never matches a new one.
local of_run = tonumber(ARGV[5])
local renewed = tonumber(redis.call('HGET', KEYS[6], 'renewed') or '-1')
if of_run < run or renewed >= of_run then return 0 end
local base = string.sub(KEYS[2], 1, -string.len('available') - 1)
for _, ids in ipairs({redis.call('SMEMBERS', KEYS[2]), redis.call('HKEYS', KEYS[3])}) do
  for _, id in ipairs(ids) do redis.call('DEL', base .. id) end
end
local grants, arrivals = redis.call('HGET', KEYS[6], 'grants') or '0', redis.call('HGET', KEYS[6], 'arrivals') or '0'
redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6])
redis.call('HSET', KEYS[6], 'grants', grants, 'arrivals', arrivals, 'renewed', ARGV[5])
redis.call('HSET', KEYS[1], ARGV[2], 0)
redis.call('SET', KEYS[10], 0)
return 1
