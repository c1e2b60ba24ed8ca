-- Ends a session, or a claim that waits. A worker that could not be reached gets no more sessions
-- until its next offer.
-- A detached session keeps its slot, and a server may attach to it.
-- Args: as the prelude, 3 session, 4 'ended', 'never_began', 'unreachable' (the worker could not be reached, so
--   it never began) or 'detached'.
-- Reply: 1 if there was such a session or claim.
-- Invariant: a second release changes nothing; a session that never began costs no lifetime.
if ARGV[4] == 'detached' then
  local session = record('sessions', ARGV[3])
  if not session then return 0 end
  session.detached = true
  redis.call('HSET', KEYS[1], ARGV[3], cjson.encode(session))
  return 1
end
if remove_ticket(ARGV[3]) then return 1 end
local remove = ARGV[4] == 'ended' and remove_session or remove_session_that_never_began
local session = remove(ARGV[3])
if not session then return 0 end
redis.call('ZADD', key('released'), whole(now + RELEASED_FOR), ARGV[3])
local offer = ARGV[4] == 'unreachable' and offer_of(session.worker)
if offer then
  offer.unreachable = true
  write_worker(session.worker, offer)
end
serve_waiting()
return 1
