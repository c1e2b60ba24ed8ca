-- Asks the worker of a session to end it, at the worker's next offer.
-- Args: as the prelude, 3 session. Reply: 1 if there is such a session.
local session = record('sessions', ARGV[3])
if not session then return 0 end
session.ending = true
redis.call('HSET', KEYS[1], ARGV[3], cjson.encode(session))
return 1
