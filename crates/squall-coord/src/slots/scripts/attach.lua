-- Gives a reserved or detached session to a server.
-- Args: as the prelude, 3 session, 4 server, 5 in how many ms the worker must list the session, 6 '1'
--   if the session must belong to a key, 7 the key.
-- Reply: {'attached', worker, version, endpoint, secret, '1' if it has had a client or '0'}, {'taken'},
--   {'ended'}, {'unknown'} or {'not_member'}.
-- Invariant: of two servers that attach at the same time, one gets the session.
local id, server = ARGV[3], ARGV[4]
if not alive('servers', server) then return {'not_member'} end
local session = record('sessions', id)
if not session or (ARGV[6] == '1' and session.key ~= ARGV[7]) then
  return {was_released(id) and 'ended' or 'unknown'}
end
if session.ending then return {'ended'} end
if not session.reserved and not session.detached then return {'taken'} end
local begun = session.detached
session.reserved, session.detached = false, false
move_session(id, session, server)
redis.call('HSET', KEYS[1], id, cjson.encode(session))
if session.state == 'granted' then expire_at('pending', now + tonumber(ARGV[5]), id) end
local offer = record('offers', session.worker)
return {'attached', session.worker, session.version, offer.endpoint, offer.secret, begun and '1' or '0'}
