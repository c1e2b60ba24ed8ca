-- Asks the worker of a session to end it, at the worker's next offer.
-- Ends a reserved session at once, because its worker does not know it.
-- Args: as the prelude, 3 session. Reply: 1 if there is such a session.
local session = record('sessions', ARGV[3])
if not session then return 0 end
if session.reserved then
  remove_session_that_never_began(ARGV[3])
  redis.call('ZADD', key('released'), whole(now + RELEASED_FOR), ARGV[3])
  serve_waiting()
  return 1
end
session.ending = true
redis.call('HSET', KEYS[1], ARGV[3], cjson.encode(session))
return 1
