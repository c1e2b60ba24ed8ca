-- Moves users to a worker, or removes them from the view.
-- Keys: 1 epoch, 2 users, 3 users of the old worker, 4 active users of the old worker, 5 users of
--   the new worker, 6 active users of the new worker (sets), 7… user:<id> (hashes).
-- Args: 1 epoch, 2 new worker (empty: none), 3 status, 4 ttl in ms, 5… ids, in the order of the
--   hashes.
-- Reply: 1, or 0 if another run has begun.
-- Invariant: an earlier run does not change the view of a later one; hashes and sets agree.
if tonumber(redis.call('GET', KEYS[1]) or '0') ~= tonumber(ARGV[1]) then return 0 end
local ids = {unpack(ARGV, 5)}
redis.call('SREM', KEYS[3], unpack(ids))
-- Only the worker itself marks its users as active; users that leave it are not.
if KEYS[4] ~= KEYS[6] then redis.call('SREM', KEYS[4], unpack(ids)) end
if ARGV[2] == '' then
  redis.call('SREM', KEYS[2], unpack(ids))
  redis.call('DEL', unpack(KEYS, 7))
  return 1
end
local now = redis.call('TIME')[1] -- whole seconds, as vikhry reads them
redis.call('SADD', KEYS[2], unpack(ids))
redis.call('SADD', KEYS[5], unpack(ids))
for n = 7, #KEYS do
  redis.call('HSET', KEYS[n], 'worker_id', ARGV[2], 'status', ARGV[3], 'updated_at', now)
  redis.call('PEXPIRE', KEYS[n], ARGV[4])
end
for _, key in ipairs({KEYS[2], KEYS[5]}) do redis.call('PEXPIRE', key, ARGV[4]) end
return 1
