-- Removes an API key, and keeps for a day that it was revoked: a key that vanished otherwise, because the
-- store lost its data, ends no session.
-- Args: as the prelude, 3 name. Reply: 1 if there was such a key.
local text = redis.call('HGET', key('api_keys'), ARGV[3])
if not text then return 0 end
redis.call('HDEL', key('api_keys'), ARGV[3])
redis.call('ZREMRANGEBYSCORE', key('revoked_api_keys'), '-inf', whole(now))
redis.call('ZADD', key('revoked_api_keys'), whole(now + REVOKED_FOR), text)
return 1
