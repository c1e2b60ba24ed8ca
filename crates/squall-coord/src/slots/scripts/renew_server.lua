-- A server stays a member for another ttl.
-- Args: as the prelude, 3 server, 4 ttl in ms. Reply: the ids of its sessions.
redis.call('ZREM', key('lost'), ARGV[3])
redis.call('ZREMRANGEBYSCORE', key('lost'), '-inf', whole(now))
expire_at('servers', now + tonumber(ARGV[4]), ARGV[3])
return redis.call('SMEMBERS', key('sessions:by:' .. ARGV[3]))
