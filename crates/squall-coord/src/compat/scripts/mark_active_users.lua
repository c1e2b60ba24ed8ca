-- Changes the set of users that a worker runs.
-- Keys: 1 epoch, 2 active users of the worker (set). Args: 1 epoch, 2 ttl in ms, 3 SADD or SREM,
--   4… ids.
-- Reply: 1, or 0 if another run has begun.
-- Invariant: an earlier run does not change the view of a later one.
if tonumber(redis.call('GET', KEYS[1]) or '0') ~= tonumber(ARGV[1]) then return 0 end
redis.call(ARGV[3], KEYS[2], unpack(ARGV, 4))
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1
