-- Gives up the leadership of an app.
-- Keys: 1 leader. Args: 1 worker. Response: 1 done, 0 the worker was not the leader.
-- Invariant: a worker cannot end the leadership of another one.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
