-- Removes the fence of a partition after its owner has finished.
-- Keys: 1 lock, 2 gate. Args: 1 epoch. Response: 1 done, 0 the fence has another epoch.
-- Invariant: the epoch stays in the lock without an owner, so that the same owner cannot fence with
-- it again.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'owner', '', 'until', '0')
redis.call('DEL', KEYS[2])
return 1
