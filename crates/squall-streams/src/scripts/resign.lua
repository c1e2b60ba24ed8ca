-- Stops being the leader of an app.
-- Keys: 1 leader. Args: 1 worker. Answer: 1 done, 0 was not.
-- Invariant: nobody ends another's leadership.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
