-- A worker offers its slots. It is also the worker's heartbeat.
-- Args: as the prelude, 3 kind, 4 name, 5 JSON (versions, endpoint, secret, slots, max_lifetime,
--   lifetime, draining, started), 6 ttl in ms, 7 JSON list of the sessions that the worker has, 8 JSON list of
--   the ids of sessions that ended before an offer listed them.
-- Reply: {drain ('1' or '0'), pending, id, reason, …}: how many sessions it was granted that it does not
--   list, and the sessions that the worker should end. {'name_taken'} if a live worker of this name has
--   another secret.
-- Invariant: the worker decides which sessions it has, except those that it has not seen yet and those
--   that were released; a drain request is never undone; of two workers of one name the first stays.
local kind, worker, ttl = ARGV[3], ARGV[3] .. ':' .. ARGV[4], tonumber(ARGV[6])
local offer, old = cjson.decode(ARGV[5]), record('offers', worker)
if old and old.secret ~= offer.secret then return {'name_taken'} end
offer.kind, offer.unreachable = kind, false
local command = key('worker:cmd:' .. worker)
local commanded = redis.call('TYPE', command).ok == 'string' and redis.call('GET', command) == 'shutdown'
if commanded then redis.call('DEL', command) end
offer.drain_wish = commanded or (old and old.drain_wish) or false
if old then unrank(worker, old) end
count_version(offer, 1)

redis.call('ZREMRANGEBYSCORE', key('released'), '-inf', whole(now))
local listed, pending, answer = {}, 0, {offer.drain_wish and '1' or '0', '0'}
local function tell_end(id, reason) answer[#answer + 1] = id answer[#answer + 1] = reason end
for _, held in ipairs(cjson.decode(ARGV[7])) do
  local session = record('sessions', held.id)
  listed[held.id] = true
  local released = not session and was_released(held.id)
  if not session and not released then
    session = {worker = worker, kind = kind, version = held.version, server = held.server, key = held.key,
      since = now, state = 'held', ending = false, reserved = false, detached = held.detached}
    add_session(held.id, session)
  elseif session and (session.state == 'granted' or session.server ~= held.server or held.detached) then
    session.state, session.reserved, session.version = 'held', false, held.version
    if held.detached then session.detached = true else move_session(held.id, session, held.server) end
    redis.call('HSET', KEYS[1], held.id, cjson.encode(session))
    redis.call('ZREM', key('pending'), held.id)
  end
  if released or session.ending then tell_end(held.id, 'deleted')
  elseif not held.detached and not held.direct and not alive('servers', held.server) then
    tell_end(held.id, redis.call('ZSCORE', key('lost'), held.server) and 'server_lost' or 'server_unknown')
  end
end
local ended = {}
for _, id in ipairs(cjson.decode(ARGV[8])) do ended[id] = true end
for _, id in ipairs(redis.call('SMEMBERS', key('sessions:of:' .. worker))) do
  if not listed[id] then
    if ended[id] or record('sessions', id).state == 'held' then
      remove_session(id)
      redis.call('ZADD', key('released'), whole(now + RELEASED_FOR), id)
    else pending = pending + 1 end
  end
end
offer.lifetime, answer[2] = offer.lifetime + pending, whole(pending)

expire_at('workers', now + ttl, worker)
redis.call('HSET', key('worker:' .. worker), 'id', ARGV[4], 'browserType', kind, 'wsEndpoint', offer.endpoint,
  'endpoint', offer.endpoint, 'startedAt', whole(offer.started), 'lastHeartbeat', whole(math.floor(now / 1000)),
  'status', status(offer), 'version', table.concat(offer.versions, ','), 'slots', offer.slots)
redis.call('PEXPIRE', key('worker:' .. worker), ttl)
write_worker(worker, offer)
touched[worker] = true
serve_waiting()
return answer
