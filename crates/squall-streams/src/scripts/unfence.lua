-- Takes a partition's fence down after its owner has finished.
-- Keys: 1 lock, 2 gate. Args: 1 epoch. Answer: 1 done, 0 not ours.
-- Invariant: the epoch stays, so that the same owner cannot come back with it.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'owner', '', 'until', '0')
redis.call('DEL', KEYS[2])
return 1
